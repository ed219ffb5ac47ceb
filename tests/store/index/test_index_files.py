"""Index files: inserting, rolling, looking up, deleting."""

import errno
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import NoSpaceError
from orbitmq.format.columns import ITEM
from orbitmq.format.index_file import (
    ENTRY,
    HEADER,
    IndexHeader,
    decode_entry,
    decode_header,
    entry_position,
    key_hash,
    slot_position,
)
from orbitmq.store.index.files import IndexFiles, Items
from orbitmq.store.index.load import load_index_states
from orbitmq.testing.builders import make_request, unique_key
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.testing.fake_disk import FaultyDisk
from queue_world import LogBuilder, SegmentsLog, World, make_world, small_layout

FIRST_MS = 1_700_000_000_000
FOREVER = 2**63 - 1


def _world(root: Path, *, disk: FaultyDisk | None = None, **sizes: int) -> World:
    layout = small_layout(root, **{"index_slots": 20, "index_items": 10, **sizes})
    return make_world(layout, SegmentsLog([], 0), clock=FakeClock(FIRST_MS), disk=disk)


def _items(entries: list[tuple[int, int, str]]) -> Items:
    made = np.zeros(len(entries), dtype=ITEM)
    for item, (log_offset, store_ms, key) in zip(made, entries, strict=True):
        item["log_offset"], item["store_ms"] = log_offset, store_ms
        item["key_hash"] = key_hash("T", key)
    return made


def _read_files(index: IndexFiles) -> list[bytes]:
    index.flush()
    return [Path(index.path(name)).read_bytes() for name in index.names]


@pytest.mark.feature("F36", "F37", "F40")
def test_header_slots_and_chains_lie_where_the_layout_says(tmp_path: Path) -> None:
    index = _world(tmp_path).index
    assert index.headers() == []

    index.insert(_items([(100, FIRST_MS, "a"), (200, FIRST_MS + 2500, "a")]))
    (data,) = _read_files(index)

    assert len(data) == 40 + 4 * 20 + 20 * 10
    expected = IndexHeader(FIRST_MS, FIRST_MS + 2500, 100, 200, 1, 3)
    assert decode_header(data) == expected
    slot = slot_position(key_hash("T", "a"), 20)
    assert int.from_bytes(data[slot : slot + 4], "big") == 2
    assert decode_entry(data, entry_position(1, 20)) == (key_hash("T", "a"), 100, 0, 0)
    assert decode_entry(data, entry_position(2, 20)) == (key_hash("T", "a"), 200, 2, 1)
    assert index.query("T", "a", 10, 0, FOREVER) == [200, 100]


@pytest.mark.feature("F36")
def test_a_file_of_default_size_has_420_000_040_bytes_and_is_sparse(tmp_path: Path) -> None:
    from orbitmq.files.layout import StoreLayout

    world = make_world(StoreLayout(tmp_path), SegmentsLog([], 0))

    world.index.insert(_items([(0, FIRST_MS, "order_123")]))
    world.index.flush()

    (path,) = (tmp_path / "index").iterdir()
    assert path.stat().st_size == 420_000_040
    assert path.stat().st_blocks * 512 < 1_000_000


@pytest.mark.feature("F39")
def test_the_seconds_of_an_entry_are_cut_and_kept_in_their_limits(tmp_path: Path) -> None:
    index = _world(tmp_path).index
    times = [FIRST_MS, FIRST_MS + 1999, FIRST_MS - 5000, FIRST_MS + 2**31 * 1000 + 7000]

    index.insert(_items([(n, time, f"k{n}") for n, time in enumerate(times)]))
    (data,) = _read_files(index)

    seconds = [decode_entry(data, entry_position(n + 1, 20)).seconds for n in range(4)]
    assert seconds == [0, 1, 0, 2**31 - 1]


@pytest.mark.feature("F43")
def test_the_tenth_key_goes_to_a_second_file_named_by_its_time_of_creation(tmp_path: Path) -> None:
    world = _world(tmp_path)
    index = world.index

    index.insert(_items([(n * 10, FIRST_MS + n, f"k{n}") for n in range(9)]))
    (first,) = index.names
    assert world.index.headers()[0][1].next_item == 10
    index.insert(_items([(90, FIRST_MS + 3400, "k9")]))

    assert len(index.names) == 2
    assert index.names == sorted(index.names)
    assert index.names[0] == first
    second = decode_header(_read_files(index)[1])
    assert second == IndexHeader(FIRST_MS + 3400, FIRST_MS + 3400, 90, 90, 1, 2)
    entry = decode_entry(_read_files(index)[1], entry_position(1, 20))
    assert entry.seconds == 3  # counted from the end of the file before


