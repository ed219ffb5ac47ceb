"""Bytes that come step by step, as those of a store at a distance: what is found in them is the same."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_builder import FIRST_MS, HOST, LogBuilder
from orbitmq.format.columns import Bytes, ScanOptions
from orbitmq.format.kernels import plain
from orbitmq.format.record import BODY_AT, encode_record
from orbitmq.log_read import Segment, Skip, chunks, find_record, first_record, reader, rows_at
from orbitmq.message import AppendRequest

SIZE = 16_384
BACK = 3_000
"""More than a record of these logs is long."""


@dataclass(slots=True)
class SteppingSegment(Segment):
    """A segment of which only those bytes are there that were asked for, at most `step` at a time."""

    source: Bytes = field(default_factory=lambda: np.zeros(0, dtype=np.uint8))
    step: int = 1

    def near(self, start: int, end: int) -> int:
        there = min(end, (start // self.step + 1) * self.step)
        self.data[start:there] = self.source[start:there]
        return there


def stepping(data: Bytes, step: int) -> SteppingSegment:
    empty = np.zeros(len(data), dtype=np.uint8)
    return SteppingSegment(0, Path("0"), empty, source=data, step=step)


def found_in(segment: Segment, start: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the records and the bad places from a position on."""
    places: list[tuple[int, int]] = []
    bad = Skip(lambda place: places.append((place.log_offset, place.length)))
    options = ScanOptions(check_crc=True, max_rows=5)
    at = first_record(
        segment,
        start,
        SIZE,
        kernels=plain(),
        options=options,
        limit=SIZE,
        back_bytes=BACK,
    )
    found = chunks(segment, at, kernels=plain(), options=options, bad=bad)
    return [int(offset) for chunk in found for offset in chunk.rows["log_offset"]], places


@given(
    st.lists(st.integers(1, 900), min_size=4, max_size=25),
    st.lists(st.tuples(st.integers(0, SIZE), st.integers(1, 400)), max_size=3),
    st.sampled_from([50, 333, 1000, 4096]),
    st.integers(0, SIZE),
)
@settings(max_examples=60, deadline=None)
def test_a_reader_that_waits_for_its_bytes_finds_what_one_with_all_of_them_finds(
    bodies: list[int], damages: list[tuple[int, int]], step: int, start: int
) -> None:
    builder = LogBuilder(segment_bytes=SIZE)
    for length in bodies:
        if builder.position + length + 200 < SIZE:
            builder.append(body=b"b" * length)
    data = np.frombuffer(builder.segments[0], dtype=np.uint8).copy()
    for at, length in damages:
        data[at : at + length] = 0x5A
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reader, "BACK_BYTES", BACK)

        wanted = found_in(Segment(0, Path("0"), data), start)

        assert found_in(stepping(data, step), start) == wanted


def test_a_record_in_a_body_is_not_found_because_its_bytes_come_before_the_end_of_the_true_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "BACK_BYTES", BACK)
    builder = LogBuilder(segment_bytes=SIZE)
    builder.append(body=b"x" * 1500)
    start = builder.written
    inner = encode_record(
        AppendRequest("T", 0, b"a whole record"),
        log_offset=start + BODY_AT,
        queue_offset=0,
        store_ms=FIRST_MS,
        store_host=HOST,
    )
    outer = builder.append(body=inner + b"y" * 1000)
    builder.append()
    data = np.frombuffer(builder.segments[0], dtype=np.uint8)
    at = start + outer.raw.index(inner)
    assert at == start + BODY_AT
    assert find_record(Segment(0, Path("0"), data), at, SIZE, plain()) == at
    step = at + len(inner) + 10  # ends inside the true record, behind the other one

    for first in (1, start):
        assert find_record(stepping(data, step), first, SIZE, plain()) == start


def test_records_that_reach_over_steps_come_as_many_as_asked_for() -> None:
    builder = LogBuilder(segment_bytes=SIZE)
    for _ in range(8):
        builder.append(body=b"x" * 700)
    data = np.frombuffer(builder.segments[0], dtype=np.uint8)

    rows = rows_at(stepping(data, 100), 0, 5, kernels=plain())

    assert rows["log_offset"].tolist() == [record.start for record in builder.records[:5]]
