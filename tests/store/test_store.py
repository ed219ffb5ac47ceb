"""The whole store: life cycle, appends and reads together, reopening, killing, closing."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import ClassVar

import pytest

from orbitmq.errors import FormatError, StoreClosedError, StoreLockedError
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.record import decode_record
from orbitmq.message import AppendStatus, Boundary, GetStatus, QueueType, SysFlag
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk, ForwardingDisk
from store_parts import until

SIZES = {
    "segment_bytes": 16 * 1024,
    "cq_file_bytes": 400,
    "batch_cq_file_bytes": 460,
    "index_slots": 50,
    "index_items": 100,
}


def config_of(root: Path, **changes: object) -> StoreConfig:
    return StoreConfig(**{"root": root, **SIZES, **changes})


@pytest.fixture
def config(tmp_path):
    return config_of(tmp_path / "store")


def read_all(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    """Read a queue from end to end by `get`."""
    bodies = []
    offset = store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        found = store.get(topic, queue_id, offset)
        bodies += [decode_record(record).body for record in found.records]
        assert found.next_offset > offset
        offset = found.next_offset
    return bodies


@pytest.mark.feature("F14")
def test_after_an_append_queues_and_index_fill_without_a_reader(config):
    with MessageStore.open(config) as store:
        results = [store.append(make_request(n, queue_id=0, keys=f"k{n}")) for n in range(200)]

        assert store.wait_dispatched(timeout=20)

        assert store.statistics().dispatch_behind_bytes == 0
        assert store.dispatched_offset == store.max_log_offset
        assert store.max_offset("TopicTest", 0) == 200
        (found,) = store.query("TopicTest", "k150", exact=True)
        assert decode_record(found).log_offset == results[150].log_offset
        assert read_all(store, "TopicTest", 0) == [make_request(n).body for n in range(200)]


@pytest.mark.feature("F80")
def test_the_directory_is_that_of_a_broker(config):
    types = {"Batch": QueueType.BATCH}
    with MessageStore.open(
        config, topic_types=lambda t: types.get(t, QueueType.SIMPLE), background=False
    ) as store:
        store.append(make_request(0, "Orders", 3))
        store.append(make_request(1, "Batch", 1))
        store.tick()
        assert config.layout().abort.read_text() == str(os.getpid())
        store.flush()

    found = {
        str(path.relative_to(config.root)): path.stat().st_size
        for path in config.root.rglob("*")
        if path.is_file()
    }
    (index,) = [name for name in found if name.startswith("index/")]
    assert len(index) == len("index/") + 17
    assert found.pop("orbitmq.snapshot") > 0
    assert found == {
        "commitlog/00000000000000000000": 16 * 1024,
        "consumequeue/Orders/3/00000000000000000000": 400,
        "batchconsumequeue/Batch/1/00000000000000000000": 460,
        index: 40 + 4 * 50 + 20 * 100,
        "checkpoint": 4096,
        "lock": 4,
    }


def test_a_store_is_the_same_after_reopening(config):
    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n, f"T{n % 3}", n % 2, keys=f"k{n}") for n in range(300)])
        end = store.max_log_offset
        store.wait_dispatched()
        before = {queue: read_all(store, *queue) for queue in store.queues()}

    with MessageStore.open(config, background=False) as store:
        report = store.recovery_report
        assert report.clean
        assert not report.adopted
        assert (report.end_offset, store.max_log_offset) == (end, end)
        assert {queue: read_all(store, *queue) for queue in store.queues()} == before
        assert len(store.query("T1", "k1", exact=True)) == 1
        result = store.append(make_request(300, "T0", 0))
        assert result.log_offset >= end
        assert result.queue_offset == 50
        assert config.layout().abort.exists()
    assert not config.layout().abort.exists()


@pytest.mark.parametrize("flush_mode", list(FlushMode))
@pytest.mark.feature("F69", "F70")
def test_a_killed_store_opens_again_with_everything_that_was_acknowledged(tmp_path, flush_mode):
    script = textwrap.dedent(
        """
        import sys
        from orbitmq.store.config import FlushMode, StoreConfig
        from orbitmq.store.store import MessageStore
        from orbitmq.testing.builders import make_request
        from pathlib import Path
        sizes = dict(segment_bytes=16384, cq_file_bytes=400, batch_cq_file_bytes=460,
                     index_slots=50, index_items=100)
        config = StoreConfig(root=Path(sys.argv[1]), flush_mode=FlushMode(sys.argv[2]), **sizes)
        store = MessageStore.open(config)
        number = 0
        while True:
            result = store.append(make_request(number, keys=f"k{number}"))
            assert result.status.stored, result
            number += 1
            sys.stdout.write(f"{number}\\n")
            sys.stdout.flush()
        """
    )
    root = tmp_path / "store"
    config = config_of(root, flush_mode=flush_mode)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(root), flush_mode.value],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 500:
            break
    process.send_signal(signal.SIGKILL)
    acknowledged = int(([line, *process.stdout.read().split()])[-1])
    process.stdout.close()
    assert process.wait(20) == -signal.SIGKILL
    assert config.layout().abort.exists()

    with MessageStore.open(config, background=False) as store:
        assert not store.recovery_report.clean
        bodies = {queue_id: read_all(store, "TopicTest", queue_id) for queue_id in range(4)}
        count = sum(map(len, bodies.values()))
        assert acknowledged <= count <= acknowledged + 1
        for queue_id, queue in bodies.items():
            expected = [make_request(n).body for n in range(queue_id, count, 4)]
            assert queue == expected
        for number in range(0, count, 37):
            assert len(store.query("TopicTest", f"k{number}", exact=True)) == 1


def test_a_second_opener_is_told_who_has_the_store(config):
    with MessageStore.open(config, background=False) as store:
        store.append(make_request(0))
        with pytest.raises(StoreLockedError):
            MessageStore.open(config)
        script = (
            "import sys; from pathlib import Path;"
            "from orbitmq.store.config import StoreConfig;"
            "from orbitmq.store.store import MessageStore;"
            "MessageStore.open(StoreConfig(root=Path(sys.argv[1])))"
        )
        other = subprocess.run(
            [sys.executable, "-c", script, str(config.root)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert other.returncode != 0
        assert f"StoreLockedError: {config.layout().lock}" in other.stderr
        assert f"process {os.getpid()}" in other.stderr
        assert store.append(make_request(1)).status is AppendStatus.PUT_OK
    MessageStore.open(config, background=False).close()


def test_messages_are_found_by_offset_and_by_id(config):
    with MessageStore.open(config, background=False) as store:
        results = [store.append(make_request(n)) for n in range(20)]

        assert store.record_at(results[7].log_offset).body == make_request(7).body
        assert store.record_at(results[7].log_offset + 1) is None
        assert store.record_at(store.max_log_offset) is None
        identity = encode_offset_id(config.store_host, results[9].log_offset)
        assert store.by_id(identity).body == make_request(9).body
        with pytest.raises(FormatError):
            store.by_id("not an id")


def test_reads_by_tag_time_and_status(config):
    clock = FakeClock()
    with MessageStore.open(config, clock=clock, background=False) as store:
        begin = clock.now_ms()
        for number in range(30):
            store.append(make_request(number, queue_id=0, tag="AB"[number % 2]))
            clock.advance(1_000)
        store.tick()

        found = store.get("TopicTest", 0, 0, subscription="B")
        assert found.status is GetStatus.FOUND
        assert found.queue_offsets == list(range(1, 20, 2))  # up to the end of one queue file
        assert store.get("TopicTest", 0, 30).status is GetStatus.OFFSET_OVERFLOW_ONE
        assert store.get("Nowhere", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert store.offset_by_time("TopicTest", 0, begin + 10_000) == 10
        assert store.offset_by_time("TopicTest", 0, begin + 10_500, Boundary.UPPER) == 10
        assert store.offset_by_time("Nowhere", 0, begin) == 0


def test_all_kinds_of_appends_end_up_in_their_queues(config):
    layout = config.layout()
    layout.config_directory.mkdir(parents=True)
    table = {"Batch": {"attributes": {"queue.type": "BatchCQ"}}, "Plain": {"attributes": {}}}
    layout.config("topics.json").write_text(json.dumps({"topicConfigTable": table}))

    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n, "Plain", 0) for n in range(3)])
        batch = make_request(0, "Plain", 0)
        batch.body = encode_client_batch([ClientMessage(b"one"), ClientMessage(b"two")])
        assert [r.queue_offset for r in store.append_client_batch(batch)] == [3, 4]
        inner = make_request(
            1,
            "Batch",
            0,
            properties={"INNER_NUM": "4"},
            sys_flag=SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP,
        )
        store.append(inner)
        store.append(make_request(2, "Plain", 1, properties={"DELAY": "2"}))
        store.append(make_request(3, "Plain", 1, sys_flag=SysFlag.PREPARED))
        store.tick()

        assert read_all(store, "Plain", 0)[3:] == [b"one", b"two"]
        assert store.max_offset("Batch", 0) == 4
        assert store.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 1
        assert ("Plain", 1) not in store.queues()

    with MessageStore.open(config, background=False) as store:
        assert store.append(make_request(4, "Batch", 0)).queue_offset == 4
        assert store.append(make_request(5, "Plain", 0)).queue_offset == 5


@pytest.mark.feature("F15")
def test_an_extra_dispatcher_sees_each_record_once_and_in_order(config):
    seen: list[int] = []
    with MessageStore.open(
        config, dispatchers=[lambda chunk: seen.extend(chunk.rows["log_offset"].tolist())]
    ) as store:
        results = store.append_many([make_request(n) for n in range(150)])
        store.wait_dispatched(timeout=20)
        results += [store.append(make_request(n)) for n in range(150)]

    assert seen == [result.log_offset for result in results]


@pytest.mark.feature("F88")
def test_statistics_report_counts_times_and_lags(config):
    clock = FakeClock()
    with MessageStore.open(config, clock=clock, background=False) as store:
        store.append_many([make_request(n, queue_id=0) for n in range(10)])
        store.append(make_request(10, "a/b"))
        clock.advance(250)
        before = store.statistics()
        store.wait_dispatched()
        store.get("TopicTest", 0, 0)
        store.get("TopicTest", 0, 999)
        store.flush()
        after = store.statistics()

    assert (before.appended_messages, before.refused_messages) == (10, 1)
    assert before.appended_bytes == before.max_log_offset == before.unflushed_bytes
    assert before.dispatch_behind_bytes == before.max_log_offset
    assert before.uptime_ms == 250
    assert before.append_average_us > 0
    assert after.dispatch_behind_bytes == after.unflushed_bytes == 0
    assert (after.get_calls, after.get_found, after.get_missed) == (2, 1, 1)
    assert (after.got_messages, after.got_bytes) == (10, after.max_log_offset)
    assert after.get_average_us > 0
    assert after.flush_count == 1
    assert after.flush_average_us > 0
    assert after.queue_count == 1
    assert after.writable


def test_a_closed_store_answers_nothing(config):
    store = MessageStore.open(config, background=False)
    store.append(make_request(0))
    store.close()
    store.close()

    assert store.append(make_request(1)).status is AppendStatus.SERVICE_NOT_AVAILABLE
    with pytest.raises(StoreClosedError):
        store.get("TopicTest", 0, 0)
    with pytest.raises(StoreClosedError):
        store.queues()


@pytest.mark.feature("F58")
def test_segments_made_ahead_are_there_while_open_and_gone_after_close(config):
    with MessageStore.open(config, background=False) as store:
        store.append(make_request(0))
        store.tick()
        ahead = sorted(int(path.name) for path in config.layout().commit_log.iterdir())
        assert ahead == [0, config.segment_bytes, 2 * config.segment_bytes]
    assert len(list(config.layout().commit_log.iterdir())) == 1


@pytest.mark.feature("F65")
def test_the_rounds_of_a_store_follow_the_clock(config):
    clock = FakeClock()
    with MessageStore.open(config, clock=clock, background=False) as store:
        store.append(make_request(0))
        clock.advance(9_999)
        store.tick()
        assert store.flushed_offset == 0
        clock.advance(501)
        store.tick()
        assert store.flushed_offset == store.max_log_offset
        clock.advance(500)
        store.tick()
        checkpoint = config.layout().checkpoint.read_bytes()
        assert int.from_bytes(checkpoint[:8], "big") == clock.now_ms() - 11_000


@pytest.mark.feature("F64", "F70")
def test_sync_flush_acknowledges_what_is_on_disk(tmp_path):
    config = config_of(tmp_path, flush_mode=FlushMode.SYNC)
    with MessageStore.open(config) as store:
        for number in range(20):
            result = store.append(make_request(number))
            assert result.status is AppendStatus.PUT_OK
            assert store.flushed_offset >= result.log_offset + result.size
        many = store.append_many([make_request(n) for n in range(20)])
        assert store.flushed_offset == store.max_log_offset
        assert {result.status for result in many} == {AppendStatus.PUT_OK}


def test_a_message_that_does_not_want_to_wait_is_flushed_soon_after(tmp_path):
    config = config_of(tmp_path, flush_mode=FlushMode.SYNC)
    with MessageStore.open(config) as store:
        result = store.append(make_request(0, properties={"WAIT": "false"}))

        assert result.status is AppendStatus.PUT_OK
        assert store.wait_dispatched(timeout=20)  # dispatch follows the flush


def test_sync_flush_shows_readers_only_what_is_on_disk(tmp_path):
    config = config_of(tmp_path, flush_mode=FlushMode.SYNC)
    with MessageStore.open(config, background=False) as store:
        result = store.append(make_request(0, queue_id=0, properties={"WAIT": "false"}))
        store._dispatch.dispatch_now()
        assert store.record_at(result.log_offset) is None
        assert store.max_offset("TopicTest", 0) == 0
        assert store.wait_flushed()
        store._dispatch.dispatch_now()
        assert store.record_at(result.log_offset) is not None
        assert store.max_offset("TopicTest", 0) == 1


@pytest.mark.feature("F60")
def test_the_transient_pool_works_with_threads_and_survives_a_clean_stop(tmp_path):
    config = config_of(tmp_path, transient_pool=True)
    with MessageStore.open(config) as store:
        for number in range(400):
            # All buffers in use means busy: the commit thread needs a moment.
            until(lambda n=number: store.append(make_request(n, queue_id=0)).status.stored)
        assert store.wait_dispatched(timeout=20)
        assert len(read_all(store, "TopicTest", 0)) == 400
    with MessageStore.open(config, background=False) as store:
        assert store.append(make_request(400, queue_id=0)).queue_offset == 400
        assert store.max_offset("TopicTest", 0) == 400


def test_writers_and_readers_at_once(config):
    with MessageStore.open(config) as store:
        stop = threading.Event()
        problems: list[str] = []

        def read() -> None:
            while not stop.is_set():
                for queue_id in range(4):
                    found = store.get("TopicTest", queue_id, 0)
                    for record, offset in zip(found.records, found.queue_offsets, strict=True):
                        if decode_record(record).queue_offset != offset:
                            problems.append(f"queue {queue_id}, offset {offset}")

        def write() -> None:
            for number in range(300):
                store.append(make_request(number))

        readers = [threading.Thread(target=read) for _ in range(2)]
        writers = [threading.Thread(target=write) for _ in range(3)]
        for thread in (*readers, *writers):
            thread.start()
        for writer in writers:
            writer.join()
        stop.set()
        for reader in readers:
            reader.join()

        assert store.wait_dispatched(timeout=20)
        assert problems == []
        assert sum(store.max_offset("TopicTest", queue_id) for queue_id in range(4)) == 900


@pytest.mark.feature("F72", "F79")
def test_cleaning_takes_log_queues_and_index_along(config):
    clock = FakeClock()
    with MessageStore.open(
        config, clock=clock, background=False, disk_ratio=lambda _: 0.5
    ) as store:
        for number in range(600):
            store.append(make_request(number, queue_id=0, keys=f"k{number}"))
            if number % 50 == 0:
                store.tick()
        store.tick()
        store.flush()
        for segment in store._log.segments:
            os.utime(segment.path, (clock.now_ms() / 1000 - 73 * 3600,) * 2)
        last = store._log.segments.last
        os.utime(last.path, (clock.now_ms() / 1000,) * 2)
        index_files = len(list(config.layout().index_directory.iterdir()))

        store.delete_expired_now()

        assert store.min_log_offset == last.base_offset
        low = store.min_offset("TopicTest", 0)
        assert 0 < low < 600
        found = store.get("TopicTest", 0, low)
        assert found.status is GetStatus.FOUND
        assert found.log_offsets[0] >= store.min_log_offset
        assert store.get("TopicTest", 0, low - 1).status is GetStatus.OFFSET_TOO_SMALL
        first_file = config.root / "consumequeue/TopicTest/0/00000000000000000000"
        assert not first_file.exists()
        assert len(list(config.layout().index_directory.iterdir())) < index_files
        assert store.statistics().deleted_segments > 5

    with MessageStore.open(config, background=False) as store:
        assert store.min_offset("TopicTest", 0) == low
        assert store.max_offset("TopicTest", 0) == 600


@pytest.mark.feature("F79")
@pytest.mark.parametrize("adopted", [False, True])
def test_queues_and_index_follow_a_log_whose_store_was_killed_while_cleaning(config, adopted):
    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n, queue_id=0, keys=f"k{n}") for n in range(600)])
    layout = config.layout()
    segments = sorted(layout.commit_log.iterdir())
    for path in segments[:-2]:  # deleted, and then it was killed
        path.unlink()
    layout.abort.touch()
    if adopted:
        layout.snapshot.unlink()
    index_files = len(list(layout.index_directory.iterdir()))

    with MessageStore.open(config, background=False) as store:
        assert store.recovery_report.adopted == adopted
        low = store.min_offset("TopicTest", 0)
        assert store.get("TopicTest", 0, low).log_offsets[0] == store.min_log_offset

    # A Java broker looks for the min offset in the first file of a queue, and only there.
    files = sorted(int(path.name) for path in (config.root / "consumequeue/TopicTest/0").iterdir())
    assert files[0] == low * 20 // config.cq_file_bytes * config.cq_file_bytes
    assert len(list(layout.index_directory.iterdir())) < index_files


@pytest.mark.parametrize("adopted", [False, True])
def test_a_log_of_which_only_an_empty_segment_is_left_goes_on_there(config, adopted):
    segment_bytes = config.segment_bytes
    with MessageStore.open(config, background=False) as store:
        while store.max_log_offset < segment_bytes:
            store.append(make_request(0, queue_id=0))
        count = store.next_queue_offset("TopicTest", 0)
    layout = config.layout()
    # It rolled, the old segment expired, and it was killed before the new one had a record on disk.
    first, last = sorted(layout.commit_log.iterdir())
    first.unlink()
    last.write_bytes(bytes(segment_bytes))
    layout.abort.touch()
    if adopted:
        layout.snapshot.unlink()

    for _ in range(3):
        with MessageStore.open(config, background=False) as store:
            assert store.min_log_offset == store.max_log_offset == segment_bytes
            assert store.flushed_offset == store.dispatched_offset == segment_bytes
            assert store.next_queue_offset("TopicTest", 0) == count - 1  # without the lost record
        layout.abort.touch()
    with MessageStore.open(config, background=False) as store:
        result = store.append(make_request(1, queue_id=0))
        assert result.log_offset == segment_bytes
        store.wait_dispatched()
        assert store.min_offset("TopicTest", 0) == result.queue_offset
        assert store.max_offset("TopicTest", 0) == result.queue_offset + 1


def test_a_deleted_topic_has_no_queues_and_starts_again_at_zero(config):
    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n, f"T{n % 2}", 0) for n in range(40)])
        store.tick()
        store.flush()

        store.delete_topic("T1")

        assert store.max_offset("T1", 0) == 0
        assert store.max_offset("T0", 0) == 20
        assert [
            path for path in (config.root / "consumequeue/T1").rglob("*") if path.is_file()
        ] == []
        assert store.append(make_request(0, "T1", 0)).queue_offset == 0
        store.tick()
        assert store.max_offset("T1", 0) == 1


def test_recovery_is_not_repeated_after_a_kill_right_after_opening(config):
    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n) for n in range(100)])
        store.tick()
    config.layout().snapshot.unlink()

    store = MessageStore.open(config, background=False)
    assert store.recovery_report.adopted
    store._parts.lock.release()  # what a kill leaves: no close, the abort file there

    with MessageStore.open(config, background=False) as again:
        assert not again.recovery_report.adopted
        assert not again.recovery_report.clean


def test_light_queues_fill_beside_the_message_s_own_queue(tmp_path):
    config = config_of(tmp_path, enable_lmq=True, enable_multi_dispatch=True)
    both = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    only_a = {"INNER_MULTI_DISPATCH": "%LMQ%a"}
    for life in range(2):
        with MessageStore.open(config, background=False) as store:
            store.append_many(
                [make_request(n, "T", 0, properties=[both, only_a][n % 2]) for n in range(10)]
            )
            store.wait_dispatched()

            offsets = [store.max_offset(*q) for q in [("T", 0), ("%LMQ%a", 0), ("%LMQ%b", 0)]]
            assert offsets == [10 * (life + 1), 10 * (life + 1), 5 * (life + 1)]
            assert read_all(store, "%LMQ%b", 0)[-1] == make_request(8).body


def test_warm_segments_and_no_read_ahead_work(tmp_path):
    config = config_of(tmp_path, warm_segments=True, read_ahead=False, flush_mode=FlushMode.SYNC)
    with MessageStore.open(config, background=False) as store:
        results = store.append_many([make_request(n, body_bytes=2000) for n in range(20)])
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        assert store.flushed_offset == store.max_log_offset


def test_the_directory_of_a_new_store_survives_a_power_cut(tmp_path):
    class Noting(ForwardingDisk):
        synced: ClassVar[list[Path]] = []

        def sync_directory(self, path):
            self.synced.append(Path(path))
            super().sync_directory(path)

    config = config_of(tmp_path / "a" / "b" / "store")
    MessageStore.open(config, disk=Noting(), background=False).close()
    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(Noting.synced)

    Noting.synced.clear()
    MessageStore.open(config, disk=Noting(), background=False).close()
    assert tmp_path / "a" / "b" not in Noting.synced


def test_an_empty_store_opens_closes_and_opens(config):
    for _ in range(3):
        with MessageStore.open(config, background=False, disk=FaultyDisk()) as store:
            assert store.max_log_offset == 0
            assert store.queues() == []
            store.tick()
