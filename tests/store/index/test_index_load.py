"""Loading and cutting the index."""

from pathlib import Path

import numpy as np
import pytest

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import key_hash
from orbitmq.store.index.index_load import load_index_files, load_index_states, truncate_index
from orbitmq.testing.fake_clock import FakeClock
from queue_world import SegmentsLog, World, make_world, small_layout

FIRST_MS = 1_700_000_000_000
FOREVER = 2**63 - 1


def _world(root: Path) -> World:
    layout = small_layout(root, index_slots=7, index_items=10)
    return make_world(layout, SegmentsLog([], 0), clock=FakeClock(FIRST_MS))


def _insert(world: World, first: int, end: int) -> None:
    items = np.zeros(end - first, dtype=ITEM)
    for item, n in zip(items, range(first, end), strict=True):
        item["log_offset"], item["store_ms"] = n * 10, FIRST_MS + n * 100
        item["key_hash"] = key_hash("T", f"k{n % 4}")
    world.index.insert(items)


def _expected(key: int, end: int) -> list[int]:
    return [n * 10 for n in reversed(range(end)) if n % 4 == key]


def _assert_holds(world: World, end: int) -> None:
    for key in range(4):
        assert world.index.query("T", f"k{key}", 100, 0, FOREVER) == _expected(key, end)


def _store_ms_of(log_offset: int) -> int:
    return FIRST_MS + log_offset * 10


@pytest.mark.feature("F48")
def test_after_a_crash_files_newer_than_the_checkpoint_are_removed_and_filled_again(
    tmp_path: Path,
) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 24)
    world.index.flush()
    full_ms = world.index.full_ms

    again = _world(tmp_path)
    dropped = load_index_files(again.index, drop_after_ms=full_ms)

    assert dropped == world.index.names[-1:]
    assert len(list((tmp_path / "index").iterdir())) == 2
    assert again.index.end_log_offset == 170
    _assert_holds(again, 18)
    _insert(again, 10, 24)  # dispatch begins earlier, as RocketMQ's does
    _assert_holds(again, 24)
    assert [h for _, h in again.index.headers()] == [h for _, h in world.index.headers()]


def test_files_with_other_names_are_left_alone_and_of_other_lengths_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 12)
    world.index.flush()
    (tmp_path / "index" / "20260101000000000.index").write_bytes(b"mine")
    (tmp_path / "index" / "20990101000000000").write_bytes(b"short")

    again = _world(tmp_path)
    dropped = load_index_files(again.index)

    assert dropped == ["20990101000000000"]
    assert (tmp_path / "index" / "20260101000000000.index").exists()
    assert "not the name of an index file" in caplog.text
    _assert_holds(again, 12)


@pytest.mark.parametrize("at", [1, 5, 9, 10, 14, 18, 23])
def test_a_snapshot_brings_the_index_back_to_its_moment_whatever_was_written_since(
    tmp_path: Path, at: int
) -> None:
    world = _world(tmp_path)
    _insert(world, 0, at)
    states = world.index.states()
    world.index.flush()
    _insert(world, at, 30)
    world.index.flush()  # entries, headers and slots are now past the snapshot

    again = _world(tmp_path)
    assert load_index_states(again.index, states, 0, _store_ms_of)

    assert again.index.end_log_offset == (at - 1) * 10
    _assert_holds(again, at)
    _insert(again, at, 30)
    _assert_holds(again, 30)
    assert [h for _, h in again.index.headers()] == [h for _, h in world.index.headers()]
    again.index.flush()
    third = _world(tmp_path)
    load_index_files(third.index)
    _assert_holds(third, 30)


def test_a_snapshot_whose_files_are_missing_is_refused(tmp_path: Path) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 24)
    world.index.flush()
    states = world.index.states()
    Path(world.index.path(world.index.names[0])).unlink()

    assert not load_index_states(_world(tmp_path).index, states, 0)
    # Unless the records it leads to are gone as well.
    assert load_index_states(_world(tmp_path).index, states, 90)


def test_a_snapshot_of_a_time_without_index_does_not_remove_its_files(tmp_path: Path) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 24)
    world.index.flush()

    assert not load_index_states(_world(tmp_path).index, [], 0)
    assert len(list((tmp_path / "index").iterdir())) == 3


def test_a_snapshot_that_knows_more_than_the_file_is_refused(tmp_path: Path) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 14)
    world.index.flush()
    _insert(world, 14, 16)

    assert not load_index_states(_world(tmp_path).index, world.index.states(), 0)


@pytest.mark.parametrize("end", [0, 10, 70, 90, 95, 100, 180, 200, 1000])
def test_entries_behind_the_end_of_the_log_are_cut(tmp_path: Path, end: int) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 24)

    cut = truncate_index(world.index, end, _store_ms_of)

    kept = min(-(-end // 10), 24)
    assert cut == 24 - kept
    assert world.index.end_log_offset == (kept - 1) * 10 if kept else -1
    _assert_holds(world, kept)
    _insert(world, kept, 40)
    _assert_holds(world, 40)
    world.index.flush()
    again = _world(tmp_path)
    load_index_files(again.index)
    _assert_holds(again, 40)
