"""Splits of every length: each record exactly once, whatever a split starts in."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_builder import LogBuilder, append_with_fakes, write_log
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.log_read import BadPlace, Segment, Split, cut, open_segment, plan_log, read_split

SEGMENT_BYTES = 2048
BACK_BYTES = 700  # more than the longest record of these logs
RECORD_BYTES_MAX = 600

Found = tuple[list[int], list[int]]


def _raise(place: BadPlace) -> None:
    raise AssertionError(place)


def _log() -> LogBuilder:
    """Return two segments: plain records, bodies full of fakes, an empty body, a long blank tail."""
    builder = LogBuilder(segment_bytes=SEGMENT_BYTES)
    builder.append(body=b"first")
    append_with_fakes(builder, 3)
    builder.append(body=b"")
    append_with_fakes(builder, 1, between=b"")
    builder.append(body=b"y" * 300, KEYS="a b")
    append_with_fakes(builder, 4)  # does not fit: the rest of the first segment is a blank tail
    append_with_fakes(builder, 4, between=b"\xda\xa3\x20\xa7")
    builder.append(body=b"last")
    assert len(builder.segments) == 2
    return builder


def _read(
    builder: LogBuilder, cuts: list[int], kernels: Kernels, back_bytes: int = BACK_BYTES
) -> Found:
    """Return the offsets of the records, and of the bad places, of all splits between the cuts."""
    offsets: list[int] = []
    bad: list[int] = []
    for number, content in enumerate(builder.segments):
        base = builder.base_offset + number * SEGMENT_BYTES
        segment = Segment(base, Path("log"), np.frombuffer(bytes(content), dtype=np.uint8))
        limit = min(base + SEGMENT_BYTES, builder.written)
        inside = [base, *(place for place in cuts if base < place < limit), limit]
        for start, end in itertools.pairwise(inside):
            for chunk in read_split(
                Split("log", base, start, end, limit),
                segment,
                kernels,
                ScanOptions(),
                lambda place: bad.append(place.log_offset),
                back_bytes=back_bytes,
            ):
                offsets += chunk.rows["log_offset"].tolist()
    return offsets, bad


@pytest.mark.feature("P1")
def test_splits_of_every_length_hold_each_record_once() -> None:
    builder = _log()
    expected = [placed.start for placed in builder.records]
    assert max(len(placed.raw) for placed in builder.records) < RECORD_BYTES_MAX

    for length in range(1, SEGMENT_BYTES):
        cuts = list(range(0, builder.written, length))
        assert _read(builder, cuts, compiled()) == (expected, []), length


bodies = st.one_of(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\xda\xa3\x20\xa7" * 20, b"\xcb\xd4\x31\x94" * 20]),
)


@settings(max_examples=60, deadline=None)
@given(
    shapes=st.lists(st.one_of(bodies, st.integers(1, 4)), min_size=1, max_size=12),
    data=st.data(),
    kernels=st.sampled_from([plain(), compiled()]),
)
def test_any_cuts_hold_each_record_once(
    shapes: list[bytes | int], data: st.DataObject, kernels: Kernels
) -> None:
    builder = LogBuilder(segment_bytes=SEGMENT_BYTES)
    for shape in shapes:
        if isinstance(shape, int):
            append_with_fakes(builder, shape)
        else:
            builder.append(body=shape)
    cuts = sorted(data.draw(st.sets(st.integers(1, builder.written), max_size=40)))

    found = _read(builder, cuts, kernels)

    assert found == ([placed.start for placed in builder.records], [])


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kernels=st.sampled_from([plain(), compiled()]))
def test_neighbours_agree_on_what_is_bad(data: st.DataObject, kernels: Kernels) -> None:
    builder = LogBuilder(segment_bytes=SEGMENT_BYTES)
    for _ in range(10):
        builder.append(body=b"z" * data.draw(st.integers(0, 200)))
    for at in data.draw(st.lists(st.integers(0, builder.written - 1), min_size=1, max_size=3)):
        builder.overwrite(at, data.draw(st.binary(min_size=1, max_size=30)))
    cuts = sorted(data.draw(st.sets(st.integers(1, builder.written), max_size=40)))

    whole = _read(builder, [], kernels)
    # A damaged length may reach further than any record: only a walk from the start sees the same.
    in_pieces = _read(builder, cuts, kernels, back_bytes=SEGMENT_BYTES)

    assert in_pieces == whole


@pytest.mark.parametrize("split_bytes", [1, 7, 500, 5000])
def test_splits_of_a_plan_hold_each_record_once(tmp_path: Path, split_bytes: int) -> None:
    builder = _log()
    plan = plan_log(write_log(builder, tmp_path / "store"))

    found = [
        offset
        for split in cut(plan, split_bytes)
        for segment in [open_segment(split.path, split.base_offset)]
        for chunk in read_split(split, segment, compiled(), ScanOptions(), _raise)
        for offset in chunk.rows["log_offset"].tolist()
    ]

    assert plan.end == builder.written
    assert found == [placed.start for placed in builder.records]


def test_a_log_of_many_segments_gives_a_task_for_each(tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=512)
    for _ in range(12):
        builder.append()

    plan = plan_log(write_log(builder, tmp_path / "store"))

    assert len(plan.files) == len(builder.segments) > 3
    assert len(cut(plan)) == len(plan.files)
