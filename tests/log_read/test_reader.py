"""The one reader: which records it hands out, where it says that it stopped, what it does with bad bytes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from log_builder import FIRST_MS, LogBuilder
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.record import encode_blank
from orbitmq.log_read import (
    BadPlace,
    LogStop,
    ReadState,
    Segment,
    Skip,
    chunks,
    first_record,
    is_closed_at,
    rows_at,
)

SIZE = 4096
BASE = 3 * SIZE
CHECKED = ScanOptions(check_crc=True)
both = pytest.mark.parametrize("kernels", [plain(), compiled()], ids=["plain", "compiled"])


def built(count: int = 10, body: bytes = b"b" * 60) -> LogBuilder:
    builder = LogBuilder(segment_bytes=SIZE, base_offset=BASE)
    for _ in range(count):
        builder.append(body=body)
    assert len(builder.segments) == 1
    return builder


def segment_of(builder: LogBuilder) -> Segment:
    return Segment(BASE, Path("/log/0"), np.frombuffer(bytes(builder.segments[0]), dtype=np.uint8))


def read(builder: LogBuilder, state: ReadState, end: int | None = None, **options) -> list[int]:
    """Return the offsets of the records from `state.at` on."""
    asked = {"kernels": compiled(), "options": CHECKED, **options}
    found = chunks(segment_of(builder), state.at, end, state=state, **asked)
    return [offset for chunk in found for offset in chunk.rows["log_offset"].tolist()]


def starts(builder: LogBuilder) -> list[int]:
    return [record.start for record in builder.records]


# --- whole ranges ---


@both
def test_a_range_holds_the_records_that_start_in_it(kernels: Kernels) -> None:
    builder = built()
    for first, last in ((0, 3), (2, 2), (4, 10)):
        begin = builder.records[first].start
        for end in (builder.records[last - 1].start + 1, builder.records[last - 1].end):
            state = ReadState(begin)
            found = read(builder, state, max(end, begin), kernels=kernels)
            assert found == starts(builder)[first:last]
            assert state.stop is LogStop.END
            assert state.at == max(builder.records[last - 1].end, begin)


def test_no_byte_behind_the_limit_is_looked_at() -> None:
    builder = built()
    limit = builder.records[4].end - 1
    state = ReadState(BASE)

    assert read(builder, state, limit=limit) == starts(builder)[:4]
    assert (state.at, state.stop) == (builder.records[4].start, LogStop.CUT)


def test_rows_come_in_bounded_chunks() -> None:
    builder = built()
    options = ScanOptions(max_rows=3)

    sizes = [
        len(chunk.rows)
        for chunk in chunks(segment_of(builder), BASE, kernels=compiled(), options=options)
    ]

    assert sizes == [3, 3, 3, 1]


def test_the_state_is_true_after_every_chunk() -> None:
    builder, state = built(), ReadState(BASE)
    options = ScanOptions(max_rows=1)
    for number, _ in enumerate(
        chunks(segment_of(builder), BASE, kernels=compiled(), options=options, state=state)
    ):
        assert state.at == builder.records[number].end
        assert state.last_ms == FIRST_MS + number


def test_a_blank_closes_the_segment() -> None:
    builder, state = built(), ReadState(BASE)
    builder.overwrite(builder.written, encode_blank(SIZE - builder.position))

    assert read(builder, state, bad=Skip(pytest.fail)) == starts(builder)
    assert (state.at, state.stop) == (builder.written, LogStop.BLANK)
    assert state.is_whole
    assert state.next_offset(BASE + SIZE) == BASE + SIZE
    assert is_closed_at(segment_of(builder), builder.written, kernels=plain())
    assert not is_closed_at(segment_of(builder), builder.records[-1].start, kernels=plain())


def test_a_segment_without_room_for_a_blank_is_closed_too() -> None:
    builder = built(1)
    rest = SIZE - builder.position
    overhead = builder.records[0].end - builder.records[0].start - 60
    builder.segments[0][builder.position :] = builder._encode(
        "T", 0, b"e" * (rest - overhead - 3), 1, builder.written, 0, {}
    ).ljust(rest, b"\0")
    state = ReadState(BASE)

    assert len(read(builder, state)) == 2
    assert (state.stop, state.at) == (LogStop.END, BASE + SIZE - 3)
    assert state.next_offset(BASE + SIZE) == BASE + SIZE
    assert is_closed_at(segment_of(builder), state.at, kernels=plain())


# --- bad bytes ---


def damaged(number: int = 4) -> tuple[LogBuilder, int]:
    """Return a log with a record whose body is wrong."""
    builder = built()
    bad = builder.records[number]
    builder.flip(bad.start + 100)
    return builder, bad.start


@both
def test_reading_stops_at_bad_bytes_unless_told_otherwise(kernels: Kernels) -> None:
    builder, bad = damaged()
    state = ReadState(BASE)

    assert read(builder, state, kernels=kernels) == starts(builder)[:4]
    assert (state.at, state.stop) == (bad, LogStop.BAD)
    assert not state.is_whole
    assert state.next_offset(BASE + SIZE) == bad


@both
def test_a_record_with_sound_lengths_is_one_bad_place(kernels: Kernels) -> None:
    builder, bad = damaged()
    builder.flip(builder.records[5].start + 100)
    told: list[BadPlace] = []
    end = builder.written

    found = read(builder, ReadState(BASE), end, kernels=kernels, limit=end, bad=Skip(told.append))

    assert found == starts(builder)[:4] + starts(builder)[6:]
    size = builder.records[4].end - bad
    reason = "the record's checksum or stored offset is wrong"
    assert told[0] == BadPlace(Path("/log/0"), bad, bad - BASE, size, reason)
    assert [place.log_offset for place in told] == starts(builder)[4:6]


def test_other_bytes_are_bad_up_to_the_next_record() -> None:
    builder = built()
    first, last = builder.records[3], builder.records[5]
    builder.overwrite(first.start, b"\xff" * (last.start + 8 - first.start))
    told: list[BadPlace] = []
    end = builder.written

    found = read(builder, ReadState(BASE), end, limit=end, bad=Skip(told.append))

    assert found == starts(builder)[:3] + starts(builder)[6:]
    assert [(place.log_offset, place.length) for place in told] == [
        (first.start, last.end - first.start)
    ]
    assert told[0].reason == "no valid record"


def test_a_bad_place_that_no_record_follows_reaches_to_the_limit() -> None:
    builder = built()
    last = builder.records[-1]
    builder.overwrite(last.start, b"\xff" * 8)
    told: list[BadPlace] = []
    state = ReadState(BASE)

    read(builder, state, last.end, limit=last.end, bad=Skip(told.append))

    assert [(place.log_offset, place.length) for place in told] == [
        (last.start, last.end - last.start)
    ]
    assert (state.at, state.stop) == (last.end, LogStop.END)


def test_what_may_still_come_is_waited_for() -> None:
    builder = built()
    growing = Skip(pytest.fail, growing=True)
    for limit, stop in ((builder.records[6].start + 20, LogStop.CUT), (builder.written, None)):
        state = ReadState(BASE)
        found = read(builder, state, limit=limit, bad=growing)
        assert found == (starts(builder)[:6] if stop else starts(builder))
        assert state.stop is (stop or LogStop.END)

    builder.overwrite(builder.records[6].start, b"\xff" * 8)
    state = ReadState(BASE)
    assert read(builder, state, limit=builder.records[7].start, bad=growing) == starts(builder)[:6]
    assert (state.at, state.stop) == (builder.records[6].start, LogStop.BAD)
    told: list[BadPlace] = []
    read(builder, state, limit=builder.written, bad=Skip(told.append, growing=True))
    assert [place.log_offset for place in told] == [builder.records[6].start]


def test_half_a_record_is_waited_for_though_its_body_holds_a_whole_one() -> None:
    builder = built()
    half = builder.append(body=bytes(1000))
    inside = half.start + 200  # in its body
    forged = LogBuilder(segment_bytes=SIZE, base_offset=inside, store_ms=FIRST_MS + 60_000)
    forged.append(body=b"forged")
    builder.overwrite(inside, bytes(forged.segments[0][: forged.position]))
    state = ReadState(BASE)

    found = read(builder, state, limit=half.end - 100, bad=Skip(pytest.fail, growing=True))

    assert found == starts(builder)[:-1]
    assert (state.at, state.stop) == (half.start, LogStop.CUT)


def test_nothing_is_waited_for_behind_the_end_of_a_segment() -> None:
    builder = built()
    builder.overwrite(builder.records[6].start, b"\xff" * (BASE + SIZE - builder.records[6].start))
    told: list[BadPlace] = []
    state = ReadState(BASE)

    assert read(builder, state, bad=Skip(told.append, growing=True)) == starts(builder)[:6]
    assert len(told) == 1
    assert state.next_offset(BASE + SIZE) == BASE + SIZE


def test_stale_bytes_behind_the_end_do_not_count() -> None:
    builder = built()
    stale = LogBuilder(segment_bytes=SIZE, base_offset=BASE, store_ms=FIRST_MS - 1000)
    while stale.position < SIZE - 200:
        stale.append(body=b"old" * 10)
    behind = next(record.start for record in stale.records if record.start > builder.written + 8)
    builder.segments[0][builder.position + 8 :] = stale.segments[0][builder.position + 8 :]
    state = ReadState(BASE)

    assert read(builder, state, bad=Skip(pytest.fail, stale=True)) == starts(builder)
    assert (state.at, state.stop) == (builder.written, LogStop.BAD)
    skipped: list[BadPlace] = []
    assert behind in read(builder, ReadState(BASE), bad=Skip(skipped.append))


def test_newer_records_behind_a_bad_place_count_although_stale_bytes_are_possible() -> None:
    builder, bad = damaged()
    told: list[BadPlace] = []
    state = ReadState(BASE)

    found = read(builder, state, bad=Skip(told.append, stale=True))

    assert found == starts(builder)[:4] + starts(builder)[5:]
    assert [place.log_offset for place in told] == [bad]
    assert (state.at, state.stop) == (builder.written, LogStop.BAD)


def test_a_search_for_the_next_record_can_be_bounded() -> None:
    builder = built()
    builder.overwrite(builder.records[2].start, b"\xff" * 8)
    state = ReadState(BASE)

    bounded = Skip(search_end=builder.records[3].start + 8)

    assert read(builder, state, bad=bounded) == starts(builder)[:2]
    assert state.at == BASE + SIZE


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_both_kernels_read_the_same_whatever_is_damaged(data: st.DataObject) -> None:
    builder = built()
    for at in data.draw(st.lists(st.integers(BASE, builder.written - 1), max_size=4)):
        builder.overwrite(at, data.draw(st.binary(min_size=1, max_size=30)))
    policy = data.draw(st.sampled_from(["stop", "skip", "growing", "stale"]))
    end = data.draw(st.integers(BASE, BASE + SIZE))
    limit = data.draw(st.integers(end, BASE + SIZE))
    results = []
    for kernels in (plain(), compiled()):
        told: list[BadPlace] = []
        skip = Skip(told.append, growing=policy == "growing", stale=policy == "stale")
        state = ReadState(BASE)
        bad = None if policy == "stop" else skip
        found = read(builder, state, end, limit=limit, kernels=kernels, bad=bad)
        results.append((found, told, state))
        assert state.at <= limit
        assert all(record < end for record in found)
        assert found == sorted(set(found))

    assert results[0] == results[1]


# --- single records ---


def test_records_are_read_one_by_one() -> None:
    builder = built()
    segment, third = segment_of(builder), builder.records[3]

    assert rows_at(segment, third.start, kernels=plain())["size"].tolist() == [len(third.raw)]
    assert len(rows_at(segment, third.start, 3, kernels=plain())) == 3
    assert not len(rows_at(segment, third.start + 1, kernels=plain()))
    assert not len(rows_at(segment, third.start, kernels=plain(), limit=third.end - 1))


@pytest.mark.parametrize("back_bytes", [200, SIZE])
def test_the_first_record_is_found_from_anywhere(back_bytes: int) -> None:
    builder = built()
    segment, limit = segment_of(builder), builder.written
    for start in range(BASE, limit):
        found = first_record(
            segment,
            start,
            limit,
            kernels=compiled(),
            options=CHECKED,
            limit=limit,
            back_bytes=back_bytes,
        )
        assert found == min((at for at in starts(builder) if at >= start), default=limit)
