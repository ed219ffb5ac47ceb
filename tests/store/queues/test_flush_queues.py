"""Flush rounds of queues and index, by a fake clock."""

import errno
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import StoreFailedError, StoreIOError
from orbitmq.files.disk import Disk
from orbitmq.format.checkpoint import Extension
from orbitmq.format.checkpoint import decode as decode_checkpoint
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.index.load import load_index_states
from orbitmq.store.queues.flush import QueueFlusher
from orbitmq.store.queues.load import check_states, load_states
from orbitmq.store.service import PageSchedule
from orbitmq.store.snapshot import SnapshotFile
from orbitmq.testing.builders import make_request
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from queue_world import LogBuilder, World, make_world, small_layout


@dataclass
class Store:
    world: World
    clock: FakeClock
    flusher: QueueFlusher
    checkpoint: CheckpointFile
    snapshot: SnapshotFile


def _store(
    root: Path,
    builder: LogBuilder,
    *,
    disk: Disk | None = None,
    generation: int = 0,
    **options: object,
) -> Store:
    clock = FakeClock(1_700_000_100_000)
    disk = disk or Disk()
    layout = small_layout(root, segment_bytes=builder.segment_bytes, cq_file_bytes=20_000)
    world = make_world(layout, builder.log(), clock=clock, disk=disk, **options)  # type: ignore[arg-type]
    checkpoint = CheckpointFile(layout.checkpoint, disk)
    snapshot = SnapshotFile(layout.snapshot, disk)
    flusher = QueueFlusher(
        StoreConfig(root=root),
        world.dispatcher,
        checkpoint,
        snapshot,
        clock,
        dispatched_offset=lambda: world.service.dispatched_offset,
        log_end=world.log.visible_offset,
    )
    flusher.generation = generation
    return Store(world, clock, flusher, checkpoint, snapshot)


def _log(count: int, **request: object) -> LogBuilder:
    requests = (make_request(n, "T", 0, body_bytes=10, **request) for n in range(count))  # type: ignore[arg-type]
    return LogBuilder(1 << 18).add_all(requests)


@pytest.mark.feature("F32")
def test_rounds_come_every_second_and_a_thorough_one_every_minute(tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path)
    schedule = PageSchedule(
        0,
        config.queue_flush_interval_ms,
        config.queue_flush_least_pages,
        config.queue_flush_thorough_ms,
    )

    rounds = [(now, schedule.due(now)) for now in range(0, 130_000, 500)]

    due = {now: pages for now, pages in rounds if pages is not None}
    assert sorted(due) == list(range(1000, 130_000, 1000))
    assert [now for now, pages in due.items() if pages == 0] == [60_000, 120_000]
    assert {pages for now, pages in due.items() if now % 60_000} == {2}


@pytest.mark.feature("F32")
def test_the_flushed_position_follows_and_the_checkpoint_is_written_after_a_thorough_flush(
    tmp_path: Path,
) -> None:
    builder = _log(500, unique=False)
    store = _store(tmp_path, builder)
    queues, log = store.world.queues, store.world.log
    log.end = builder.records[250][0]
    store.world.service.dispatch_now()

    assert not store.flusher.tick()
    store.clock.advance(1000)
    assert store.flusher.tick()
    assert queues.state.flushed[0] == 0  # 5000 bytes: only one page more than flushed
    log.end = builder.end
    store.world.service.dispatch_now()
    store.clock.advance(1000)
    store.flusher.tick()
    assert queues.state.flushed[0] == 500
    assert not (tmp_path / "checkpoint").exists()

    store.clock.advance(58_000)
    store.flusher.tick()

    page = decode_checkpoint((tmp_path / "checkpoint").read_bytes())
    assert page.extension == Extension(1, builder.end, builder.end, 0)
    snapshot = store.snapshot.load()
    assert snapshot is not None
    assert (snapshot.generation, snapshot.dispatched_offset) == (1, builder.end)


