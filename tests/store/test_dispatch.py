"""Dispatch: which record goes where, and what happens when something fails."""

import errno
from pathlib import Path

import pytest

from orbitmq.errors import NoSpaceError
from orbitmq.format import kernels
from orbitmq.format.cq_unit import decode_units
from orbitmq.format.filler import encode_filler
from orbitmq.format.record import decode_record
from orbitmq.log_read import Chunk
from orbitmq.message import Property, SysFlag
from orbitmq.testing.builders import make_request, mixed_requests, transaction_request, unique_key
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from queue_world import LogBuilder, World, make_world, small_layout

FOREVER = 2**63 - 1


def _dispatched(root: Path, builder: LogBuilder, **options: object) -> World:
    layout = small_layout(root, segment_bytes=builder.segment_bytes)
    world = make_world(layout, builder.log(), **options)  # type: ignore[arg-type]
    world.service.dispatch_now()
    return world


def _tree(root: Path) -> dict[str, bytes]:
    found = [path for path in root.rglob("*") if path.is_file() and "index" not in path.parts]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


@pytest.mark.feature("F16")
def test_prepared_and_rolled_back_records_get_no_unit_and_rolled_back_ones_no_key(
    tmp_path: Path,
) -> None:
    builder = LogBuilder()
    steps = (SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK)
    for number, step in enumerate(steps):
        builder.add(transaction_request(number, "T", step=step))
    builder.add(make_request(3, "T", 1))

    world = _dispatched(tmp_path, builder)

    units = decode_units(world.queues.read_units(world.queues.find("T", 1), 0, 9))
    offsets = [record[0] for record in builder.records]
    assert [unit.log_offset for unit in units] == [offsets[1], offsets[3]]
    assert world.queues.find("T", 0) == world.queues.find("T", 2) == -1
    found = [world.index.query("T", unique_key(n), 9, 0, FOREVER) for n in range(4)]
    assert found == [[offsets[0]], [offsets[1]], [], [offsets[3]]]


@pytest.mark.feature("F15")
def test_an_extra_dispatcher_sees_every_record_once_and_in_order(tmp_path: Path) -> None:
    builder = LogBuilder(16_384).add_all(mixed_requests(200))
    seen: list[int] = []

    world = _dispatched(
        tmp_path, builder, extra=[lambda chunk: seen.extend(chunk.rows["log_offset"].tolist())]
    )

    assert seen == [record[0] for record in builder.records]
    assert world.service.dispatched_offset == builder.end
    assert world.dispatcher.dispatched_ms == builder.now_ms - 1


def test_both_kernel_sets_make_the_same_files(tmp_path: Path) -> None:
    builder = LogBuilder(16_384).add_all(mixed_requests(300))

    for kernel_set in kernels.twins():
        root = tmp_path / kernel_set.name
        _dispatched(root, builder, kernels=kernel_set).write_all()

    assert _tree(tmp_path / "plain") == _tree(tmp_path / "compiled")
    plain, compiled = (
        sorted((tmp_path / name / "index").iterdir()) for name in ("plain", "compiled")
    )
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in compiled]


def test_kernels_can_be_swapped_on_the_way(tmp_path: Path) -> None:
    builder = LogBuilder(16_384).add_all(mixed_requests(300))
    log = builder.log()
    world = make_world(small_layout(tmp_path / "swapped", segment_bytes=16_384), log)
    log.end = builder.records[150][0]
    world.service.dispatch_now()

    world.service.use(kernels.compiled())
    log.end = builder.end
    world.service.dispatch_now()
    world.write_all()

    _dispatched(tmp_path / "plain", builder).write_all()
    assert _tree(tmp_path / "swapped") == _tree(tmp_path / "plain")


def test_a_light_message_gets_a_unit_in_each_of_its_queues(tmp_path: Path) -> None:
    builder = LogBuilder()
    extra = {
        Property.MULTI_DISPATCH: "%LMQ%a,%LMQ%b,bad/name,plain",
        Property.MULTI_QUEUE_OFFSET: "0,3,0,0",
    }
    builder.add(make_request(0, "T", 2, properties=extra))

    world = _dispatched(tmp_path, builder, multi_dispatch=True)

    queues = world.queues
    assert queues.next_offset(queues.find("T", 2)) == 1
    assert queues.next_offset(queues.find("%LMQ%a", 0)) == 1
    assert queues.min_offset(queues.find("%LMQ%b", 0)) == 3
    assert queues.next_offset(queues.find("plain", 2)) == 1
    assert queues.find("bad/name", 0) == -1
    other = _dispatched(tmp_path / "off", builder)
    assert other.queues.find("%LMQ%a", 0) == -1


