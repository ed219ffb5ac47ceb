"""The CRC over a whole record, in its last property."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import records
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.crc import masked_crc32
from orbitmq.format.properties import decode_properties
from orbitmq.format.property_crc import crc_tail, property_crc_matches, ready_for_crc
from orbitmq.format.record import decode_record, encode_record
from orbitmq.message import AppendRequest, Host, Property

BROKER = Host(b"\x7f\0\0\1", 10911)
PLACE = {
    "log_offset": 0,
    "queue_offset": 5,
    "store_ms": 1700000000123,
    "store_host": BROKER,
    "property_crc": True,
}


def vector_request(properties=b"KEYS\x01order_123\x02TAGS\x01TagA\x02"):
    return AppendRequest(
        topic="TopicTest",
        queue_id=1,
        body=b"Hello RocketMQ",
        properties=properties,
        born_ms=1700000000000,
        born_host=Host(b"\x7f\0\0\1", 54321),
    )


def test_golden_vector():
    raw = encode_record(vector_request(), **PLACE)

    assert len(raw) == 159
    assert len(decode_record(raw).properties) == 45
    assert masked_crc32(raw[:139]) == 882565688
    assert raw[139:].hex() == "5f5f435243333223013838363536353238383002"


def test_digits_stand_in_reverse_and_are_filled_with_zeros():
    assert crc_tail(0) == b"__CRC32#\x010000000000\x02"
    assert crc_tail(120) == b"__CRC32#\x010210000000\x02"
    assert crc_tail(2**31 - 1) == b"__CRC32#\x017463847412\x02"


@pytest.mark.parametrize(
    ("given_properties", "expected"),
    [
        (b"", b""),
        (b"A\x01B\x02", b"A\x01B\x02"),
        (b"A\x01B", b"A\x01B\x02"),
        (b"A\x01B\x02__CRC32#\x0112\x02C\x01D", b"A\x01B\x02C\x01D\x02"),
        (b"__CRC32#\x0112\x02", b""),
    ],
    ids=["empty", "ready", "separator missing", "another's CRC", "nothing but a CRC"],
)
def test_properties_are_made_ready(given_properties, expected):
    assert ready_for_crc(given_properties) == expected


@given(st.binary(max_size=40), st.dictionaries(st.sampled_from("ABCD"), st.just("v")), st.data())
def test_any_changed_byte_is_found(body, properties, data):
    request = vector_request("".join(f"{k}\x01{v}\x02" for k, v in properties.items()).encode())
    request.body = body
    raw = bytearray(encode_record(request, **PLACE))
    at = data.draw(st.integers(0, len(raw) - 1))

    assert property_crc_matches(raw)
    raw[at] ^= data.draw(st.integers(1, 255))
    assert not property_crc_matches(raw)


def test_record_without_the_property_fails_when_it_is_asked_for():
    raw = encode_record(vector_request(), **(PLACE | {"property_crc": False}))

    with pytest.raises(FormatError, match="property CRC"):
        decode_record(raw, check_property_crc=True)


def test_too_few_bytes_do_not_match():
    assert not property_crc_matches(b"")
    assert not property_crc_matches(b"\0" * 19)


def test_every_record_of_the_golden_store_matches_and_is_made_again():
    count = 0
    for row, raw in records("propcrc", rows("propcrc", "record")):
        record = decode_record(raw, check_property_crc=True)
        place = {
            "log_offset": row["phyOffset"],
            "queue_offset": record.queue_offset,
            "store_ms": record.store_ms,
            "store_host": record.store_host,
        }
        assert encode_record(record.to_request(), **place, property_crc=True) == raw
        assert Property.CRC32 in decode_properties(record.properties)
        count += 1

    assert count == 267
