"""Fillers share a place: all of it is filled, and every queue keeps its order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.format.columns import ScanOptions, Stop
from orbitmq.format.kernels import plain
from orbitmq.format.record import BLANK_BYTES, decode_record
from orbitmq.store.recovery.lost_records import (
    FILLER_BYTES_MAX,
    FillStyle,
    LostRecord,
    arrange,
    encode_slots,
    lost_bytes_min,
    padding_bytes_min,
)

STYLE = FillStyle()


def test_a_known_record_keeps_its_place_and_padding_surrounds_it() -> None:
    lost = LostRecord(b"T", 0, 7, start=1500, size=300)

    arranged = arrange(1000, 2500, [lost], STYLE, closing=False)

    assert [(slot.start, slot.end, slot.lost) for slot in arranged.slots] == [
        (1000, 1500, None),
        (1500, 1800, lost),
        (1800, 2500, None),
    ]


def test_a_rest_too_small_for_padding_goes_to_its_neighbour() -> None:
    lost = LostRecord(b"T", 0, 7, start=1020, size=300)

    arranged = arrange(1000, 1330, [lost], STYLE, closing=False)

    assert [(slot.start, slot.end) for slot in arranged.slots] == [(1000, 1330)]


def test_nothing_fits_into_a_place_that_is_too_small() -> None:
    assert arrange(0, 50, [], STYLE, closing=False).slots == ()


def test_who_has_no_place_comes_between_the_right_neighbours_of_its_queue() -> None:
    known = [LostRecord(b"T", 0, 5, 400, 200), LostRecord(b"T", 0, 8, 1000, 200)]
    others = [LostRecord(b"T", 0, number) for number in (6, 7, 9)]

    arranged = arrange(0, 2000, [*known, *others], STYLE, closing=False)

    numbers = [slot.lost.queue_offset for slot in arranged.slots if slot.lost]
    assert numbers == [5, 6, 7, 8, 9]
    assert arranged.left_out == ()


def test_numbers_matter_more_than_places() -> None:
    known = [LostRecord(b"T", 0, 5, 0, 300)]  # no room before it for the record that comes first
    others = [LostRecord(b"T", 0, 4)]

    arranged = arrange(0, 300, [*known, *others], STYLE, closing=False)

    assert [slot.lost.queue_offset for slot in arranged.slots if slot.lost] == [4, 5]


def test_what_finds_no_room_is_named() -> None:
    others = [LostRecord(b"T", 0, number) for number in range(5)]

    arranged = arrange(0, 250, others, STYLE, closing=False)

    assert [lost.queue_offset for lost in arranged.left_out] == [2, 3, 4]


def test_a_place_that_closes_its_segment_keeps_room_for_the_blank() -> None:
    others = [LostRecord(b"T", 0, 0)]
    size = lost_bytes_min(others[0], STYLE)

    fits = arrange(0, size + BLANK_BYTES, others, STYLE, closing=True)
    fits_not = arrange(0, size + BLANK_BYTES - 1, others, STYLE, closing=True)

    assert fits.end == size
    assert fits_not.slots == ()


def test_large_padding_is_cut_into_pieces() -> None:
    end = 2 * FILLER_BYTES_MAX + 10

    arranged = arrange(0, end, [], STYLE, closing=False)

    sizes = [slot.end - slot.start for slot in arranged.slots]
    assert sum(sizes) == end
    assert max(sizes) <= FILLER_BYTES_MAX + padding_bytes_min(STYLE)


def test_a_lost_record_without_properties_gets_a_record_without_a_mark() -> None:
    lost = LostRecord(b"Topic", 3, 7, start=0, size=100)

    data = encode_slots(arrange(0, 100, [lost], STYLE, closing=False).slots, 5, STYLE)

    record = decode_record(data)
    assert (record.size, record.topic, record.queue_offset) == (100, "Topic", 7)
    assert not record.is_filler


def test_fillers_of_a_store_with_property_crc_have_one() -> None:
    style = FillStyle(property_crc=True)
    lost = [LostRecord(b"T", 0, 0)]

    data = encode_slots(arrange(0, 400, lost, style, closing=False).slots, 5, style)

    assert decode_record(data, check_property_crc=True).is_filler


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, list[LostRecord]]:
    end = draw(st.integers(120, 5000))
    lost = {}
    for _ in range(draw(st.integers(0, 15))):
        topic = draw(st.sampled_from([b"T", b"Longer"]))
        number = draw(st.integers(0, 30))
        start = draw(st.integers(-1, end))
        size = draw(st.integers(100, 600)) if start >= 0 else 0
        lost[topic, number] = LostRecord(topic, 0, number, start, size)
    return end, list(lost.values())


@settings(max_examples=300, deadline=None)
@given(cases())
def test_the_place_is_filled_with_records_that_scan(case: tuple[int, list[LostRecord]]) -> None:
    end, lost = case

    arranged = arrange(0, end, lost, STYLE, closing=False)
    data = np.frombuffer(encode_slots(arranged.slots, 5, STYLE), dtype=np.uint8)

    scanned = plain().scan(data, 0, len(data), 0, ScanOptions(check_crc=True, check_offset=True))
    assert (arranged.end, scanned.stop, scanned.stop_at) == (end, Stop.END, end)
    placed = [slot.lost for slot in arranged.slots if slot.lost is not None]
    keys = {(one.topic, one.queue_offset) for one in placed}
    assert len(keys) == len(placed)
    assert keys | {(one.topic, one.queue_offset) for one in arranged.left_out} == {
        (one.topic, one.queue_offset) for one in lost
    }
    for topic in (b"T", b"Longer"):
        numbers = [one.queue_offset for one in placed if one.topic == topic]
        assert numbers == sorted(numbers)