def test_files_made_in_one_millisecond_or_after_the_clock_went_back_stay_in_order(
    tmp_path: Path,
) -> None:
    clock = FakeClock(FIRST_MS)
    layout = small_layout(tmp_path, index_items=3)
    index = make_world(layout, SegmentsLog([], 0), clock=clock).index

    for n in range(12):
        index.insert(_items([(n * 10, FIRST_MS + n, "k")]))
        if n == 5:
            clock.set_now_ms(FIRST_MS - 3_600_000)

    assert len(set(index.names)) == len(index.names) == 6
    assert index.names == sorted(index.names)
    assert index.query("T", "k", 64, 0, FOREVER) == [n * 10 for n in reversed(range(12))]


@pytest.mark.feature("F44")
def test_a_full_file_is_synced_at_the_next_flush_and_then_counts(tmp_path: Path) -> None:
    index = _world(tmp_path).index
    index.insert(_items([(n * 10, FIRST_MS + n, "k") for n in range(12)]))
    assert index.full_ms == 0

    assert index.flush_full() == FIRST_MS + 8
    assert index.full_ms == FIRST_MS + 8


@pytest.mark.feature("F45")
@pytest.mark.parametrize(("failures", "stored"), [(1, True), (2, True), (3, False)])
def test_creating_a_file_is_tried_three_times(tmp_path: Path, failures: int, stored: bool) -> None:
    disk = FaultyDisk()
    world = _world(tmp_path, disk=disk)
    disk.fail("truncate", "*/index/*", errno.ENOSPC, times=failures)

    if stored:
        world.index.insert(_items([(0, FIRST_MS, "k")]))
    else:
        with pytest.raises(NoSpaceError):
            world.index.insert(_items([(0, FIRST_MS, "k")]))

    assert world.index.failed is not stored
    disk.heal()
    world.index.insert(_items([(10, FIRST_MS + 1, "k")]))
    assert not world.index.failed
    assert world.index.query("T", "k", 10, 0, FOREVER) == [10, 0]


@pytest.mark.feature("F46")
def test_nothing_is_written_when_the_index_is_switched_off(tmp_path: Path) -> None:
    builder = LogBuilder().add_all(make_request(n, keys="k") for n in range(5))
    world = make_world(small_layout(tmp_path), builder.log(), index_enabled=False)

    world.service.dispatch_now()
    world.write_all()

    assert not (tmp_path / "index").exists()
    assert world.index.query("TopicTest", "k", 10, 0, FOREVER) == []


@pytest.mark.feature("F41", "F42")
def test_each_key_and_the_unique_key_are_entered_and_nothing_else(tmp_path: Path) -> None:
    builder = LogBuilder()
    builder.add(make_request(0, keys="a  b", queue_id=0))
    builder.add(make_request(1, keys=None, unique=False, queue_id=0))
    builder.add(make_request(2, keys=None, queue_id=0))
    world = make_world(small_layout(tmp_path), builder.log())

    world.service.dispatch_now()

    ((_, header),) = world.index.headers()
    assert header.next_item == 5
    offsets = [record[0] for record in builder.records]
    for key, offset in (("a", 0), ("b", 0), (unique_key(0), 0), (unique_key(2), 2)):
        assert world.index.query("TopicTest", key, 9, 0, FOREVER) == [offsets[offset]]
    assert world.index.query("TopicTest", "", 9, 0, FOREVER) == []
    assert world.index.query("TopicTest", unique_key(1), 9, 0, FOREVER) == []


@pytest.mark.feature("F38")
def test_a_key_whose_hash_is_the_smallest_int_can_be_used(tmp_path: Path) -> None:
    # "polygenelubricants" has that hash; with "T#" in front another string is needed.
    key = _key_with_smallest_hash()
    index = _world(tmp_path).index

    index.insert(_items([(70, FIRST_MS, key)]))

    assert key_hash("T", key) == 0
    assert index.query("T", key, 1, 0, FOREVER) == [70]


