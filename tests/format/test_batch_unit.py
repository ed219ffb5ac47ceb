"""The batch consume queue unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import files
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.batch_unit import BatchUnit, decode_unit, decode_units

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
units = st.builds(BatchUnit, int64, int32, int64, int64, int64, int16, int32, int32)


@given(st.lists(units))
def test_round_trip(all_units):
    raw = b"".join(unit.encode() for unit in all_units)

    assert decode_units(raw) == all_units
    assert [decode_unit(raw, 46 * n) for n in range(len(all_units))] == all_units


@pytest.mark.parametrize(
    ("unit", "valid"),
    [
        (BatchUnit(0, 100, 0, 1, 0, 1), True),
        (BatchUnit(-1, 100, 0, 1, 0, 1), False),
        (BatchUnit(0, 0, 0, 1, 0, 1), False),
        (BatchUnit(0, 100, 0, 1, -1, 1), False),
        (BatchUnit(0, 100, 0, 1, 0, 0), False),
        (decode_unit(bytes(46)), False),
    ],
)
def test_what_counts_as_written(unit, valid):
    assert unit.is_valid == valid


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        BatchUnit(0, 100, 0, 1, 0, 32768).encode()


@pytest.mark.parametrize("position", [-1, 1, 46])
def test_positions_without_room(position):
    with pytest.raises(FormatError):
        decode_unit(bytes(46), position)


def test_part_of_a_unit_is_an_error():
    with pytest.raises(FormatError):
        decode_units(bytes(47))


def test_every_golden_unit():
    queue_files = files("batchcq", "batchconsumequeue")
    by_place = {row["phyOffset"]: row for row in rows("batchcq", "record")}
    checked = 0
    for row in rows("batchcq", "queue"):
        if row["cqType"] != "BatchCQ":
            continue
        prefix = f"{row['topic']}/{row['queueId']}/"
        raw = b"".join(data for path, data in queue_files.items() if path.startswith(prefix))
        for number, expected in enumerate(row["units"]):
            unit = decode_unit(raw, 46 * number)
            where = [unit.log_offset, unit.size, unit.tag_hash, unit.base_offset]
            assert [*where, unit.message_count, unit.compacted_offset] == expected
            assert unit.store_ms == by_place[unit.log_offset]["storeTimestamp"]
            assert unit.is_valid
            assert unit.encode() == raw[46 * number : 46 * (number + 1)]
            checked += 1
        assert unit.end_offset == row["maxOffset"]

    assert checked == 200
