"""Loading queues from a snapshot and from their files."""

from pathlib import Path

import pytest

from orbitmq.format.snapshot import QueueKind, QueueState
from orbitmq.store.queues.load import check_states, load_states
from queue_world import (
    SegmentsLog,
    World,
    load_simple_queues,
    make_world,
    packed,
    small_layout,
)


def _written(root: Path, count: int) -> World:
    world = make_world(small_layout(root), SegmentsLog([], 0))
    number = world.queues.add("T", 0)
    world.queues.apply(packed([(number, n, n * 100, 50) for n in range(count)]))
    world.queues.write_out(thorough=True)
    return world


def _reopened(world: World) -> World:
    again = make_world(world.layout, SegmentsLog([], 0))
    load_simple_queues(again.queues)
    return again


def _file(root: Path, base: int) -> Path:
    return root / "consumequeue" / "T" / "0" / f"{base:020d}"


def test_units_end_before_garbage_and_nothing_on_disk_changes(tmp_path: Path) -> None:
    world = _written(tmp_path, 13)
    path = _file(tmp_path, 200)
    damaged = path.read_bytes()[:100] + b"\xff" * 100
    path.write_bytes(damaged)

    queues = _reopened(world).queues

    assert queues.next_offset(0) == 13
    assert path.read_bytes() == damaged


def test_damage_before_the_third_last_file_is_not_looked_at(tmp_path: Path) -> None:
    world = _written(tmp_path, 45)
    _file(tmp_path, 0).write_bytes(bytes(200))

    assert _reopened(world).queues.next_offset(0) == 45


def test_a_zero_unit_in_the_third_last_file_ends_the_queue_there(tmp_path: Path) -> None:
    world = _written(tmp_path, 45)
    path = _file(tmp_path, 400)
    path.write_bytes(path.read_bytes()[:60] + bytes(20) + path.read_bytes()[80:])

    queues = _reopened(world).queues

    assert queues.next_offset(0) == 23
    assert queues.end_log_offset(0) == 2250


def test_an_empty_queue_directory_is_a_queue_without_units(tmp_path: Path) -> None:
    (tmp_path / "consumequeue" / "T" / "5").mkdir(parents=True)
    world = make_world(small_layout(tmp_path), SegmentsLog([], 0))

    load_simple_queues(world.queues)

    assert world.queues.next_offset(world.queues.find("T", 5)) == 0


def test_a_snapshot_is_taken_as_it_is_and_checked_with_one_look_per_queue(tmp_path: Path) -> None:
    world = _written(tmp_path, 25)
    again = make_world(world.layout, SegmentsLog([], 0))
    states = [
        QueueState(QueueKind.SIMPLE, "T", 0, 3, 25, 2450),
        QueueState(QueueKind.SIMPLE, "T", 1, 0, 0, 0),
        QueueState(QueueKind.BATCH, "B", 0, 0, 5, 10, 5),
    ]

    load_states(again.queues, states)

    assert again.queues.find("B", 0) == -1
    assert (again.queues.min_offset(0), again.queues.next_offset(0)) == (3, 25)
    assert check_states(again.queues) == []


@pytest.mark.parametrize("damage", ["missing", "short", "other unit"])
def test_a_snapshot_that_the_files_do_not_bear_out_is_found_out(
    tmp_path: Path, damage: str
) -> None:
    world = _written(tmp_path, 25)
    path = _file(tmp_path, 400)
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:90] if damage == "short" else bytes(200))
    again = make_world(world.layout, SegmentsLog([], 0))

    load_states(again.queues, [QueueState(QueueKind.SIMPLE, "T", 0, 0, 25, 2450)])

    (problem,) = check_states(again.queues)
    assert str(path) in problem