def _key_with_smallest_hash() -> str:
    from orbitmq.format.java_hash import java_hash

    wanted = (-(2**31)) & 0xFFFFFFFF
    for number in range(100_000):
        start = f"T#{number}"
        rest = (wanted - java_hash(start) * 31**3) & 0xFFFFFFFF
        first, left = divmod(rest, 31 * 31)
        second, third = divmod(left, 31)
        if 40 <= first < 0xD800:
            key = start[2:] + chr(first) + chr(second + 0) + chr(third + 0)
            if java_hash("T#" + key) == -(2**31) and second and third:
                return key
    raise AssertionError("no such key")


@pytest.mark.feature("F49", "F50")
def test_only_files_of_the_time_asked_for_are_read_newest_first(tmp_path: Path) -> None:
    world = _world(tmp_path)
    index = world.index
    index.insert(_items([(n * 10, FIRST_MS + n * 1000, "k") for n in range(40)]))
    index.flush()
    read: list[str] = []
    original = index._maps.get
    index._maps.get = lambda path: (read.append(Path(path).name), original(path))[1]  # type: ignore[method-assign, func-returns-value]

    found = index.query("T", "k", 64, FIRST_MS + 11_000, FIRST_MS + 14_000)

    assert found == [140, 130, 120, 110]
    assert read == [index.names[1]]
    read.clear()
    assert index.query("T", "k", 2, 0, FIRST_MS + 17_500) == [170, 160]
    assert read == [index.names[1]]


@pytest.mark.feature("F54")
def test_files_whose_records_are_gone_are_deleted_but_never_the_last(tmp_path: Path) -> None:
    index = _world(tmp_path).index
    index.insert(_items([(n * 10, FIRST_MS + n, f"k{n}") for n in range(30)]))
    index.flush()
    names = index.names

    assert index.delete_before(170) == 1  # the second ends exactly there
    assert index.names == names[1:]
    assert index.delete_before(171) == 1
    assert index.delete_before(10_000) == 1

    assert index.names == names[-1:]
    assert [path.name for path in (tmp_path / "index").iterdir()] == names[-1:]


def test_records_at_or_before_the_newest_are_not_entered_again(tmp_path: Path) -> None:
    index = _world(tmp_path).index
    items = _items([(n // 2 * 10, FIRST_MS + n, f"k{n}") for n in range(6)])
    index.insert(items)
    headers = index.headers()

    index.insert(items)
    index.insert(items[4:])

    assert index.headers() == headers
    assert index.end_log_offset == 20


def test_a_file_on_disk_is_complete_after_a_flush(tmp_path: Path) -> None:
    index = _world(tmp_path, index_slots=3000, index_items=500).index
    for n in range(300):
        index.insert(_items([(n * 10, FIRST_MS + n, f"k{n}")]))
        if n % 70 == 0:
            index.flush()
    index.flush()

    again = _world(tmp_path, index_slots=3000, index_items=500).index
    assert load_index_states(again, index.states(), 0)

    assert again.headers() == index.headers()
    for n in range(300):
        assert again.query("T", f"k{n}", 9, 0, FOREVER) == index.query("T", f"k{n}", 9, 0, FOREVER)


@settings(max_examples=40, deadline=None)
@given(
    keys=st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=60),
    flushes=st.sets(st.integers(0, 59)),
    items=st.integers(2, 12),
    slots=st.integers(1, 7),
)
def test_the_index_behaves_like_a_dict(
    tmp_path_factory: pytest.TempPathFactory,
    keys: list[str],
    flushes: set[int],
    items: int,
    slots: int,
) -> None:
    world = _world(tmp_path_factory.mktemp("index"), index_slots=slots, index_items=items)
    model: dict[str, list[int]] = defaultdict(list)
    for n, key in enumerate(keys):
        world.index.insert(_items([(n * 10, FIRST_MS + n, key)]))
        model[key].insert(0, n * 10)
        if n in flushes:
            world.index.flush()

    for key in "abcdefgh":
        assert world.index.query("T", key, 100, 0, FOREVER) == model[key]
        assert world.index.query("T", key, 3, 0, FOREVER) == model[key][:3]
    world.index.flush()
    again = _world(Path(world.layout.root), index_slots=slots, index_items=items).index
    assert load_index_states(again, world.index.states(), 0)
    for key in "abcdefgh":
        assert again.query("T", key, 100, 0, FOREVER) == model[key]
    assert HEADER.size + ENTRY.size == 60
