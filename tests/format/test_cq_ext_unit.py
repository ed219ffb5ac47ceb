"""The consume queue ext unit and its addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import files
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format import cq_unit
from orbitmq.format.cq_ext_unit import (
    ADDRESS_MAX,
    BITMAP_BYTES_MAX,
    END_MARK,
    ExtUnit,
    decode_ext_unit,
    ext_address,
    ext_offset,
    fits,
    is_ext_address,
)

int64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(ExtUnit, int64, int64, st.binary(max_size=300)), st.binary(), st.binary())
def test_round_trip_at_any_position(unit, before, behind):
    raw = unit.encode()

    assert len(raw) == unit.size == 20 + len(unit.bitmap)
    assert decode_ext_unit(before + raw + behind, len(before)) == unit


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        bytes(19),
        bytes(40),
        END_MARK.ljust(40, b"\0"),
        ExtUnit(1, 2, b"abc").encode()[:-1],
        b"\x00\x15" + ExtUnit(1, 2).encode()[2:] + b"x",
        ExtUnit(1, 2).encode()[:18] + b"\xff\xff",
    ],
    ids=["empty", "short", "zeros", "end mark", "cut bitmap", "size not the sum", "negative"],
)
def test_what_is_no_unit(raw):
    with pytest.raises(FormatError):
        decode_ext_unit(raw)


def test_negative_position():
    with pytest.raises(FormatError):
        decode_ext_unit(ExtUnit(1, 2).encode(), -1)


def test_largest_bitmap():
    assert decode_ext_unit(ExtUnit(0, 0, bytes(BITMAP_BYTES_MAX)).encode()).size == 32767
    with pytest.raises(FormatError):
        ExtUnit(0, 0, bytes(BITMAP_BYTES_MAX + 1)).encode()


def test_addresses_lie_below_every_hash():
    assert ext_address(0) == -(2**63)
    assert ext_address(9223372034707292159) == ADDRESS_MAX == -2147483649
    assert is_ext_address(ADDRESS_MAX)
    assert not is_ext_address(-(2**31))
    assert ext_offset(ext_address(1234)) == 1234


@pytest.mark.parametrize("offset", [-1, 9223372034707292160])
def test_offsets_without_an_address(offset):
    with pytest.raises(FormatError):
        ext_address(offset)


@pytest.mark.parametrize("address", [0, -(2**31), -(2**63) - 1])
def test_values_that_are_no_address(address):
    with pytest.raises(FormatError):
        ext_offset(address)


def test_room_for_the_end_mark_stays():
    assert fits(976, 44, 1024)
    assert not fits(977, 44, 1024)


def test_every_golden_ext_unit_is_found_through_its_queue_unit():
    queue_files, ext_files = files("ext", "consumequeue"), files("ext", "consumequeue_ext")
    sizes = set()
    for row in rows("ext", "queue"):
        prefix = f"{row['topic']}/{row['queueId']}/"
        raw = b"".join(data for path, data in queue_files.items() if path.startswith(prefix))
        ext = b"".join(data for path, data in ext_files.items() if path.startswith(prefix))
        for number, (_, _, tag_hash, expected) in enumerate(row["units"]):
            address = cq_unit.decode_unit(raw, cq_unit.UNIT_BYTES * number).tag_hash
            unit = decode_ext_unit(ext, ext_offset(address))
            assert [unit.tag_hash, unit.store_ms, unit.bitmap.hex() or None] == expected
            assert unit.tag_hash == tag_hash
            sizes.add(unit.size)

    assert sizes == {20, 34}


def test_golden_ext_files_are_units_up_to_the_end_mark():
    ended = 0
    for data in files("ext", "consumequeue_ext").values():
        position = 0
        while data[position : position + 2] not in (END_MARK, b"\0\0"):
            position += decode_ext_unit(data, position).size
        if data[position : position + 2] == END_MARK:
            ended += 1
            assert not fits(position, 34, len(data)) or not fits(position, 20, len(data))

    assert ended > 5
