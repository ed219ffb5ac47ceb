"""A store whose dispatch somebody else does: what it shows, what it leaves alone, and how it takes over."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from dispatch_job import StandInJob, dispatch_by_job, filled_files, live_files, live_files_of_log
from orbitmq.errors import NotAStoreError, StoreError, StoreLockedError
from orbitmq.files.disk import Disk
from orbitmq.format.kernels import plain
from orbitmq.format.record import decode_record
from orbitmq.message import AppendRequest, GetStatus
from orbitmq.store.config import DispatchMode, StoreConfig
from orbitmq.store.offline.rebuild import rebuild_store
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.store.spark_dispatch.writer import DispatchWriter, NewEpochError
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import delayed_request, make_request, transaction_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.forwarding_disk import ForwardingDisk
from store_parts import until

SIZES = {
    "segment_bytes": 16 * 1024,
    "cq_file_bytes": 400,
    "batch_cq_file_bytes": 460,
    "ext_file_bytes": 1000,
    "index_slots": 50,
    "index_items": 100,
}
TOPICS = {"topicConfigTable": {"Batch": {"attributes": {"queue.type": "BatchCQ"}}}}


def config_of(root: Path, **changes: object) -> StoreConfig:
    return StoreConfig(**{"root": root, "dispatch": DispatchMode.SPARK, **SIZES, **changes})


@pytest.fixture
def config(tmp_path):
    return config_of(tmp_path / "store")


def opened(config: StoreConfig) -> MessageStore:
    return MessageStore.open(config, background=False, clock=FakeClock())


def orders(first: int, count: int) -> list[AppendRequest]:
    return [
        make_request(n, f"Orders{n % 2}", n % 3, keys=f"k{n}") for n in range(first, first + count)
    ]


def bodies(store: MessageStore, topic: str, queue_id: int) -> list[bytes]:
    found, offset = [], store.min_offset(topic, queue_id)
    while offset < store.max_offset(topic, queue_id):
        got = store.get(topic, queue_id, offset)
        found += [decode_record(record).body for record in got.records]
        offset = got.next_offset
    return found


@pytest.mark.feature("P7")
def test_messages_show_when_the_job_has_dispatched_them_and_not_before(config):
    grown = Counter()
    with opened(config) as store:
        store.on_dispatched(lambda numbers: grown.update(map(store.queue_name, numbers.tolist())))
        store.append_many(orders(0, 60))
        store.tick()
        assert store.get("Orders0", 0, 0).status is GetStatus.NO_MESSAGE_IN_QUEUE
        assert not store.query("Orders0", "k0")
        assert store.statistics().dispatch_behind_bytes == store.max_log_offset
        assert not grown

        dispatch_by_job(store)

        assert store.statistics().dispatch_behind_bytes == 0
        assert bodies(store, "Orders0", 0) == [make_request(n).body for n in range(0, 60, 6)]
        (found,) = store.query("Orders1", "k31", exact=True)
        assert decode_record(found).body == make_request(31).body
        assert set(grown) == {(f"Orders{t}", q) for t in range(2) for q in range(3)}


def test_the_store_writes_nothing_that_the_job_is_to_write(config):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        store.tick()
        store.flush()
        assert not filled_files(config.root)
        dispatch_by_job(store)
        written = filled_files(config.root)
        for path in config.root.glob("consumequeue/*/*/*"):
            path.chmod(0o444)

        store.append_many(orders(60, 60))
        store.tick()
        store.flush()

        assert filled_files(config.root) == written
    assert filled_files(config.root) == written


def _fill_all_kinds(store: MessageStore) -> None:
    many = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
    for n in range(150):
        match n % 6:
            case 0:
                request = make_request(n, "Batch", n % 2)
            case 1:
                request = make_request(n, "Light", 0, properties=many)
            case 2:
                request = delayed_request(n, level=n % 4 + 1)
            case 3:
                request = transaction_request(n)
            case _:
                request = make_request(n, keys=f"k{n} both{n % 7}")
        assert store.append(request).status.stored


@pytest.mark.parametrize(
    "settings",
    [{}, {"enable_cq_ext": True}, {"index_enabled": False}],
    ids=["plain", "ext files", "no index"],
)
@pytest.mark.feature("P7")
def test_every_kind_of_queue_gets_the_bytes_of_live_dispatch(tmp_path, settings):
    config = config_of(tmp_path / "store", enable_lmq=True, enable_multi_dispatch=True, **settings)
    for root in (config.root, tmp_path / "live"):
        (root / "config").mkdir(parents=True)
        (root / "config" / "topics.json").write_text(json.dumps(TOPICS))

    with opened(config) as store:
        for _ in range(3):
            _fill_all_kinds(store)
            dispatch_by_job(store)
        assert store.max_offset("%LMQ%b", 0) == 75
        assert bodies(store, "Batch", 0)
    made = filled_files(config.root)

    def fill(live: MessageStore) -> None:
        for _ in range(3):
            _fill_all_kinds(live)
            live.tick()

    assert made == live_files(config, fill, tmp_path / "live", FakeClock())
    kinds = {name.split("/")[0] for name in made}
    assert {"consumequeue", "batchconsumequeue"} <= kinds


def test_a_reopened_store_leaves_to_the_job_what_is_the_job_s(config):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        dispatch_by_job(store)
        written = filled_files(config.root)
        dispatched = store.dispatched_offset
        store.append_many(orders(60, 60))

    with opened(config) as store:
        assert not store.recovery_report.adopted
        assert store.dispatched_offset == dispatched
        assert filled_files(config.root) == written
        assert store.max_offset("Orders0", 0) == 10
        # Queue offsets go on behind what is not dispatched yet.
        assert store.append(orders(120, 1)[0]).queue_offset == 20
        dispatch_by_job(store)
        wanted = [make_request(n).body for n in range(0, 121, 6)]
        assert bodies(store, "Orders0", 0) == wanted


@pytest.mark.parametrize("dispatched", [True, False], ids=["all dispatched", "a rest is left"])
def test_a_killed_store_goes_on_with_what_the_job_did(config, tmp_path, dispatched):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        dispatch_by_job(store)
        if not dispatched:
            store.append_many(orders(60, 60))
        shutil.copytree(config.root, tmp_path / "killed")
        end, done = store.max_log_offset, store.dispatched_offset

    killed = replace(config, root=tmp_path / "killed")
    with opened(killed) as store:
        assert not store.recovery_report.clean
        assert not store.recovery_report.adopted
        assert (store.max_log_offset, store.dispatched_offset) == (end, done)
        dispatch_by_job(store)
        count = 10 if dispatched else 20
        assert len(bodies(store, "Orders0", 0)) == count
        assert store.query("Orders1", "k59", exact=True)
    assert filled_files(killed.root) == live_files_of_log(killed, tmp_path / "live")


class _KilledError(Exception):
    """Stands for the end of the process."""


class _DyingDisk(ForwardingDisk):
    """Lets a process die at a given call that changes something."""

    def __init__(self, calls_left: int) -> None:
        super().__init__(Disk())
        self.calls_left = calls_left

    def _count(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise _KilledError

    def write_at(self, path, fd, position, data):
        self._count()
        super().write_at(path, fd, position, data)

    def rename(self, old, new):
        self._count()
        super().rename(old, new)

    def sync_data(self, path, fd):
        self._count()
        super().sync_data(path, fd)


def _run(root: Path, disk: Disk) -> None:
    with StandInJob(root, disk) as job:
        for _ in range(1000):
            job.round()


@pytest.mark.feature("P7")
def test_a_job_that_dies_at_any_step_leaves_what_the_next_one_completes(config, tmp_path):
    with opened(config) as store:
        store.append_many(orders(0, 90))
        dispatch_by_job(store)
        for life in range(40):
            store.append_many(orders(90 + 30 * life, 30))
            store.tick()
            disk = _DyingDisk(life)
            with pytest.raises(_KilledError):
                _run(config.root, disk)
            store.tick()
            assert store.query("Orders1", "k59", exact=True), "keys of before are found meanwhile"
        dispatch_by_job(store)
        assert store.statistics().dispatch_behind_bytes == 0
        assert store.max_offset("Orders0", 0) == (90 + 40 * 30) // 6
        assert store.query("Orders1", f"k{90 + 40 * 30 - 1}", exact=True)
    assert filled_files(config.root) == live_files_of_log(config, tmp_path / "live")


@pytest.mark.parametrize("behind", [True, False], ids=["behind", "caught up"])
@pytest.mark.feature("P7")
def test_live_dispatch_takes_over_without_a_rebuild(config, tmp_path, behind):
    with opened(config) as store:
        store.append_many(orders(0, 90))
        dispatch_by_job(store)
        if behind:
            store.append_many(orders(90, 30))
        job = StandInJob(config.root)

    live = replace(config, dispatch=DispatchMode.LIVE)
    with opened(live) as store:
        assert not store.recovery_report.adopted
        report = store.recovery_report
        assert (report.start_offset < report.end_offset) is behind
        store.append_many(orders(120, 30))
        store.tick()
        assert len(bodies(store, "Orders0", 0)) == (25 if behind else 20)
        with pytest.raises(NewEpochError):
            job.writer.write([], job.writer.offset)
        with pytest.raises(NotAStoreError, match=r"dispatches itself.*--dispatch spark"):
            DispatchWriter(config.root, plain())
    assert filled_files(config.root) == live_files_of_log(config, tmp_path / "live")


def test_spark_takes_over_a_live_store(config):
    with opened(replace(config, dispatch=DispatchMode.LIVE)) as store:
        store.append_many(orders(0, 90))
    with opened(config) as store:
        assert store.statistics().dispatch_behind_bytes == 0
        assert len(bodies(store, "Orders0", 0)) == 15
        assert store.query("Orders1", "k59", exact=True)
        store.append_many(orders(90, 30))
        assert store.max_offset("Orders0", 0) == 15
        dispatch_by_job(store)
        assert store.max_offset("Orders0", 0) == 20
        assert store.query("Orders1", "k119", exact=True)


def test_units_of_a_part_of_the_log_that_a_power_cut_took_are_cut(config, tmp_path):
    with opened(config) as store:
        store.append_many(orders(0, 30))
        store.flush()
        kept = store.max_log_offset
        store.append_many(orders(30, 30))
        dispatch_by_job(store)
        shutil.copytree(config.root, tmp_path / "cut")
    with (tmp_path / "cut" / "commitlog" / "00000000000000000000").open("r+b") as segment:
        segment.seek(kept)
        segment.write(bytes(16 * 1024 - kept))

    with opened(replace(config, root=tmp_path / "cut")) as store:
        assert store.max_log_offset == store.dispatched_offset == kept
        assert len(bodies(store, "Orders0", 0)) == 5
        assert not store.query("Orders1", "k59", exact=True)
        store.append_many(orders(100, 6))
        dispatch_by_job(store)
        assert len(bodies(store, "Orders0", 0)) == 6
    live = live_files_of_log(replace(config, root=tmp_path / "cut"), tmp_path / "live")
    made = filled_files(tmp_path / "cut")
    # What lies behind the end of an index file that was cut does not count.
    assert {name: made[name] for name in made if not name.startswith("index")} == {
        name: live[name] for name in live if not name.startswith("index")
    }


def test_an_offline_rebuild_voids_what_a_job_knows(config, tmp_path):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        dispatch_by_job(store)
        job = StandInJob(config.root)
        store.append_many(orders(60, 60))

    rebuild_store(config.root, {"maxHashSlotNum": "50", "maxIndexNum": "100"})

    with pytest.raises(NewEpochError):
        job.writer.write([], job.writer.offset)
    with opened(config) as store:
        assert store.statistics().dispatch_behind_bytes == 0
        assert len(bodies(store, "Orders0", 0)) == 20
        store.append_many(orders(120, 6))
        dispatch_by_job(store)
        assert len(bodies(store, "Orders0", 0)) == 21


def test_removed_queue_files_are_made_again_at_the_start(config):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        dispatch_by_job(store)
    shutil.rmtree(config.root / "consumequeue" / "Orders0" / "0")

    with opened(config) as store:
        assert store.recovery_report.adopted
        assert len(bodies(store, "Orders0", 0)) == 10


def test_a_deleted_topic_starts_again_at_zero(config):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        dispatch_by_job(store)
        job = StandInJob(config.root)

        store.delete_topic("Orders0")

        with pytest.raises(NewEpochError):
            job.round()
        assert store.append(orders(60, 1)[0]).queue_offset == 0
        dispatch_by_job(store)
        assert bodies(store, "Orders0", 0) == [make_request(60).body]
        assert len(bodies(store, "Orders1", 1)) == 10


def test_a_topic_stays_until_its_last_messages_are_dispatched(config):
    with opened(config) as store:
        store.append_many(orders(0, 60))
        with pytest.raises(StoreError, match=r"has still to dispatch \d+ bytes"):
            store.delete_topic("Orders0")
        dispatch_by_job(store)
        assert len(bodies(store, "Orders0", 0)) == 10


def test_the_store_deletes_what_leads_to_deleted_segments_and_the_job_goes_on(tmp_path):
    config = config_of(tmp_path / "store", retention_ms=1, clean_start_ms=0, delete_hours=())
    clock = FakeClock()
    with MessageStore.open(config, background=False, clock=clock) as store:
        store.append_many(orders(0, 600))
        dispatch_by_job(store)
        store.flush()
        before = filled_files(config.root)
        with StandInJob(config.root) as job:
            clock.set_now_ms(2**42)
            store.delete_expired_now()
            store.append_many(orders(600, 6))
            store.tick()
            job.round()
            store.tick()
        assert store.min_log_offset > 0
        assert len(filled_files(config.root)) < len(before)
        assert bodies(store, "Orders0", 0)[-1] == make_request(600).body
        assert store.min_offset("Orders0", 0) > 0


def test_threads_follow_by_themselves(config):
    with MessageStore.open(config) as store:
        store.append_many(orders(0, 60))
        with StandInJob(config.root) as job:
            until(lambda: job.round() or job.writer.offset == store.max_log_offset)
            assert store.wait_dispatched(timeout=20)
            assert len(bodies(store, "Orders0", 0)) == 10


def test_two_jobs_and_two_writers_at_once_are_refused(config):
    with opened(config):
        mine, other = Handover(config.root), Handover(config.root)
        with mine.only_job(), pytest.raises(StoreLockedError, match="another `orbitmq spark"):
            other.only_job().__enter__()
        with mine.writing(), pytest.raises(StoreLockedError, match="has its queues in hand"):
            other.writing(wait_ms=0).__enter__()


def test_a_store_closed_in_order_says_so_to_the_job(config):
    with opened(config) as store:
        store.append_many(orders(0, 6))
        end = store.max_log_offset
    shown = Handover(config.root).readable_offset()
    assert shown is not None
    assert (shown.closed, shown.log_offset) == (True, end)
