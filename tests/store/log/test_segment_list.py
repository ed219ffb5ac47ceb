"""The list of segments: find, create, truncate, delete, several disks."""

from pathlib import Path

import pytest

from orbitmq.errors import WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.testing.fake_clock import FakeClock

SIZE = 4096


def make_list(layout: StoreLayout, count: int = 0, first: int = 0) -> SegmentList:
    segments = SegmentList(layout, disk=Disk(), clock=FakeClock())
    for number in range(count):
        base = first + number * SIZE
        segments.add(MappedFile.create(Disk(), segments.path_for(base), base, SIZE))
    return segments


@pytest.fixture
def layout(tmp_path):
    return StoreLayout(tmp_path, segment_bytes=SIZE)


@pytest.mark.feature("F61")
def test_a_segment_is_found_by_arithmetic(layout):
    segments = make_list(layout, 5, first=3 * SIZE)

    assert segments.min_offset == 3 * SIZE
    assert segments.find(3 * SIZE).base_offset == 3 * SIZE
    assert segments.find(5 * SIZE - 1).base_offset == 4 * SIZE
    assert segments.find(8 * SIZE - 1).base_offset == 7 * SIZE
    assert segments.find(3 * SIZE - 1) is None
    assert segments.find(8 * SIZE) is None
    segments.close()


@pytest.mark.feature("F61")
def test_an_empty_list_starts_at_the_offset_asked_for(layout):
    segments = make_list(layout)

    assert (segments.first, segments.last, segments.find(0)) == (None, None, None)
    assert (segments.min_offset, segments.written_offset, segments.flushed_offset) == (0, 0, 0)
    assert segments.next_base_offset(10 * SIZE + 5) == 10 * SIZE


@pytest.mark.feature("F61")
def test_loading_takes_all_segments_as_full(layout):
    make_list(layout, 3).close()
    (layout.commit_log / "00000000000000012288").touch()  # created, not yet allocated

    segments = make_list(layout)
    segments.load()

    assert [segment.base_offset for segment in segments] == [0, SIZE, 2 * SIZE]
    assert segments.written_offset == 3 * SIZE
    assert not (layout.commit_log / "00000000000000012288").exists()


@pytest.mark.parametrize("damage", ["short", "gap", "name", "directory"])
def test_a_segment_that_does_not_fit_is_named(layout, damage):
    make_list(layout, 3).close()
    bad = layout.commit_log / "00000000000000004096"
    match damage:
        case "short":
            bad.write_bytes(b"x" * 4095)
        case "gap":
            bad.unlink()
            bad = layout.commit_log / "00000000000000008192"
        case "name":
            bad = bad.rename(layout.commit_log / "00000000000000004097")
        case "directory":
            bad.unlink()
            bad.mkdir()

    with pytest.raises(WrongFileError) as raised:
        make_list(layout).load()

    assert raised.value.path.name == bad.name
    assert raised.value.next_step


@pytest.mark.feature("F61")
def test_truncation_sets_the_positions_and_removes_later_segments(layout):
    segments = make_list(layout, 4)
    for segment in segments:
        segment.set_positions(SIZE)

    segments.truncate(SIZE + 100)

    assert [segment.written for segment in segments] == [SIZE, 100]
    assert segments.flushed_offset == segments.written_offset == SIZE + 100
    assert len(list(layout.commit_log.iterdir())) == 2
    segments.truncate(0)
    assert [segment.written for segment in segments] == [0]
    segments.close()


@pytest.mark.feature("F61", "F76")
def test_deletion_starts_at_the_front_and_never_takes_the_last(layout):
    segments = make_list(layout, 3)

    assert segments.remove_first(0)
    assert segments.min_offset == SIZE
    assert segments.remove_first(0)
    assert not segments.remove_first(0)
    assert [segment.base_offset for segment in segments] == [2 * SIZE]
    segments.close()


def test_a_first_segment_on_its_way_out_no_longer_counts_for_the_minimum(layout):
    segments = make_list(layout, 2)
    segments.first.hold()

    assert not segments.remove_first(120_000)

    assert segments.min_offset == SIZE
    segments.first.release()
    assert segments.remove_first(120_000)
    segments.close()


def test_several_disks_take_turns_and_a_full_one_is_left_out(tmp_path):
    disks = tuple(tmp_path / name for name in ("b", "a", "c"))
    layout = StoreLayout(tmp_path, commit_log_paths=disks, segment_bytes=SIZE)
    segments = make_list(layout, 4)

    assert [segment.path.parent.name for segment in segments] == ["a", "b", "c", "a"]
    segments.full_paths = frozenset({tmp_path / "b"})
    assert [segments.path_for(n * SIZE).parent.name for n in (4, 5, 6)] == ["a", "c", "a"]
    segments.close()
    again = make_list(layout)
    again.load()
    assert [segment.base_offset for segment in again] == [0, SIZE, 2 * SIZE, 3 * SIZE]


def test_many_segments_are_not_all_mapped_at_once(layout):
    segments = make_list(layout, 600)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number, segment in enumerate(segments):
        segment.writable_mapping()[:8] = number.to_bytes(8, "big")
        segment.written = SIZE
        segment.flush()
    views = [segment.slice(0, 8) for segment in segments]
    segments.close()
    again = make_list(layout)
    again.load()

    assert [int.from_bytes(view, "big") for view in views] == list(range(600))
    del views
    for number, segment in enumerate(again):
        assert int.from_bytes(segment.slice(0, 8), "big") == number
    assert len(list(Path("/proc/self/fd").iterdir())) < before
    again.close()


def test_an_empty_segment_stays_if_it_is_the_only_one_left(layout):
    segments = make_list(layout, 2, first=3 * SIZE)

    segments.truncate(3 * SIZE)

    assert [segment.base_offset for segment in segments] == [3 * SIZE]
    assert segments.min_offset == segments.flushed_offset == segments.readable_end == 3 * SIZE
    segments.close()
