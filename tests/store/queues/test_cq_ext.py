"""ConsumeQueueExt: addresses in the units, ext units in their own files."""

from pathlib import Path

import pytest

from orbitmq.format.cq_ext_unit import ADDRESS_MAX, END_MARK, ext_address
from orbitmq.format.cq_unit import decode_units
from orbitmq.log_read import Chunk
from orbitmq.store.queues.cq_ext import trim_ext
from orbitmq.store.queues.trim import delete_before
from orbitmq.store.reads.tag_filter import TagFilter
from orbitmq.testing.builders import make_request
from queue_world import LogBuilder, World, make_world, small_layout


def _bitmap(chunk: Chunk, row: int) -> bytes | None:
    number = int(chunk.rows["queue_offset"][row])
    return bytes([number]) * 14 if number % 3 else None


def _world(root: Path, count: int = 40) -> tuple[World, LogBuilder]:
    builder = LogBuilder(4096)
    builder.add_all(
        make_request(n, "T", 0, tag="TagA" if n % 2 else "TagB", body_bytes=10)
        for n in range(count)
    )
    layout = small_layout(root, segment_bytes=4096)
    world = make_world(layout, builder.log(), with_ext=True, bitmap=_bitmap)
    world.service.dispatch_now()
    return world, builder


def _tags(world: World, first: int, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        data = world.queues.read_units(0, first + len(found), count - len(found))
        found += [unit.tag_hash for unit in decode_units(data)]
    return found


@pytest.mark.feature("F29")
@pytest.mark.parametrize("written", [True, False], ids=["in files", "in memory"])
def test_units_hold_addresses_and_tag_time_and_bitmap_read_back(
    tmp_path: Path, written: bool
) -> None:
    world, builder = _world(tmp_path)
    if written:
        world.write_all()
    assert world.ext is not None

    for number, address in enumerate(_tags(world, 0, 40)):
        assert address <= ADDRESS_MAX
        unit = world.ext.get(0, address)
        assert unit is not None
        assert unit.tag_hash == (2598919 if number % 2 else 2598920)
        assert unit.store_ms == 1_700_000_000_000 + number
        assert unit.bitmap == (bytes([number]) * 14 if number % 3 else b"")
    assert builder.end == world.service.dispatched_offset


def test_a_unit_never_crosses_the_end_of_a_file(tmp_path: Path) -> None:
    world, _ = _world(tmp_path)
    world.write_all()

    files = sorted((tmp_path / "consumequeue_ext" / "T" / "0").iterdir())
    assert len(files) > 2
    assert {file.stat().st_size for file in files} == {256}
    for file in files[:-1]:
        assert file.read_bytes().rstrip(b"\0").endswith(END_MARK)


def test_reads_filter_by_the_tag_of_the_ext_unit(tmp_path: Path) -> None:
    world, builder = _world(tmp_path)

    result = world.reader.get("T", 0, 0, 32, filter=TagFilter.parse("TagA"))

    assert result.queue_offsets == [1, 3, 5, 7, 9]  # one file of ten units
    assert result.log_offsets[0] == builder.records[1][0]


def test_ext_files_before_the_first_live_unit_are_deleted(tmp_path: Path) -> None:
    world, builder = _world(tmp_path)
    world.write_all()
    before = len(list((tmp_path / "consumequeue_ext" / "T" / "0").iterdir()))
    assert world.ext is not None

    delete_before(world.queues, builder.records[25][0])
    trim_ext(world.ext, world.queues)

    assert len(list((tmp_path / "consumequeue_ext" / "T" / "0").iterdir())) < before
    assert all(world.ext.get(0, address) is not None for address in _tags(world, 25, 15))


def test_a_bitmap_that_is_too_long_leaves_the_plain_hash_in_the_unit(tmp_path: Path) -> None:
    world, _ = _world(tmp_path, 1)
    assert world.ext is not None

    assert world.ext.put(0, 4711, 1, bytes(40_000)) == 4711
    assert world.ext.put(0, 4711, 1, bytes(300)) == 4711


def test_an_address_without_a_unit_reads_as_none(tmp_path: Path) -> None:
    world, _ = _world(tmp_path, 3)
    assert world.ext is not None

    assert world.ext.get(0, ext_address(10_000)) is None
    assert world.ext.get(0, ext_address(3)) is None
    assert world.ext.get(0, 17) is None
