"""Adopting the index: kept as far as the log proves it, made anew from there."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import ENTRY, HEADER, entry_position, key_hash
from orbitmq.store.index.files import Items
from orbitmq.store.index.load import load_index_states
from orbitmq.store.verify.adopt_index import IndexVerifier, IndexVerifyReport
from orbitmq.testing.fake_clock import FakeClock
from queue_world import SegmentsLog, World, make_world, small_layout

FIRST_MS = 1_700_000_000_000
FOREVER = 2**63 - 1
SLOTS, ITEMS = 7, 10


def _world(root: Path, **sizes: int) -> World:
    layout = small_layout(root, **{"index_slots": SLOTS, "index_items": ITEMS, **sizes})
    return make_world(layout, SegmentsLog([], 0), clock=FakeClock(FIRST_MS))


def _items(records: int, per_record: int = 2, first: int = 0) -> Items:
    """Return the items of records 10 bytes and 700 ms apart, each with so many keys."""
    made = np.zeros((records - first) * per_record, dtype=ITEM)
    for index, item in enumerate(made):
        record, key = first + index // per_record, index % per_record
        item["log_offset"], item["store_ms"] = record * 10, FIRST_MS + record * 700
        item["key_hash"] = key_hash("T", f"k{record % 3}" if key else f"id{record}")
    return made


def _store(root: Path, items: Items) -> World:
    world = _world(root)
    world.index.insert(items)
    world.index.flush()
    return world


def _adopt(
    root: Path, items: Items, log_min: int = 0, step: int = 7
) -> tuple[World, IndexVerifyReport]:
    world = _world(root)
    verifier = IndexVerifier(world.index, log_min)
    live = items[items["log_offset"] >= log_min]
    for start in range(0, len(live), step):
        verifier.take(live[start : start + step])
    report = verifier.finish()
    world.index.flush()
    return world, report


def _contents(root: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((root / "index").iterdir())]


def _assert_all_found(world: World, items: Items) -> None:
    for key in range(3):
        wanted = key_hash("T", f"k{key}")
        expected = items["log_offset"][items["key_hash"] == wanted][::-1].tolist()
        found = world.index.query("T", f"k{key}", 1000, 0, FOREVER)
        assert list(dict.fromkeys(found)) == list(dict.fromkeys(expected))


@pytest.mark.parametrize("step", [1, 3, 100])
@pytest.mark.parametrize("records", [0, 1, 4, 5, 9, 20])
def test_an_index_that_agrees_stays_untouched(tmp_path: Path, records: int, step: int) -> None:
    items = _items(records)
    _store(tmp_path, items)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("2*")}

    world, report = _adopt(tmp_path, items, step=step)

    assert report.is_clean, report
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("2*")} == before
    assert world.index.end_log_offset == ((records - 1) * 10 if records else -1)
    _assert_all_found(world, items)


def test_a_missing_index_is_made(tmp_path: Path) -> None:
    items = _items(20)
    _store(tmp_path / "made", items)

    world, report = _adopt(tmp_path / "empty", items)

    assert _contents(tmp_path / "empty") == _contents(tmp_path / "made")
    assert report.added == 40
    _assert_all_found(world, items)


def test_a_missing_tail_is_added(tmp_path: Path) -> None:
    items = _items(20)
    _store(tmp_path / "made", items)
    _store(tmp_path / "part", items[:26])

    world, report = _adopt(tmp_path / "part", items)

    assert _contents(tmp_path / "part") == _contents(tmp_path / "made")
    assert (report.kept_entries, report.added, report.wrong) == (26, 14, 0)
    _assert_all_found(world, items)


@pytest.mark.parametrize("which", [0, 1, 2, -1])
def test_from_a_missing_file_on_the_index_is_made_anew(tmp_path: Path, which: int) -> None:
    items = _items(20)
    world = _store(tmp_path, items)
    before = _contents(tmp_path)
    Path(world.index.path(world.index.names[which])).unlink()

    again, _ = _adopt(tmp_path, items)

    assert _contents(tmp_path) == before
    _assert_all_found(again, items)


@pytest.mark.parametrize(
    "damage",
    [
        "previous past the end",
        "previous itself",
        "previous zero",
        "slot past the end",
        "slot zero",
        "seconds",
        "header",
        "hash",
        "offset",
        "count too large",
        "count too small",
        "short file",
    ],
)
@pytest.mark.parametrize("which", [1, -1], ids=["full file", "last file"])
def test_every_kind_of_damage_is_put_right(tmp_path: Path, damage: str, which: int) -> None:
    items = _items(20)
    world = _store(tmp_path, items)
    before = _contents(tmp_path)
    path = Path(world.index.path(world.index.names[which]))
    data = bytearray(path.read_bytes())
    at = entry_position(3, SLOTS)
    entry = list(ENTRY.unpack_from(data, at))
    header = list(HEADER.unpack_from(data))
    match damage:
        case "previous past the end":
            entry[3] = 9999
        case "previous itself":
            entry[3] = 3
        case "previous zero":
            entry[3] = 0 if entry[3] else 1
        case "slot past the end":
            data[40:44] = (9999).to_bytes(4, "big")
        case "slot zero":
            data[40 : 40 + 4 * SLOTS] = bytes(4 * SLOTS)
        case "seconds":
            entry[2] += 5
        case "header":
            header[1] += 5
        case "hash":
            entry[0] ^= 1
        case "offset":
            entry[1] += 3
        case "count too large":
            header[5] = ITEMS + 3 if which == 1 else header[5] + 1
        case "count too small":
            header[5] = 3
    ENTRY.pack_into(data, at, *entry)
    HEADER.pack_into(data, 0, *header)
    path.write_bytes(data if damage != "short file" else data[:50])

    again, report = _adopt(tmp_path, items)

    assert not report.is_clean
    _assert_all_found(again, items)
    assert again.index.headers()[-1][1] == world.index.headers()[-1][1]
    assert [_used(data) for data in _contents(tmp_path)] == [_used(data) for data in before]
    assert _adopt(tmp_path, items)[1].is_clean


def _used(data: bytes) -> bytes:
    """Leave out entries behind the newest one: they do not count."""
    return data[: entry_position(HEADER.unpack_from(data)[5], SLOTS)]


@pytest.mark.parametrize("per_record", [1, 2, 4])
def test_keys_of_a_record_that_java_entered_twice_are_no_contradiction(
    tmp_path: Path, per_record: int
) -> None:
    items = _items(30, per_record)
    made = _world(tmp_path)
    cut = 2 * (ITEMS - 1)  # two full files; a third was thrown away in a crash
    made.index.insert(items[:cut])
    made.index.flush()
    last = items["log_offset"][cut - 1]
    made.index._end = int(last) - 1  # dispatch comes again, the last record included
    made.index.insert(items[items["log_offset"] >= last])
    made.index.flush()
    before = _contents(tmp_path)

    world, report = _adopt(tmp_path, items)

    assert report.is_clean, report
    assert report.repeated == sum(items["log_offset"][:cut] == last)
    assert _contents(tmp_path) == before
    _assert_all_found(world, items)


@pytest.mark.parametrize("log_min", [10, 40, 50, 90, 130, 199, 200, 300])
def test_entries_of_expired_records_are_kept(tmp_path: Path, log_min: int) -> None:
    items = _items(20)
    _store(tmp_path, items)
    before = _contents(tmp_path)

    world, report = _adopt(tmp_path, items, log_min)

    assert report.is_clean, report
    assert _contents(tmp_path) == before
    assert world.index.end_log_offset == 190
    _assert_all_found(world, items)


def test_entries_of_records_behind_the_end_of_the_log_are_cut(tmp_path: Path) -> None:
    items = _items(20)
    _store(tmp_path, items)

    world, report = _adopt(tmp_path, items[:25])

    assert report.beyond > 0
    _assert_all_found(world, items[:25])
    again = _world(tmp_path)
    assert load_index_states(again.index, world.index.states(), 0)
    _assert_all_found(again, items[:25])


@settings(max_examples=60, deadline=None)
@given(
    stored=st.integers(0, 60),
    logged=st.integers(0, 60),
    log_min=st.integers(0, 30),
    flips=st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 400), st.integers(1, 255)), max_size=3
    ),
    step=st.integers(1, 20),
)
@example(stored=2, logged=4, log_min=1, flips=[(0, 0, 128)], step=1)
def test_after_adoption_every_key_of_the_log_is_found_whatever_the_files_held(
    tmp_path_factory: pytest.TempPathFactory,
    stored: int,
    logged: int,
    log_min: int,
    flips: list[tuple[int, int, int]],
    step: int,
) -> None:
    root = tmp_path_factory.mktemp("adopt")
    items = _items(40)
    world = _store(root, items[: stored // 2 * 2])
    for file, position, mask in flips:
        names = world.index.names
        if file < len(names):
            path = Path(world.index.path(names[file]))
            data = bytearray(path.read_bytes())
            data[position % len(data)] ^= mask
            path.write_bytes(data)
    logged_items = items[: logged // 2 * 2]

    again, _ = _adopt(root, logged_items, log_min, step)

    live = logged_items[logged_items["log_offset"] >= log_min]
    reopened = _world(root)
    assert load_index_states(reopened.index, again.index.states(), log_min)
    for opened in (again, reopened):
        for item in live:
            found = set()
            for key in (f"id{item['log_offset'] // 10}", f"k{item['log_offset'] // 10 % 3}"):
                found |= set(opened.index.query("T", key, 1000, 0, FOREVER))
            assert item["log_offset"] in found
