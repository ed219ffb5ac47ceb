"""The parts of continuous dispatch that need no session: ends of records, splits, packed chunks."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_builder import LogBuilder
from orbitmq.errors import ConfigError, JobFailedError
from orbitmq.files.layout import StoreLayout
from orbitmq.format.columns import ScanOptions
from orbitmq.format.handover import ReadableOffset
from orbitmq.format.kernels import compiled, plain
from orbitmq.log_read import LogTail, cut, open_segment, read_split
from orbitmq.spark.jobs.dispatch.chunks import pack_chunk, unpack_chunk
from orbitmq.spark.jobs.dispatch.job import DispatchOptions, DispatchTimes, covered_end
from orbitmq.spark.jobs.dispatch.source import TailOptions, is_speaking

SEGMENT_BYTES = 4096


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[LogBuilder, Path]:
    """Three segments of records, the first two closed by blanks."""
    builder = LogBuilder(SEGMENT_BYTES)
    number = 0
    while len(builder.segments) < 3 or builder.position < 2000:
        keys = {"KEYS": f"k{number} all", "INNER_MULTI_DISPATCH": "%LMQ%a"} if number % 3 else {}
        builder.append(f"Topic{number % 5}", number % 2, bytes(number * 7 % 190), **keys)
        number += 1
    place = tmp_path_factory.mktemp("log")
    for index, segment in enumerate(builder.segments):
        (place / f"{index * SEGMENT_BYTES:020d}").write_bytes(segment)
    return builder, place


def tail_of(place: Path) -> LogTail:
    layout = StoreLayout(place, commit_log_paths=(place,), segment_bytes=SEGMENT_BYTES)
    return LogTail(layout, kernels=plain())


def whole_records(tail: LogTail, start: int, end: int, room: int | None = None) -> int:
    return tail.whole_records(tail.published(start, end), room)


def test_ends_of_records_are_found_at_every_byte(built):
    builder, place = built
    # A record's end, or the start of the next segment where a blank follows it.
    ends = {0, *(record.start for record in builder.records), builder.written}
    ends |= {record.end for record in builder.records}
    tail = tail_of(place)
    for shown in range(0, builder.written + 1, 13):
        found = whole_records(tail, 0, shown)
        assert found in ends
        assert found <= shown
        assert not [record for record in builder.records if found < record.end <= shown]


@given(room=st.integers(1, 5000), data=st.data())
@settings(max_examples=40, deadline=None)
def test_batches_of_any_size_follow_one_another_to_the_end(built, room, data):
    builder, place = built
    tail, offset = tail_of(place), 0
    while offset < builder.written:
        following = whole_records(tail, offset, builder.written, room)
        assert following > offset
        offset = following
    assert offset == builder.written


@pytest.mark.parametrize("share", [64, 500, 10**9])
def test_splits_hold_each_record_of_a_batch_once(built, share):
    builder, place = built
    start, end = builder.records[4].start, builder.records[-3].end

    splits = cut(tail_of(place).published(start, end), share)

    read = [
        int(offset)
        for split in splits
        for segment in [open_segment(split.path, split.base_offset)]
        for chunk in read_split(split, segment, plain(), ScanOptions(), pytest.fail)
        for offset in chunk.rows["log_offset"]
    ]
    assert read == [record.start for record in builder.records[4:-2]]
    assert splits[0].start == start
    assert splits[-1].end == end


def test_a_segment_that_was_cleaned_is_passed_over(built, tmp_path):
    builder, place = built
    for name in sorted(path.name for path in place.iterdir())[1:]:
        (tmp_path / name).write_bytes((place / name).read_bytes())

    assert whole_records(tail_of(tmp_path), 0, builder.written) == builder.written


def test_a_place_without_a_record_is_passed_over_as_live_dispatch_does(built, tmp_path):
    builder, place = built
    for path in place.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    with (tmp_path / f"{0:020d}").open("r+b") as segment:
        segment.seek(builder.records[3].start)
        segment.write(b"\xff" * 8)

    assert whole_records(tail_of(tmp_path), 0, builder.written) == builder.written


@pytest.mark.parametrize("kernels", [plain(), compiled()], ids=["plain", "compiled"])
def test_a_packed_chunk_says_the_same_as_the_segment(built, kernels):
    builder, _ = built
    buffer = np.frombuffer(bytes(builder.segments[1]), dtype=np.uint8)
    rows = kernels.scan(buffer, 0, SEGMENT_BYTES, SEGMENT_BYTES, ScanOptions()).rows

    chunk = unpack_chunk(pack_chunk(buffer, rows, kernels, with_items=True))

    same = [name for name in rows.dtype.names if not name.endswith(("_at", "_length"))]
    assert (chunk.rows[same] == rows[same]).all()
    for before, after in zip(rows, chunk.rows, strict=True):
        for part in ("topic", "properties"):
            text = _part(chunk.buffer, after, part)
            assert text in (_part(buffer, before, part), b"")
            if part == "topic" or b"%LMQ%" in _part(buffer, before, part):
                assert text == _part(buffer, before, part)
    assert chunk.items is not None
    assert len(chunk.items)
    assert (chunk.items == kernels.index_items(buffer, rows)).all()


def _part(buffer: np.ndarray, row: np.void, part: str) -> bytes:
    start = int(row[f"{part}_at"])
    return buffer[start : start + int(row[f"{part}_length"])].tobytes()


class _Row:
    def __init__(self, split_start: int, split_end: int) -> None:
        self.split_start, self.split_end = split_start, split_end


def test_a_hole_between_splits_is_never_dispatched():
    rows = [_Row(10, 20), _Row(10, 20), _Row(20, 35)]
    assert covered_end(10, rows) == covered_end(15, rows) == 35
    with pytest.raises(JobFailedError, match="from 5 to 10"):
        covered_end(5, rows)


def test_options_travel_as_text():
    options = TailOptions("/s", 1, 2, 4096, ("/a", "/b"), (0, 1000), True, 9, 10, 2)

    assert TailOptions.parse(options.text()) == options


def test_a_batch_has_room_for_some_records():
    with pytest.raises(ConfigError, match="batch_bytes"):
        DispatchOptions(batch_bytes=1000)


def test_a_killed_store_is_not_believed():
    assert is_speaking(ReadableOffset(1, 100, 5_000), 14_000)
    assert not is_speaking(ReadableOffset(1, 100, 5_000), 16_000)
    assert is_speaking(ReadableOffset(1, 100, 5_000, closed=True), 10**12)
    assert not is_speaking(None, 0)


def test_times_are_those_of_the_last_records():
    times = DispatchTimes()
    assert times.percentiles() == (0.0, 0.0)
    times.add([np.array([100, 200]), np.array([300])], 400)
    assert (times.records, times.batches) == (3, 1)
    assert times.percentiles() == (200.0, 298.0)