@pytest.mark.parametrize(
    "extra",
    [
        {Property.MULTI_DISPATCH: "%LMQ%a,%LMQ%b", Property.MULTI_QUEUE_OFFSET: "0"},
        {Property.MULTI_DISPATCH: "%LMQ%a", Property.MULTI_QUEUE_OFFSET: "x"},
        {Property.MULTI_DISPATCH: "%LMQ%a"},
    ],
)
def test_a_broken_light_message_is_only_in_its_own_queue(
    tmp_path: Path, extra: dict[str, str]
) -> None:
    builder = LogBuilder()
    builder.add(make_request(0, "T", 2, properties=extra))

    world = _dispatched(tmp_path, builder, multi_dispatch=True)

    assert world.queues.find("%LMQ%a", 0) == -1
    assert world.queues.next_offset(world.queues.find("T", 2)) == 1


def test_a_filler_is_dispatched_and_never_returned(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add_all(make_request(n, "T", 0) for n in range(3))
    log = builder.log()
    offset, size, _, _ = builder.records[1]
    segment = log._segments[0][1]
    filler = encode_filler(b"T", 0, 1, offset, size, 1_700_000_000_001)
    segment[offset : offset + size] = list(filler)

    world = make_world(small_layout(tmp_path), log)
    world.service.dispatch_now()
    result = world.reader.get("T", 0, 0, 32)

    assert world.queues.next_offset(0) == 3
    assert result.queue_offsets == [0, 2]
    assert result.next_offset == 3
    only_filler = world.reader.get("T", 0, 1, 1)
    assert (only_filler.queue_offsets, only_filler.next_offset) == ([2], 3)


def test_a_topic_that_cannot_name_a_directory_is_in_no_queue(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(make_request(0, "../evil", 0))
    builder.add(make_request(1, "T", 0))

    world = _dispatched(tmp_path / "store", builder)
    world.write_all()

    assert world.queues.next_offset(world.queues.find("T", 0)) == 1
    assert not list(tmp_path.glob("evil*"))
    assert world.index.query("../evil", unique_key(0), 9, 0, FOREVER) == [builder.records[0][0]]


def test_a_chunk_that_failed_is_given_again_and_nothing_is_there_twice(tmp_path: Path) -> None:
    disk = FaultyDisk()
    builder = LogBuilder().add_all(make_request(n, "T", 0, keys="k") for n in range(50))
    seen: list[int] = []
    world = make_world(
        small_layout(tmp_path),
        builder.log(),
        disk=disk,
        clock=FakeClock(),
        extra=[lambda chunk: seen.extend(chunk.rows["log_offset"].tolist())],
    )
    fault = disk.fail("truncate", "*/index/*", errno.ENOSPC, nth=2, times=3)

    with pytest.raises(NoSpaceError):
        world.service.dispatch_now()
    assert fault.hits == 3
    assert world.service.dispatched_offset == 0
    world.service.dispatch_now()

    offsets = [record[0] for record in builder.records]
    assert world.index.query("T", "k", 100, 0, FOREVER) == offsets[::-1]
    assert world.queues.next_offset(0) == 50
    assert seen == offsets


def test_the_rows_of_an_empty_chunk_change_nothing(tmp_path: Path) -> None:
    builder = LogBuilder().add_all([make_request(0)])
    world = _dispatched(tmp_path, builder)
    log = builder.log()._segments[0][1]
    rows = kernels.plain().scan(log, 0, 0, 0, world.service._options).rows

    world.dispatcher.apply(Chunk(log, rows))

    assert world.dispatcher.dispatched_ms == 1_700_000_000_000
    assert decode_record(log).store_ms == 1_700_000_000_000


def test_deleting_a_topic_removes_its_queues_of_every_family(tmp_path: Path) -> None:
    from orbitmq.files.disk import Disk

    builder = LogBuilder().add_all(make_request(n, "T") for n in range(40))
    world = _dispatched(tmp_path, builder, with_ext=True)
    world.write_all()

    world.dispatcher.delete_topic("T", Disk())

    assert not [path for path in (tmp_path / "consumequeue").rglob("*") if path.is_file()]
    assert not [path for path in (tmp_path / "consumequeue_ext").rglob("*") if path.is_file()]
