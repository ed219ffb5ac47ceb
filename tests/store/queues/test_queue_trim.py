"""Cutting queues at the start of the log."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.files.disk import Disk
from orbitmq.format.cq_unit import decode_units
from orbitmq.store.queues.trim import (
    correct_min,
    delete_before,
    delete_topic,
    first_unit,
)
from queue_world import (
    SegmentsLog,
    World,
    load_simple_queues,
    make_world,
    packed,
    small_layout,
)


def _world(root: Path, counts: dict[int, int], first: int = 0) -> World:
    """Make queues of one topic; unit n of queue q lies at log offset n * 1000 + q * 10."""
    world = make_world(small_layout(root), SegmentsLog([], 0))
    for queue_id, count in counts.items():
        number = world.queues.add("T", queue_id)
        units = [(number, n, n * 1000 + queue_id * 10, 10) for n in range(first, first + count)]
        if units:
            world.queues.apply(packed(units))
    return world


def _files(root: Path, queue_id: int) -> list[int]:
    directory = root / "consumequeue" / "T" / str(queue_id)
    return sorted(int(path.name) for path in directory.iterdir()) if directory.is_dir() else []


@pytest.mark.feature("F79")
def test_min_follows_the_first_segment_and_whole_dead_files_are_removed(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 35, 1: 12, 2: 3})
    world.queues.write_out(thorough=True)
    pauses: list[int] = []

    deleted = delete_before(world.queues, 23_000, lambda: pauses.append(1))

    queues = world.queues
    assert [queues.min_offset(no) for no in range(3)] == [23, 12, 3]
    assert [queues.next_offset(no) for no in range(3)] == [35, 12, 3]
    assert _files(tmp_path, 0) == [400, 600]
    assert _files(tmp_path, 1) == [200]  # the last file stays, dead or not
    assert _files(tmp_path, 2) == [0]
    assert (deleted, len(pauses)) == (3, 2)


def test_a_queue_without_live_units_goes_on_counting(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 12})
    world.queues.write_out(thorough=True)
    delete_before(world.queues, 50_000)

    world.queues.apply(packed([(0, 12, 60_000, 10)]))

    assert world.queues.min_offset(0) == 12
    assert [u.log_offset for u in decode_units(world.queues.read_units(0, 12, 5))] == [60_000]


def test_min_is_right_again_after_a_load_from_the_files(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 35})
    world.queues.write_out(thorough=True)
    delete_before(world.queues, 23_000)

    again = make_world(world.layout, SegmentsLog([], 0))
    load_simple_queues(again.queues)
    assert again.queues.min_offset(0) == 20
    correct_min(again.queues, 23_000)

    assert again.queues.min_offset(0) == 23
    assert again.queues.end_log_offset(0) == 34_010


def test_padding_units_are_never_live(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 8}, first=4)
    world.queues.write_out(thorough=True)

    again = make_world(world.layout, SegmentsLog([], 0))
    load_simple_queues(again.queues)

    assert (again.queues.min_offset(0), again.queues.next_offset(0)) == (4, 12)


def test_a_deleted_topic_starts_again_at_zero(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 25, 1: 3})
    world.queues.write_out(thorough=True)

    delete_topic(world.queues, "T", Disk())
    world.queues.apply(packed([(0, 0, 90_000, 10)]))

    assert _files(tmp_path, 0) == []
    assert [world.queues.next_offset(no) for no in (0, 1)] == [1, 0]


@settings(max_examples=60, deadline=None)
@given(
    gaps=st.lists(st.integers(1, 700), min_size=1, max_size=4),
    at=st.integers(0, 9000),
    written=st.booleans(),
)
def test_the_first_unit_behind_an_offset_is_found_whatever_padding_lies_between(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], at: int, written: bool
) -> None:
    world = make_world(
        small_layout(tmp_path_factory.mktemp("trim"), cq_file_bytes=400 * 20), SegmentsLog([], 0)
    )
    number = world.queues.add("T", 0)
    units, queue_offset = [], 0
    for gap in gaps:
        for _ in range(600 if gap % 2 else 3):
            units.append((number, queue_offset, len(units) * 10, 10))
            queue_offset += 1
        queue_offset += gap
    world.queues.apply(packed(units))
    if written:
        world.queues.write_out(thorough=True)

    found = first_unit(world.queues, number, 0, world.queues.next_offset(number), at)

    expected = [offset for _, offset, log_offset, _ in units if log_offset >= at]
    assert found == (expected[0] if expected else world.queues.next_offset(number))


def test_a_queue_whose_live_units_are_only_in_memory_keeps_no_dead_file(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 20})
    world.queues.write_out(thorough=True)
    world.queues.apply(packed([(0, n, n * 1000, 10) for n in range(20, 23)]))

    assert delete_before(world.queues, 21_000) == 2

    assert _files(tmp_path, 0) == [400]
    assert world.queues.min_offset(0) == 21
    assert world.queues.next_offset(0) == 23


def test_a_queue_without_live_units_keeps_its_last_file_for_its_numbering(tmp_path: Path) -> None:
    world = _world(tmp_path, {0: 20})
    world.queues.write_out(thorough=True)

    assert delete_before(world.queues, 50_000) == 1

    assert _files(tmp_path, 0) == [200]
    assert world.queues.min_offset(0) == world.queues.next_offset(0) == 20
