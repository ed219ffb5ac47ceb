"""The two kinds of message ids."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import joined_log
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.message_id import (
    UniqueId,
    UniqueIds,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    month_range,
)
from orbitmq.format.record import decode_record
from orbitmq.message import Host

addresses = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
hosts = st.builds(Host, addresses, st.integers(-(2**31), 2**31 - 1))
unique_ids = st.builds(
    UniqueId,
    addresses,
    st.integers(0, 2**16 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 2**16 - 1),
)
BROKER = Host(b"\x7f\0\0\1", 10911)


class Moment:
    """A clock that stands still."""

    def __init__(self, now_ms):
        self.ms = now_ms

    def now_ms(self):
        return self.ms


@pytest.fixture
def _utc(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_golden_vectors():
    assert encode_offset_id(BROKER, 0) == "7F00000100002A9F0000000000000000"
    assert encode_offset_id(BROKER, 1 << 30) == "7F00000100002A9F0000000040000000"


@given(hosts, st.integers(0, 2**63 - 1))
def test_offset_id_round_trip(host, log_offset):
    text = encode_offset_id(host, log_offset)

    assert len(text) == (32 if len(host.address) == 4 else 56)
    assert decode_offset_id(text) == decode_offset_id(text.lower()) == (host, log_offset)


@pytest.mark.feature("F52")
def test_golden_ids_lead_to_their_record_without_an_index():
    base, log = joined_log("mixed")
    expected = rows("mixed", "record")

    for row in expected:
        host, log_offset = decode_offset_id(row["offsetMsgId"])
        record = decode_record(log, log_offset - base)
        assert f"{'.'.join(map(str, host.address))}:{host.port}" == row["storeHost"]
        assert (record.topic, record.store_ms) == (row["topic"], row["storeTimestamp"])
        assert record.offset_id == row["offsetMsgId"]

    assert len(expected) == 3970


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 31,
        "0" * 33,
        "0" * 31 + "G",
        "0" * 31 + " ",
        "00 " * 10 + "00",
        "0" * 16 + "F" * 16,
        "0" * 32 + "\n",
        "０" * 32,
    ],
)
def test_what_is_no_offset_id(text):
    with pytest.raises(FormatError):
        decode_offset_id(text)


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        encode_offset_id(BROKER, 2**63)
    with pytest.raises(FormatError):
        encode_offset_id(Host(b"abc", 1), 0)
    with pytest.raises(FormatError):
        UniqueId(b"abcd", 2**16, 0, 0, 0).encode()


@given(unique_ids)
def test_unique_id_round_trip(parts):
    assert decode_unique_id(parts.encode()) == parts


@pytest.mark.usefixtures("_utc")
def test_golden_unique_keys_hold_the_time_since_the_month_began():
    checked = 0
    for row in rows("mixed", "record")[:500]:
        key = row["properties"].get("UNIQ_KEY", "")
        if not key or row["reconsumeTimes"] or "," in key:
            continue
        parts = decode_unique_id(key)
        month_start, _ = month_range(row["bornTimestamp"])
        assert parts.encode() == key
        assert abs(parts.month_ms - (row["bornTimestamp"] - month_start)) < 60_000
        checked += 1

    assert checked > 100


@pytest.mark.usefixtures("_utc")
def test_ids_count_up_from_zero_and_carry_the_time():
    month_start = 1793491200000  # 2026-11-01T00:00Z
    ids = UniqueIds(b"\x0a\0\0\1", 0x12345, 0xDEADBEEF, Moment(month_start + 1234))

    first, second = decode_unique_id(ids.next_id()), decode_unique_id(ids.next_id())

    assert first == UniqueId(b"\x0a\0\0\1", 0x2345, 0xDEADBEEF, 1234, 0)
    assert second == first._replace(counter=1)


@pytest.mark.usefixtures("_utc")
def test_counter_wraps_at_16_bits():
    ids = UniqueIds(b"\x0a\0\0\1", 1, 1, Moment(1793491200000))
    for _ in range(2**16):
        last = ids.next_id()

    assert decode_unique_id(last).counter == 0xFFFF
    assert decode_unique_id(ids.next_id()).counter == 0


@pytest.mark.usefixtures("_utc")
def test_a_new_month_starts_again_from_zero():
    clock = Moment(1793491200000 - 5)
    ids = UniqueIds(b"\x0a\0\0\1", 1, 1, clock)
    before = decode_unique_id(ids.next_id()).month_ms

    clock.ms += 12
    after = decode_unique_id(ids.next_id()).month_ms

    assert before == (31 * 86_400_000 - 5) - 2**32  # Java's int has wrapped
    assert after == 7


@pytest.mark.usefixtures("_utc")
def test_a_clock_that_steps_back_over_the_month_counts_as_zero():
    clock = Moment(1793491200000 + 5)
    ids = UniqueIds(b"\x0a\0\0\1", 1, 1, clock)

    clock.ms -= 10

    assert decode_unique_id(ids.next_id()).month_ms == 0


@pytest.mark.usefixtures("_utc")
def test_month_range_ends_with_the_year():
    start, end = month_range(1798700000000)  # in December 2026

    assert (start, end) == (1796083200000, 1798761600000)
