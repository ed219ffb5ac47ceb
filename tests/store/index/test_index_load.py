"""Loading the index."""

from pathlib import Path

import numpy as np
import pytest

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import HEADER_BYTES, key_hash
from orbitmq.store.index.load import keep_full_files, load_index_states
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


def test_files_with_other_names_are_left_alone_and_of_other_lengths_are_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 12)
    world.index.flush()
    (tmp_path / "index" / "20260101000000000.index").write_bytes(b"mine")
    (tmp_path / "index" / "20990101000000000").write_bytes(b"short")

    again = _world(tmp_path)
    assert load_index_states(again.index, world.index.states(), 0)

    assert not (tmp_path / "index" / "20990101000000000").exists()
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
    assert load_index_states(third.index, again.index.states(), 0)
    _assert_holds(third, 30)


def test_slots_that_reached_the_disk_before_the_header_are_not_believed(tmp_path: Path) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 5)
    world.index.flush()
    states, path = world.index.states(), Path(world.index.path(world.index.names[0]))
    header = path.read_bytes()[:HEADER_BYTES]
    _insert(world, 5, 8)
    world.index.flush()
    path.write_bytes(header + path.read_bytes()[HEADER_BYTES:])

    again = _world(tmp_path)
    assert load_index_states(again.index, states, 0, _store_ms_of)

    _assert_holds(again, 5)
    _insert(again, 5, 8)
    _assert_holds(again, 8)


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


def test_only_full_files_that_the_checkpoint_speaks_of_are_kept(tmp_path: Path) -> None:
    world = _world(tmp_path)
    _insert(world, 0, 30)
    world.index.flush()
    first, second = (file.header.end_ms for file in world.index.full[:2])
    names = world.index.names

    for full_ms, kept in ((second, 2), (second - 1, 1), (first, 1), (first - 1, 0)):
        keep_full_files(world.index, full_ms)

        assert world.index.names == names[:kept]
        assert sorted(path.name for path in (tmp_path / "index").iterdir()) == names[:kept]
        assert world.index.end_log_offset == {0: -1, 1: 80, 2: 170}[kept]
        _assert_holds(world, kept * 9)
