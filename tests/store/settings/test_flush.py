"""Flush, commit and queue flush as a broker.conf says, by a fake clock."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest

from conf_store import ConfStore, request_of, wires
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.message import AppendStatus
from orbitmq.store.service import Service
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from store_parts import until

PAGE = 4096
FIRST = "commitlog/00000000000000000000"


@wires("flushIntervalCommitLog", "flushCommitLogLeastPages", "flushCommitLogThoroughInterval")
@pytest.mark.feature("F65", "F67")
@pytest.mark.parametrize(
    ("given", "size", "expected_ms"),
    [
        ({}, 4 * PAGE, 500),
        ({}, 4 * PAGE - 1, 10_000),
        ({"flushIntervalCommitLog": 300}, 4 * PAGE, 300),
        ({"flushCommitLogLeastPages": 2}, 2 * PAGE, 500),
        ({"flushCommitLogLeastPages": 2}, 2 * PAGE - 1, 10_000),
        ({"flushCommitLogLeastPages": 0}, 200, 500),
        ({"flushCommitLogThoroughInterval": 3000}, 200, 3000),
    ],
)
def test_the_log_is_synced_when_enough_pages_or_enough_time_have_gathered(
    tmp_path, given, size, expected_ms
):
    with ConfStore(tmp_path, given) as case:
        case.append(request_of(size))
        case.disk.forget()

        flushed_ms = case.first_time(lambda: case.store.flushed_offset, step_ms=100, last_ms=12_000)

        assert flushed_ms == expected_ms
        assert case.store.flushed_offset == size
        assert [call.at_ms for call in case.disk.seen("sync_data", FIRST)] == [expected_ms]


@wires(
    "transientStorePoolEnable",
    "commitIntervalCommitLog",
    "commitCommitLogLeastPages",
    "commitCommitLogThoroughInterval",
)
@pytest.mark.feature("F60", "F66")
@pytest.mark.parametrize(
    ("given", "size", "expected_ms"),
    [
        ({}, 200, 200),
        ({"commitCommitLogThoroughInterval": 1000}, 4 * PAGE, 200),
        ({"commitCommitLogThoroughInterval": 1000}, 4 * PAGE - 1, 1000),
        ({"commitIntervalCommitLog": 50}, 4 * PAGE, 50),
        ({"commitIntervalCommitLog": 50}, 4 * PAGE - 1, 200),
        (
            {"commitCommitLogThoroughInterval": 1000, "commitCommitLogLeastPages": 2},
            2 * PAGE,
            200,
        ),
    ],
)
def test_a_transient_buffer_is_committed_when_enough_pages_or_enough_time_have_gathered(
    tmp_path, given, size, expected_ms
):
    with ConfStore(tmp_path, {"transientStorePoolEnable": True, **given}) as case:
        result = case.store.append(request_of(size))
        assert result.status is AppendStatus.PUT_OK
        case.disk.forget()

        seen_ms = case.first_time(lambda: case.store.record_at(0), step_ms=50, last_ms=2000)

        assert seen_ms == expected_ms
        written = case.disk.seen("write_at", FIRST)
        assert [(call.at_ms, call.length) for call in written] == [(expected_ms, size)]


@pytest.mark.feature("F60")
def test_a_flush_that_is_asked_for_brings_a_transient_buffer_to_the_disk(tmp_path):
    with ConfStore(tmp_path, {"transientStorePoolEnable": True}) as case:
        result = case.store.append(request_of(200))
        assert case.store.flushed_offset == 0

        case.store.flush()

        assert case.store.flushed_offset == result.size
        assert case.disk.seen("sync_data", FIRST)


@wires("transientStorePoolEnable")
def test_without_a_transient_pool_a_message_is_in_its_file_at_once(tmp_path):
    with ConfStore(tmp_path) as case:
        case.store.append(request_of(200))

        assert case.store.record_at(0) is not None


@wires("transientStorePoolSize")
@pytest.mark.parametrize(("given", "count"), [({}, 5), ({"transientStorePoolSize": 2}, 2)])
def test_there_are_so_many_transient_buffers_and_then_the_disk_is_too_slow(tmp_path, given, count):
    one_per_segment = request_of(40 * 1024)
    with ConfStore(tmp_path, {"transientStorePoolEnable": True, **given}) as case:
        results = [case.store.append(one_per_segment) for _ in range(count + 1)]

        statuses = [result.status for result in results]
        assert statuses == [AppendStatus.PUT_OK] * count + [AppendStatus.OS_PAGE_CACHE_BUSY]


@wires("flushDiskType")
@pytest.mark.feature("F67")
def test_only_sync_flush_has_a_message_on_disk_before_it_answers(tmp_path):
    behind = {}
    for mode in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        folder = tmp_path / mode
        folder.mkdir()
        with ConfStore(folder, {"flushDiskType": mode}) as case:
            case.store.append(make_request(0))
            behind[mode] = case.store.max_log_offset - case.store.flushed_offset

    with ConfStore(tmp_path) as case:
        case.store.append(make_request(0))
        behind["default"] = case.store.max_log_offset - case.store.flushed_offset

    assert behind["SYNC_FLUSH"] == 0
    assert behind["ASYNC_FLUSH"] == behind["default"] > 0


@wires("transientStorePoolEnable")
@pytest.mark.feature("F120")
@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"flushDiskType": "SYNC_FLUSH"}, "flushDiskType=SYNC_FLUSH"),
        ({"brokerRole": "SLAVE", "brokerId": "1"}, "brokerRole=SLAVE"),
        (
            {"brokerRole": "SLAVE", "brokerId": "1", "flushDiskType": "SYNC_FLUSH"},
            "flushDiskType=SYNC_FLUSH",
        ),
    ],
)
def test_without_async_flush_on_a_primary_the_pool_is_not_used_and_the_start_says_so(
    tmp_path, caplog, given, reason
):
    with ConfStore(tmp_path, {"transientStorePoolEnable": True, **given}) as case:
        (warning,) = [r for r in caplog.records if "transientStorePoolEnable" in r.getMessage()]

        assert warning.levelname == "WARNING"
        assert reason in warning.getMessage()
        assert case.store.statistics().free_buffers is None


@pytest.mark.feature("F120")
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_async_flush_on_a_primary_uses_the_pool_without_a_word(tmp_path, caplog, role):
    given = {"transientStorePoolEnable": True, "brokerRole": role}
    with ConfStore(tmp_path, given) as case:
        assert case.store.statistics().free_buffers == 5
        assert "transientStorePoolEnable" not in caplog.text


@pytest.mark.feature("F120")
def test_sync_flush_beside_an_unused_pool_is_on_disk_before_it_answers(tmp_path):
    given = {"flushDiskType": "SYNC_FLUSH", "transientStorePoolEnable": True}
    with ConfStore(tmp_path, given) as case:
        result = case.store.append(make_request(0))

        assert result.status is AppendStatus.PUT_OK
        assert case.store.flushed_offset == result.size
        assert (case.root / FIRST).read_bytes()[: result.size].endswith(b"\x02")


@wires("syncFlushTimeout")
@pytest.mark.parametrize(
    ("given", "sync_ms", "status"),
    [
        ({}, 5000, AppendStatus.PUT_OK),
        ({}, 5001, AppendStatus.FLUSH_DISK_TIMEOUT),
        ({"syncFlushTimeout": 200}, 200, AppendStatus.PUT_OK),
        ({"syncFlushTimeout": 200}, 201, AppendStatus.FLUSH_DISK_TIMEOUT),
    ],
)
def test_a_sync_that_takes_too_long_is_told(tmp_path, monkeypatch, given, sync_ms, status):
    with ConfStore(tmp_path, {"flushDiskType": "SYNC_FLUSH", **given}) as case:
        case.append(make_request(0))
        sync = case.disk.sync_data

        def slow_sync(*args: object) -> None:
            case.clock.advance(sync_ms)
            sync(*args)

        monkeypatch.setattr(case.disk, "sync_data", slow_sync)

        assert case.store.append(make_request(1)).status is status


# The threads, which do the same as `tick`


class WatchedClock(FakeClock):
    """A clock that remembers for how long each thread wants to wait."""

    def __init__(self) -> None:
        super().__init__()
        self.intervals: dict[str, float] = {}

    def wait(self, event: threading.Event, milliseconds: float) -> bool:
        self.intervals[threading.current_thread().name] = milliseconds
        return super().wait(event, milliseconds)


@wires("flushIntervalCommitLog", "commitIntervalCommitLog", "flushIntervalConsumeQueue")
@pytest.mark.feature("F32", "F65", "F66")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"flush": 500, "flush-queues": 250, "clean": 1000}),
        ({"transientStorePoolEnable": True}, {"commit": 200}),
        ({"transientStorePoolEnable": True, "commitIntervalCommitLog": 70}, {"commit": 70}),
        ({"flushIntervalCommitLog": 300}, {"flush": 300}),
        ({"flushIntervalConsumeQueue": 4000}, {"flush-queues": 1000}),
    ],
)
def test_threads_wait_for_their_intervals(tmp_path, given, expected):
    clock = WatchedClock()
    with ConfStore(tmp_path, given, clock=clock, background=True):
        threads = {f"orbitmq-{name}": interval_ms for name, interval_ms in expected.items()}
        until(lambda: threads.keys() <= clock.intervals.keys())

        assert {name: clock.intervals[name] for name in threads} == threads


@pytest.mark.feature("F65")
def test_the_flush_thread_syncs_when_its_interval_is_over(tmp_path):
    clock = WatchedClock()
    with ConfStore(tmp_path, clock=clock, background=True) as case:
        until(lambda: "orbitmq-flush" in clock.intervals)
        case.store.append(request_of(4 * PAGE))

        def synced() -> bool:
            clock.advance(100)
            return case.store.flushed_offset == 4 * PAGE

        until(synced)
        (sync,) = [call for call in case.disk.seen("sync_data", FIRST) if call.length]
        assert sync.at_ms >= 500


@pytest.fixture
def woken(monkeypatch) -> Callable[[], Counter[str]]:
    """The background services that were woken since the last look, by name."""
    names: list[str] = []
    monkeypatch.setattr(Service, "wake", lambda service: names.append(service.name))

    def look() -> Counter[str]:
        seen = Counter(names)
        names.clear()
        return seen

    return look


@wires(
    "flushCommitLogTimed",
    "wakeFlushWhenPutMessage",
    "wakeCommitWhenPutMessage",
    "transientStorePoolEnable",
)
@pytest.mark.feature("F65", "F66")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"wakeFlushWhenPutMessage": True}, {}),  # a timed thread sleeps out its interval
        ({"flushCommitLogTimed": False}, {}),
        ({"flushCommitLogTimed": False, "wakeFlushWhenPutMessage": True}, {"flush": 1}),
        ({"flushDiskType": "SYNC_FLUSH"}, {"flush": 1}),
        ({"transientStorePoolEnable": True}, {"commit": 1}),
        ({"transientStorePoolEnable": True, "wakeCommitWhenPutMessage": False}, {}),
        (
            {
                "transientStorePoolEnable": True,
                "flushCommitLogTimed": False,
                "wakeFlushWhenPutMessage": True,
            },
            {"commit": 1},
        ),
    ],
)
def test_an_append_wakes_the_threads_that_its_settings_name(tmp_path, woken, given, expected):
    with ConfStore(tmp_path, given) as case:
        case.store.append_nowait(make_request(0))

        assert woken() == expected


@wires("flushCommitLogTimed")
@pytest.mark.feature("F66")
@pytest.mark.parametrize(("timed", "expected"), [(False, {"flush": 1}), (True, {})])
def test_a_commit_wakes_a_flush_thread_that_is_not_timed(tmp_path, woken, timed, expected):
    given = {"transientStorePoolEnable": True, "flushCommitLogTimed": timed}
    with ConfStore(tmp_path, given) as case:
        case.store.append(make_request(0))
        woken()

        case.clock.advance(200)
        case.store.tick()

        assert woken() == expected


@wires(
    "flushIntervalConsumeQueue",
    "flushConsumeQueueLeastPages",
    "flushConsumeQueueThoroughInterval",
)
@pytest.mark.feature("F32", "F67")
@pytest.mark.parametrize(
    ("given", "units", "expected_ms"),
    [
        ({}, 410, 1000),  # 410 units of 20 bytes reach over two pages
        ({}, 409, 60_000),
        ({"flushIntervalConsumeQueue": 300}, 410, 300),
        ({"flushConsumeQueueLeastPages": 1}, 205, 1000),
        ({"flushConsumeQueueLeastPages": 1}, 204, 60_000),
        ({"flushConsumeQueueThoroughInterval": 5000}, 1, 5000),
    ],
)
def test_a_queue_is_synced_when_enough_pages_or_enough_time_have_gathered(
    tmp_path, given, units, expected_ms
):
    one_file = {"mappedFileSizeConsumeQueue": 6_000_000}
    with ConfStore(tmp_path, {**one_file, **given}) as case:
        case.append(*[request_of(150)] * units)
        case.disk.forget()

        def synced() -> object:
            return case.disk.seen("sync_data", "consumequeue")

        assert case.first_time(synced, step_ms=100, last_ms=61_000) == expected_ms


@pytest.mark.feature("F32")
def test_after_a_thorough_flush_of_the_queues_snapshot_and_then_checkpoint_follow(tmp_path):
    with ConfStore(tmp_path) as case:
        case.append(*[make_request(n) for n in range(30)])
        case.clock.advance(59_000)
        case.store.tick()
        case.disk.forget()

        case.clock.advance(1_000)
        case.store.tick()

        order = [
            (call.operation, call.path.split("/")[0])
            for call in case.disk.calls
            if call.operation in ("sync_data", "rename")
        ]
        snapshot = order.index(("rename", "orbitmq.snapshot"))
        assert {folder for operation, folder in order[:snapshot] if operation == "sync_data"} >= {
            "consumequeue",
            "index",
        }
        assert order.index(("sync_data", "checkpoint")) > snapshot
        extension = decode_checkpoint((case.root / "checkpoint").read_bytes()).extension
        assert extension is not None
        assert extension.dispatched_offset == case.store.max_log_offset
