"""What a store tells beside messages: times, and what is taken to be in memory."""

from pathlib import Path

import pytest

from orbitmq.errors import StoreClosedError
from orbitmq.message import QueueType
from orbitmq.store.config import FlushMode, StoreConfig
from orbitmq.store.offline.reader import OfflineStore
from orbitmq.store.store import MessageStore
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock

SIZES = {"segment_bytes": 4 * 1024, "cq_file_bytes": 400, "batch_cq_file_bytes": 460}


def config_of(root: Path, **changes: object) -> StoreConfig:
    return StoreConfig(**{"root": root, **SIZES, **changes})


def test_every_message_has_its_store_time(tmp_path):
    clock = FakeClock()
    types = {"Batch": QueueType.BATCH}
    with MessageStore.open(
        config_of(tmp_path / "store"),
        clock=clock,
        background=False,
        topic_types=lambda t: types.get(t, QueueType.SIMPLE),
    ) as store:
        assert store.earliest_time() == -1
        times = []
        for number in range(30):
            clock.advance(10)
            results = [store.append(make_request(number, t, 0)) for t in ("A", "Batch")]
            times.append(results[0].store_ms)
        store.wait_dispatched()
        for topic in ("A", "Batch"):
            assert [store.store_time(topic, 0, n) for n in range(30)] == times
            assert store.store_time(topic, 0, 30) == -1
            assert store.store_time(topic, 0, -1) == -1
            assert store.store_time(topic, 1, 0) == -1
        assert store.earliest_time() == times[0]


def test_the_earliest_time_is_that_of_the_oldest_segment_that_is_left(tmp_path):
    config = config_of(tmp_path / "store", retention_ms=0, delete_pause_ms=0)
    with MessageStore.open(config, background=False) as store:
        results = [store.append(make_request(n, queue_id=0)) for n in range(60)]
        store.wait_dispatched()
        store.flush()
        store.delete_expired_now()
        first = store.min_log_offset
        assert first > 0
        (oldest,) = [result for result in results if result.log_offset == first]
        assert store.earliest_time() == oldest.store_ms
        assert store.store_time("TopicTest", 0, 0) == -1
        assert store.store_time("TopicTest", 0, oldest.queue_offset) == oldest.store_ms


def test_with_sync_flush_the_earliest_time_is_that_of_something_on_disk(tmp_path):
    config = config_of(tmp_path / "store", flush_mode=FlushMode.SYNC)
    with MessageStore.open(config, background=False) as store:
        result = store.append_nowait(make_request(0))
        assert store.earliest_time() == -1
        store.flush()
        assert store.earliest_time() == result.store_ms


@pytest.mark.feature("F55")
def test_what_lies_in_private_memory_changes_no_file(tmp_path):
    config = config_of(tmp_path / "store", transient_pool=True, transient_pool_size=3)
    segment = tmp_path / "store" / "commitlog" / f"{0:020d}"
    with MessageStore.open(config, background=False) as store:
        result = store.append_nowait(make_request(0))
        before = segment.read_bytes()
        unseen = store.record_at(result.log_offset)
        store.flush()

        assert (before, unseen) == (bytes(4 * 1024), None)
        assert store.record_at(result.log_offset).body in segment.read_bytes()


@pytest.mark.feature("F55")
def test_a_reader_s_mapping_shows_what_is_written_and_cannot_write(tmp_path):
    root = tmp_path / "store"
    with MessageStore.open(config_of(root), background=False) as store:
        store.append(make_request(0))
        data = OfflineStore(root).log.segments[0].data
        unflushed = store.append(make_request(1))

        assert make_request(1).body in data.tobytes()
        assert store.flushed_offset <= unflushed.log_offset
        with pytest.raises(ValueError, match="read-only"):
            data[0] = 1


def test_only_the_end_of_a_long_log_is_taken_to_be_in_memory(tmp_path):
    config = config_of(tmp_path / "store", memory_bytes=10_000, in_memory_ratio=40)
    with MessageStore.open(config, background=False) as store:
        assert store.is_in_memory(0)
        while store.max_log_offset <= 8_000:
            store.append(make_request(0))
        end = store.max_log_offset
        assert store.is_in_memory(end - 4_000)
        assert not store.is_in_memory(end - 4_001)


def test_a_closed_store_tells_no_times(tmp_path):
    store = MessageStore.open(config_of(tmp_path / "store"), background=False)
    store.close()
    for ask in (
        store.earliest_time,
        lambda: store.store_time("T", 0, 0),
        lambda: store.is_in_memory(0),
        lambda: store.next_queue_offset("T", 0),
    ):
        with pytest.raises(StoreClosedError):
            ask()
