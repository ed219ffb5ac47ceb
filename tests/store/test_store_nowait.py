"""The store beside an event loop: appends that do not wait, and who is told when."""

import contextlib
import errno
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import numpy as np
import pytest

from orbitmq.errors import StoreError
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.message import AppendResult, AppendStatus, QueueType
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_disk import FaultyDisk

SIZES = {"segment_bytes": 64 * 1024, "cq_file_bytes": 400, "index_slots": 50, "index_items": 100}
SECONDS_MAX = 20


def config_of(root: Path, **changes: object) -> StoreConfig:
    return StoreConfig(**{"root": root, **SIZES, **changes})


@pytest.fixture
def sync_config(tmp_path):
    return config_of(tmp_path / "store", flush_mode=FlushMode.SYNC)


@pytest.fixture
def config(tmp_path):
    return config_of(tmp_path / "store")


class Told:
    """A listener that can be waited for."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self._changed = threading.Condition()

    def __call__(self, *values: object) -> None:
        with self._changed:
            self.calls.append(values[0] if values else None)
            self._changed.notify_all()

    def wait_for(self, condition) -> bool:
        with self._changed:
            return self._changed.wait_for(condition, SECONDS_MAX)


def batch_of(count: int, topic: str = "TopicTest"):
    messages = [ClientMessage(b"b%d" % n, b"", 0) for n in range(count)]
    return make_request(0, topic, 1, body=encode_client_batch(messages))


@pytest.mark.feature("F70")
def test_appends_that_do_not_wait_are_synced_and_told(sync_config):
    told = Told()
    with MessageStore.open(sync_config) as store:
        store.on_flushed(told)
        one = store.append_nowait(make_request(0))
        many = store.append_many_nowait([make_request(n) for n in range(1, 9)])
        batch = store.append_client_batch_nowait(batch_of(3))
        results = [one, *many, *batch]
        assert {result.status for result in results} == {AppendStatus.PUT_OK}
        end = results[-1].log_offset + results[-1].size

        assert told.wait_for(lambda: store.flushed_offset >= end)
        assert store.failure is None


def test_an_append_that_does_not_wait_returns_while_the_disk_hangs(sync_config, monkeypatch):
    disk_works = threading.Event()
    told = Told()
    with MessageStore.open(sync_config) as store:
        store.append(make_request(0))
        flushed = store.flushed_offset
        flush = type(store._log.segments.last).flush

        def hang(segment, least_pages=0):
            assert disk_works.wait(SECONDS_MAX)
            return flush(segment, least_pages)

        monkeypatch.setattr(type(store._log.segments.last), "flush", hang)
        store.on_flushed(told)
        results = [store.append_nowait(make_request(n)) for n in range(1, 50)]
        assert store.flushed_offset == flushed
        assert not told.calls
        disk_works.set()
        end = results[-1].log_offset + results[-1].size
        assert told.wait_for(lambda: store.flushed_offset >= end)
        # All that had gathered went with one more sync: group commit.
        assert len(told.calls) <= 2


def test_one_who_waits_and_one_who_does_not_share_the_flush(sync_config):
    with MessageStore.open(sync_config) as store:
        first = store.append_nowait(make_request(0))
        second = store.append(make_request(1))
        assert second.status is AppendStatus.PUT_OK
        assert store.flushed_offset >= first.log_offset + first.size


def test_a_failed_sync_is_told_and_appends_are_refused(sync_config):
    disk = FaultyDisk()
    told = Told()
    store = MessageStore.open(sync_config, disk=disk)
    try:
        store.append(make_request(0))
        flushed = store.flushed_offset
        store.on_flushed(told)
        disk.fail("sync_data", "*/commitlog/*", errno.EIO, times=None)
        store.append_nowait(make_request(1))

        assert told.wait_for(lambda: store.failure is not None and told.calls)
        assert store.flushed_offset == flushed
        refused = store.append_nowait(make_request(2))
        assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
        assert "commitlog" in str(store.failure)
    finally:
        with pytest.raises(StoreError, match="not closed in order"):
            store.close()


def one(store: MessageStore) -> AppendResult:
    return store.append_nowait(make_request(1))


def with_care(store: MessageStore) -> AppendResult:
    return store.append_nowait(make_request(1, "AnotherTopic"))


def many(store: MessageStore) -> AppendResult:
    results = store.append_many_nowait([make_request(number) for number in range(1, 4)])
    assert len({result.status for result in results}) == 1
    return results[0]


def batch(store: MessageStore) -> AppendResult:
    return store.append_client_batch_nowait(batch_of(2))[0]


@pytest.mark.parametrize("append", [one, with_care, many, batch])
def test_a_write_that_fails_is_refused_and_so_is_what_follows(sync_config, append):
    """With sync flush the log is written by calls that can fail."""
    disk = FaultyDisk()
    store = MessageStore.open(sync_config, disk=disk)
    try:
        store.append(make_request(0))
        written = store.max_log_offset
        disk.fail("write_at", "*/commitlog/*", errno.EIO, written_bytes=20)
        refused = append(store)
        assert refused.status is AppendStatus.SERVICE_NOT_AVAILABLE
        assert "could not be written" in refused.reason
        assert store.max_log_offset == written
        assert "commitlog" in str(store.failure)
        assert one(store).status is AppendStatus.SERVICE_NOT_AVAILABLE
    finally:
        with contextlib.suppress(StoreError):
            store.close()
    with MessageStore.open(sync_config) as again:
        assert again.max_log_offset == written
        assert again.append(make_request(0)).queue_offset == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_listeners_hear_which_queues_have_grown(config, compiled):
    told = Told()
    types = {"Batch": QueueType.BATCH}
    with MessageStore.open(
        config, topic_types=lambda t: types.get(t, QueueType.SIMPLE), background=compiled
    ) as store:
        if compiled:
            store.wait_kernels()
        assert store.queue_number("A", 0) == -1
        store.on_dispatched(told)
        store.append_many_nowait(
            [make_request(n, topic, n % 2) for n in range(8) for topic in ("A", "B")]
        )
        store.append_nowait(make_request(8, "Batch", 3))
        store.wait_dispatched(timeout=SECONDS_MAX)
        names = [("A", 0), ("A", 1), ("B", 0), ("B", 1), ("Batch", 3)]
        numbers = {store.queue_number(*name): name for name in names}
        assert -1 not in numbers
        assert {store.queue_name(number) for number in numbers} == set(names)
        # The waiting reader above may be woken just before the listeners are called.
        assert told.wait_for(
            lambda: {number for call in told.calls for number in call.tolist()} == set(numbers)
        )
        for call in told.calls:
            assert call.dtype == np.int32
            assert len(set(call.tolist())) == len(call)

        store.append_nowait(make_request(9, "B", 1))
        store.wait_dispatched(timeout=SECONDS_MAX)
        assert told.wait_for(lambda: told.calls[-1].tolist() == [store.queue_number("B", 1)])


def test_light_queues_are_among_those_that_have_grown(tmp_path):
    config = config_of(tmp_path / "store", enable_lmq=True, enable_multi_dispatch=True)
    told = Told()
    with MessageStore.open(config, background=False) as store:
        store.on_dispatched(told)
        request = make_request(0, "A", 0, properties={"INNER_MULTI_DISPATCH": "%LMQ%x,%LMQ%y"})
        assert store.append_nowait(request).status is AppendStatus.PUT_OK
        store.wait_dispatched()
        grown = {store.queue_name(number)[0] for number in told.calls[0].tolist()}
        assert grown == {"A", "%LMQ%x", "%LMQ%y"}


def test_what_was_dispatched_can_be_read_when_a_listener_is_called(config):
    seen = []
    with MessageStore.open(config, background=False) as store:
        store.on_dispatched(lambda numbers: seen.append(store.max_offset("TopicTest", 0)))
        store.append_nowait(make_request(0, queue_id=0))
        store.wait_dispatched()
        store.append_nowait(make_request(1, queue_id=0))
        store.wait_dispatched()
    assert seen == [1, 2]


def test_a_listener_that_fails_does_not_stop_dispatch(config, caplog):
    def fail(numbers):
        raise ValueError("a bug")

    with MessageStore.open(config) as store:
        store.on_dispatched(fail)
        store.append_nowait(make_request(0, queue_id=0))
        assert store.wait_dispatched(timeout=SECONDS_MAX)
    assert "listener" in caplog.text


def test_messages_without_a_queue_are_told_to_nobody(config):
    told = Told()
    with MessageStore.open(config, background=False) as store:
        store.on_dispatched(told)
        store.append_nowait(make_request(0, sys_flag=4))  # a half message
        store.wait_dispatched()
        assert not told.calls


def test_a_deleted_queue_that_comes_again_has_its_number(config):
    with MessageStore.open(config, background=False) as store:
        store.append_many([make_request(n, topic, 0) for n, topic in enumerate("AABB")])
        store.wait_dispatched()
        numbers = store.queue_number("A", 0), store.queue_number("B", 0)
        store.delete_topic("A")
        assert store.next_queue_offset("A", 0) == 0
        assert store.append_nowait(make_request(5, "A", 0)).queue_offset == 0
        store.wait_dispatched()
        assert (store.queue_number("A", 0), store.queue_number("B", 0)) == numbers
        assert store.max_offset("A", 0) == 1


def test_the_next_queue_offset_counts_what_is_not_dispatched(config):
    with MessageStore.open(config, background=False) as store:
        assert store.next_queue_offset("TopicTest", 0) == 0
        for number in range(3):
            store.append_nowait(make_request(number, queue_id=0))
        assert store.next_queue_offset("TopicTest", 0) == 3
        assert store.max_offset("TopicTest", 0) == 0
    with MessageStore.open(config, background=False) as store:
        assert store.next_queue_offset("TopicTest", 0) == 3


def test_the_first_segment_can_be_made_ahead(config):
    with MessageStore.open(config, background=False) as store:
        store.prepare()
        store.tick()
        ready = store._log.allocator.ready_offsets
        assert ready[0] == 0
        assert store.append_nowait(make_request(0)).log_offset == 0
        store.prepare()  # there is one: nothing to do
        assert 0 not in store._log.allocator.ready_offsets
    with MessageStore.open(config) as store:
        store.prepare()
        assert store.max_offset("TopicTest", 0) == 1


# Kernels


def test_compiled_kernels_wait_for_traffic_if_told_so(tmp_path):
    config = config_of(tmp_path / "store", plain_records=50)
    with MessageStore.open(config) as store:
        store.append_many([make_request(n) for n in range(49)])
        store.wait_dispatched(timeout=SECONDS_MAX)
        assert store._parts.kernels.name == "plain"
        assert store._background._kernel_thread is None
        store.append(make_request(49))
        store.wait_dispatched(timeout=SECONDS_MAX)
        store.wait_kernels()
        assert store._parts.kernels.name == "compiled"


def test_compiled_kernels_can_be_asked_for(tmp_path):
    with MessageStore.open(config_of(tmp_path / "store", plain_records=1000)) as store:
        store.append(make_request(0))
        store.wait_kernels()
        assert store._parts.kernels.name == "compiled"
        store.append(make_request(1))
        assert store.wait_dispatched(timeout=SECONDS_MAX)


def test_kernels_that_traffic_and_somebody_ask_for_at_once_come_once(tmp_path):
    for number in range(20):
        config = config_of(tmp_path / f"store{number}", plain_records=1)
        with MessageStore.open(config) as store:
            store.append_nowait(make_request(0))
            store.wait_kernels()
            assert store._parts.kernels.name == "compiled"
            assert store.wait_dispatched(timeout=SECONDS_MAX)


def test_an_idle_store_does_not_load_the_compiler(tmp_path):
    script = """
        import sys
        from pathlib import Path
        from orbitmq.store.config import StoreConfig
        from orbitmq.store.store import MessageStore
        from orbitmq.testing.builders import make_request
        config = StoreConfig(root=Path(sys.argv[1]), plain_records=2000, segment_bytes=65536)
        for _ in range(2):  # the second time it recovers
            with MessageStore.open(config) as store:
                store.append(make_request(0, keys="k"))
                assert store.wait_dispatched(timeout=20)
                assert store.query("TopicTest", "k")
        assert "numba" not in sys.modules
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "store")]
    subprocess.run(command, check=True, timeout=60)


def test_listeners_that_fail_stop_nothing(sync_config, caplog):
    def fail(*_: object) -> None:
        raise RuntimeError("the event loop is closed")

    told = Told()
    with MessageStore.open(sync_config) as store:
        for listener in (fail, told):
            store.on_flushed(listener)
        result = store.append_nowait(make_request(0))
        assert told.wait_for(lambda: store.flushed_offset >= result.log_offset + result.size)
        assert store.failure is None
        assert store.append(make_request(1)).status is AppendStatus.PUT_OK
    assert "a listener failed" in caplog.text