@pytest.mark.feature("F44")
def test_a_full_index_file_brings_its_end_into_the_checkpoint_at_the_next_round(
    tmp_path: Path,
) -> None:
    builder = _log(40)  # 29 keys fill a file
    store = _store(tmp_path, builder)
    store.world.service.dispatch_now()

    store.clock.advance(1000)
    store.flusher.tick()

    data = (tmp_path / "checkpoint").read_bytes()
    assert int.from_bytes(data[16:24], "big") == 1_700_000_000_000 + 28
    assert int.from_bytes(data[8:16], "big") == 0


def test_the_logics_time_never_passes_the_full_index_files(tmp_path: Path) -> None:
    builder = _log(40)
    store = _store(tmp_path, builder)
    log = store.world.log
    log.end = builder.records[20][0]
    store.world.service.dispatch_now()
    store.flusher.flush_all()
    assert store.checkpoint.value.logics_ms == 0  # no full index file yet

    log.end = builder.end
    store.world.service.dispatch_now()
    store.flusher.flush_all()
    assert store.checkpoint.value.logics_ms == 1_700_000_000_000 + 28

    off = _store(tmp_path / "off", builder, index_enabled=False)
    off.world.service.dispatch_now()
    off.flusher.flush_all()
    assert off.checkpoint.value.logics_ms == 1_700_000_000_000 + 39


def test_a_start_without_new_records_keeps_the_logics_time(tmp_path: Path) -> None:
    store = _store(tmp_path, _log(0))
    store.checkpoint.update(logics_ms=77)

    store.flusher.flush_all()

    assert store.checkpoint.value.logics_ms == 77


def test_what_a_snapshot_names_is_on_disk_even_if_the_process_dies_right_after(
    tmp_path: Path,
) -> None:
    builder = _log(300, keys="k")
    store = _store(tmp_path, builder)
    store.world.log.end = builder.records[200][0]
    store.world.service.dispatch_now()
    store.flusher.flush_all()
    store.world.log.end = builder.end
    store.world.service.dispatch_now()  # pending when the process dies

    again = _store(tmp_path, builder)
    snapshot = again.snapshot.load()
    assert snapshot is not None
    load_states(again.world.queues, snapshot.queues)
    assert load_index_states(again.world.index, snapshot.index_files, 0)
    assert check_states(again.world.queues) == []
    again.world.service._offset = snapshot.dispatched_offset
    again.world.service.dispatch_now()

    assert again.world.queues.next_offset(0) == 300
    found = again.world.index.query("T", "k", 1000, 0, 2**63 - 1)
    assert found == [record[0] for record in reversed(builder.records)]


def test_after_a_failed_sync_no_snapshot_is_written_any_more(tmp_path: Path) -> None:
    disk = FaultyDisk()
    builder = _log(100)
    store = _store(tmp_path, builder, disk=disk)
    store.flusher.flush_all()
    before = (tmp_path / "orbitmq.snapshot").read_bytes()
    store.world.service.dispatch_now()
    disk.fail("sync_data", "*/consumequeue/*", errno.EIO)

    with pytest.raises(StoreIOError):
        store.flusher.flush_all()
    with pytest.raises(StoreFailedError):
        store.flusher.close()
    store.clock.advance(60_000)
    with pytest.raises(StoreFailedError):
        store.flusher.tick()

    assert (tmp_path / "orbitmq.snapshot").read_bytes() == before


def test_closing_tries_a_failed_write_three_times(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = _store(tmp_path, _log(10), disk=disk)
    store.world.service.dispatch_now()
    fault = disk.fail("write_at", "*/consumequeue/*", errno.ENOSPC, times=2)

    store.flusher.close()
    assert fault.hits == 2
    snapshot = store.snapshot.load()
    assert snapshot is not None
    assert snapshot.queues[0].next_offset == 10

    disk.fail("rename", "*", errno.EIO, times=None)
    with pytest.raises(StoreIOError):
        store.flusher.close()
