"""The service that keeps dispatch close behind the log."""

import errno
import threading
from pathlib import Path

import pytest

from orbitmq.store import dispatch_service
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from queue_world import LogBuilder, World, make_world, small_layout


def _world(root: Path, builder: LogBuilder, **options: object) -> World:
    layout = small_layout(root, segment_bytes=builder.segment_bytes)
    return make_world(layout, builder.log(), **options)  # type: ignore[arg-type]


@pytest.mark.feature("F14")
def test_units_and_keys_appear_without_any_reader_and_the_lag_goes_to_zero(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0, keys="k") for n in range(100))
    world = _world(tmp_path, builder)
    log, end = world.log, builder.end
    log.end = 0
    assert world.service.behind_bytes == 0
    world.service.start()

    log.end = builder.records[50][0]
    world.service.notify()
    assert world.service.wait_dispatched(log.end, 5000)
    assert world.queues.next_offset(0) == 50
    log.end = end
    assert world.service.behind_bytes > 0
    world.service.notify()
    assert world.service.wait_dispatched(end, 5000)

    assert world.service.behind_bytes == 0
    assert world.queues.next_offset(0) == 100
    assert len(world.index.query("T", "k", 200, 0, 2**63 - 1)) == 100
    assert world.service.stop()


def test_stopping_dispatches_the_rest_first(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0) for n in range(100))
    world = _world(tmp_path, builder)
    end, world.log.end = world.log.end, 0
    others = set(threading.enumerate())  # brokers of other tests may have such a thread too
    world.service.start()
    world.log.end = end

    assert world.service.stop()

    assert world.queues.next_offset(0) == 100
    assert set(threading.enumerate()) <= others


def test_waiting_ends_with_its_time(tmp_path: Path) -> None:
    world = _world(tmp_path, LogBuilder(8192))

    assert not world.service.wait_dispatched(1000, 10)
    assert world.service.wait_dispatched(0, 0)


def test_a_record_larger_than_a_chunk_is_dispatched_whole(tmp_path: Path) -> None:
    builder = LogBuilder(1 << 16)
    for n, size in enumerate((10, 9000, 10, 20_000, 10)):
        builder.add(make_request(n, "T", 0, body_bytes=size))
    world = _world(tmp_path, builder)
    service = DispatchService(
        world.log, world.dispatcher, world.dispatcher._kernels, start=0, chunk_bytes=300
    )

    assert service.dispatch_now() == 5
    assert service.dispatched_offset == builder.end


def test_a_record_that_is_only_half_visible_waits(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0) for n in range(3))
    world = _world(tmp_path, builder)
    world.log.end = builder.records[2][0] + 5

    assert world.service.dispatch_now() == 2
    assert world.service.dispatch_now() == 0
    world.log.end = builder.end
    assert world.service.dispatch_now() == 1


def test_dispatch_jumps_over_a_deleted_start_and_over_bytes_that_are_no_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    builder = LogBuilder(2048).add_all(make_request(n, "T", 0, body_bytes=50) for n in range(40))
    world = _world(tmp_path, builder)
    world.log.drop_first()
    base, segment = world.log._segments[0]
    damaged = [n for n, record in enumerate(builder.records) if record[0] > base][2]
    at = builder.records[damaged][0] - base
    segment[at + 4 : at + 8] = 0

    world.service.dispatch_now()

    assert world.service.dispatched_offset == builder.end
    assert f"log offset {base + at}: no valid record" in caplog.text
    live = [record[0] for record in builder.records if record[0] >= base]
    assert world.queues.next_offset(0) == 40
    assert world.queues.min_offset(0) == 40 - len(live)


def test_a_failing_disk_is_tried_again_until_it_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch_service, "RETRY_MS", 1)
    monkeypatch.setattr(dispatch_service, "RETRIES", 3)
    disk = FaultyDisk()
    builder = LogBuilder(1 << 18).add_all(make_request(n, "T", 0, unique=False) for n in range(500))
    errors: list[Exception] = []
    world = _world(tmp_path, builder, disk=disk)
    disk.fail("write_at", "*/consumequeue/*", errno.EIO, times=6)
    service = DispatchService(
        world.log,
        world.dispatcher,
        world.dispatcher._kernels,
        start=0,
        on_error=errors.append,
    )

    service.start()
    assert service.wait_dispatched(builder.end, 10_000)
    assert service.stop()

    assert len(errors) == 1
    assert world.queues.next_offset(0) == 500
    assert world.queues.counts.conflicts == 0


def test_rounds_that_nobody_watches_take_their_time_unless_somebody_comes(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0) for n in range(20))
    world = _world(tmp_path, builder)
    end, world.log.end = world.log.end, 0
    clock = FakeClock()
    service = DispatchService(
        world.log, world.dispatcher, world.service._kernels, start=0, clock=clock
    )
    service.watch(lambda: False)
    service.start()
    world.log.end = end
    service.notify()
    assert world.queues.numbers() == []  # time stands still

    assert service.wait_dispatched(end, 5000)

    assert world.queues.next_offset(0) == 20
    assert service.stop()


def test_catching_up_takes_little_and_never_waits(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0) for n in range(20))
    world = _world(tmp_path, builder)

    assert not world.service.catch_up(world.service.behind_bytes - 1)
    with world.service._running:
        assert not world.service.catch_up(1 << 20)
    assert world.service.catch_up(1 << 20)

    assert world.queues.next_offset(0) == 20
    assert not world.service.catch_up(1 << 20)


def test_a_round_that_somebody_takes_over_leaves_the_thread_asleep(tmp_path: Path) -> None:
    builder = LogBuilder(8192).add_all(make_request(n, "T", 0) for n in range(20))
    service = _world(tmp_path, builder).service
    service.offer(lambda: True)

    service.notify()
    assert not service._wake.is_set()
    service.wake_now()  # whoever took it over could not do it

    assert service._wake.is_set()
