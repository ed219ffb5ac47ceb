"""The consume queue unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import files
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.cq_unit import (
    PADDING,
    UNIT_BYTES,
    CqUnit,
    decode_unit,
    decode_units,
    rounded_file_bytes,
    tag_hash,
)

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
units = st.builds(CqUnit, int64, int32, int64)


@pytest.mark.feature("F12")
def test_golden_vector():
    unit = CqUnit(0, 139, tag_hash("TagA"))

    assert unit.encode().hex() == "00000000000000000000008b000000000027a807"
    assert decode_unit(unit.encode()) == unit


def test_padding_vector():
    assert PADDING.hex() == "00000000000000007fffffff0000000000000000"
    assert decode_unit(PADDING).is_padding
    assert decode_unit(PADDING).is_valid
    assert not CqUnit(0, 139, 0).is_padding


def test_negative_tag_hash_is_sign_extended():
    assert CqUnit(0, 1, tag_hash("polygenelubricants")).encode()[12:].hex() == "ffffffff80000000"


@pytest.mark.parametrize("tags", [None, ""])
def test_no_tag_hashes_to_zero(tags):
    assert tag_hash(tags) == 0


@given(st.lists(units))
def test_unit_n_lies_at_twenty_times_n(all_units):
    raw = b"".join(unit.encode() for unit in all_units)

    assert [decode_unit(raw, UNIT_BYTES * n) for n in range(len(all_units))] == all_units
    assert decode_units(raw) == all_units


def test_zeros_are_not_a_written_unit():
    assert not decode_unit(bytes(20)).is_valid
    assert not CqUnit(-1, 5, 0).is_valid
    assert CqUnit(0, 1, 0).is_valid


@pytest.mark.parametrize("position", [-1, 1, 20])
def test_positions_without_room(position):
    with pytest.raises(FormatError):
        decode_unit(PADDING, position)


def test_part_of_a_unit_is_an_error():
    with pytest.raises(FormatError):
        decode_units(PADDING + b"x")


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        CqUnit(0, 2**31, 0).encode()


def test_file_sizes_are_whole_units():
    assert [rounded_file_bytes(n) for n in (1, 20, 21, 2000)] == [20, 20, 40, 2000]


@pytest.mark.feature("F12")
@pytest.mark.parametrize("store", ["mixed", "propcrc", "timer", "indexroll"])
def test_unit_n_of_every_golden_queue(store):
    queue_files = files(store, "consumequeue")
    checked = 0
    for row in rows(store, "queue"):
        prefix = f"{row['topic']}/{row['queueId']}/"
        named = [(path, data) for path, data in queue_files.items() if path.startswith(prefix)]
        assert named or not row["units"]
        base = int(named[0][0].removeprefix(prefix)) if named else 0
        raw = b"".join(data for _, data in named)
        for number, unit in enumerate(row["units"], row["minOffset"]):
            found = decode_unit(raw, UNIT_BYTES * number - base)
            assert list(found) == unit
            assert raw[UNIT_BYTES * number - base :][:20] == found.encode()
            checked += 1

    assert checked > 200
