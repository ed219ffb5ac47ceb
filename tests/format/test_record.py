"""The record: golden bytes, round trips, and every way in which it can be broken."""

import hashlib
import struct
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import records, segments
from golden_stores import STORES, rows
from orbitmq.errors import FormatError
from orbitmq.format.record import (
    BLANK_MAGIC,
    BODY_AT,
    BODY_CRC_AT,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
    decode_blank,
    decode_record,
    encode_blank,
    encode_record,
    record_size,
    store_ms_at,
)
from orbitmq.message import AppendRequest, Host, SysFlag

VECTOR_1 = bytes.fromhex(
    "0000008bdaa320a769c865ed000000010000000000000000000000050000000000000000000000000000018bcfe56800"
    "7f0000010000d4310000018bcfe5687b7f00000100002a9f0000000000000000000000000000000e48656c6c6f20526f"
    "636b65744d5109546f7069635465737400194b455953016f726465725f3132330254414753015461674102"
)
VECTOR_REQUEST = AppendRequest(
    topic="TopicTest",
    queue_id=1,
    body=b"Hello RocketMQ",
    properties=b"KEYS\x01order_123\x02TAGS\x01TagA\x02",
    born_ms=1700000000000,
    born_host=Host(b"\x7f\0\0\1", 54321),
)
BROKER = Host(b"\x7f\0\0\1", 10911)
PLACE = {"log_offset": 0, "queue_offset": 5, "store_ms": 1700000000123, "store_host": BROKER}

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.builds(
    Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), int32
)
topics = st.text("abcXYZ%_-0123", max_size=255)
requests = st.builds(
    AppendRequest,
    topic=topics,
    queue_id=int32,
    body=st.binary(max_size=200),
    properties=st.binary(max_size=100),
    flag=int32,
    sys_flag=int32,
    born_ms=int64,
    born_host=hosts,
    store_host=hosts,
    reconsume_times=int32,
    prepared_offset=int64,
)


def damaged(at, value, raw=VECTOR_1):
    return raw[:at] + value + raw[at + len(value) :]


@pytest.mark.feature("F3")
def test_golden_vector_of_version_1():
    raw = encode_record(VECTOR_REQUEST, **PLACE)

    assert raw == VECTOR_1
    assert len(raw) == 139 == record_size(14, 9, 25)


def test_golden_vector_of_version_2():
    raw = encode_record(VECTOR_REQUEST, **PLACE, version=2)

    assert len(raw) == 140 == record_size(14, 9, 25, version=2)
    assert raw[4:8].hex() == "daa320ab"
    assert raw[BODY_AT + 14 :].startswith(b"\x00\x09TopicTest")
    assert decode_record(raw).version == 2


def test_golden_vector_of_a_blank():
    assert encode_blank(200).hex() == "000000c8cbd43194"
    assert decode_blank(encode_blank(200)) == 200
    assert decode_blank(VECTOR_1) is None
    assert decode_blank(b"\0" * 7) is None
    assert decode_blank(encode_blank(8), -1) is None


@pytest.mark.parametrize("size", [7, -1, 2**31])
def test_a_blank_has_at_least_its_own_eight_bytes(size):
    with pytest.raises(FormatError, match="blank"):
        encode_blank(size)


@pytest.mark.feature("F3")
@given(requests, int64, int64, int64)
def test_round_trip_keeps_every_field(request, log_offset, queue_offset, store_ms):
    place = {"log_offset": log_offset, "queue_offset": queue_offset, "store_ms": store_ms}

    raw = encode_record(request, **place, store_host=BROKER)
    record = decode_record(raw)

    for name in ("topic", "queue_id", "body", "properties", "flag", "born_ms", "born_host"):
        assert getattr(record, name) == getattr(request, name)
    assert record.store_host == request.store_host
    assert record.reconsume_times == request.reconsume_times
    assert record.prepared_offset == request.prepared_offset
    assert record.size == len(raw)
    assert (record.log_offset, record.queue_offset, record.store_ms) == tuple(place.values())
    host_bits = SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    assert record.sys_flag & ~host_bits == request.sys_flag & ~host_bits
    assert encode_record(record.to_request(), **place, store_host=BROKER) == raw


@pytest.mark.feature("F4")
@pytest.mark.parametrize("born_bytes", [4, 16])
@pytest.mark.parametrize("store_bytes", [4, 16])
@pytest.mark.parametrize("topic_length", [1, 127, 128, 255])
def test_topic_length_and_host_combinations(topic_length, born_bytes, store_bytes):
    request = AppendRequest(
        topic="%RETRY%".ljust(topic_length, "x")[:topic_length],
        queue_id=3,
        body=b"body",
        properties=b"A\x01B\x02",
        born_host=Host(bytes(range(born_bytes)), 1),
        store_host=Host(bytes(range(100, 100 + store_bytes)), 2),
    )

    record = decode_record(encode_record(request, **PLACE))

    version = 1 if topic_length <= 127 else 2
    overhead = (91, 92)[version - 1] + born_bytes - 4 + store_bytes - 4
    assert record.size == overhead + 4 + topic_length + 4
    assert record.version == version
    assert bool(record.sys_flag & SysFlag.BORN_HOST_V6) == (born_bytes == 16)
    assert bool(record.sys_flag & SysFlag.STORE_HOST_V6) == (store_bytes == 16)
    assert (record.born_host, record.store_host) == (request.born_host, request.store_host)
    assert (record.topic, record.body) == (request.topic, b"body")
    assert store_ms_at(encode_record(request, **PLACE)) == PLACE["store_ms"]


def test_stale_host_bits_of_a_request_do_not_count():
    request = AppendRequest("T", 0, b"", sys_flag=0x30 | 0x80)

    assert decode_record(encode_record(request, **PLACE)).sys_flag == 0x80


@pytest.mark.parametrize(
    "change",
    [
        {"properties": b"x" * 32768},
        {"queue_id": 2**31},
        {"born_ms": 2**63},
        {"topic": "x" * 32768},
        {"born_host": Host(b"abc", 1)},
        {"born_host": Host(b"\0" * 4, 2**31)},
    ],
    ids=["properties", "queue_id", "born_ms", "topic", "address", "port"],
)
def test_values_that_do_not_fit_are_refused(change):
    request = VECTOR_REQUEST.__class__(
        **{name: getattr(VECTOR_REQUEST, name) for name in VECTOR_REQUEST.__slots__} | change
    )

    with pytest.raises(FormatError):
        encode_record(request, **PLACE)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "no room"),
        (VECTOR_1[:7], "no room"),
        (VECTOR_1[:-1], "139 bytes, 138 bytes left"),
        (damaged(0, struct.pack(">i", -1)), "-1 bytes"),
        (damaged(0, struct.pack(">i", 90)), "90 bytes"),
        (damaged(0, struct.pack(">i", 138)), "24 bytes left"),
        (damaged(0, struct.pack(">i", 140), VECTOR_1 + b"\0"), "fields of 139"),
        (damaged(MAGIC_AT, struct.pack(">i", BLANK_MAGIC)), "end of segment"),
        (damaged(MAGIC_AT, b"\0\0\0\0"), "unknown magic 0x00000000"),
        (damaged(BODY_CRC_AT, b"\0\0\0\0"), "CRC"),
        (damaged(84, struct.pack(">i", -1)), "body of -1"),
        (damaged(84, struct.pack(">i", 0x7FFFFFFF)), "body of 2147483647"),
        (damaged(84, struct.pack(">i", 51)), "before the length of its topic"),
        (damaged(84, struct.pack(">i", 50)), "topic of 2 bytes"),
        (damaged(102, b"\xff"), "topic of -1"),
        (damaged(102, b"\x23"), "before the length of its properties"),
        (damaged(112, b"\xff\xff"), "properties of -1"),
        (damaged(112, b"\x00\x1a"), "properties of 26"),
        (damaged(112, b"\x00\x18"), "fields of 138"),
        (damaged(SYS_FLAG_AT + 3, b"\x10"), "body of|topic of|properties of|before|fields"),
    ],
)
def test_broken_records_give_a_reason(raw, reason):
    with pytest.raises(FormatError, match=reason):
        decode_record(raw)


def test_a_record_too_short_for_its_hosts():
    raw = damaged(0, struct.pack(">i", 95), VECTOR_1)
    raw = damaged(SYS_FLAG_AT + 3, b"\x30", raw)

    with pytest.raises(FormatError, match="ends before its body"):
        decode_record(raw)


@given(st.integers(-300, 300))
def test_positions_outside_the_buffer_are_format_errors(position):
    if position == 0:
        return
    with pytest.raises(FormatError) as caught:
        decode_record(VECTOR_1, position)
    assert caught.value.position >= position


@pytest.mark.feature("F5")
@given(st.integers(BODY_AT, BODY_AT + 13), st.integers(0, 7))
def test_one_flipped_body_bit_fails_the_check(at, bit):
    raw = damaged(at, bytes([VECTOR_1[at] ^ 1 << bit]))

    with pytest.raises(FormatError, match="CRC") as caught:
        decode_record(raw)

    assert caught.value.position == BODY_CRC_AT
    assert decode_record(raw, check_crc=False).body != b"Hello RocketMQ"


@pytest.mark.feature("F5")
def test_an_unknown_magic_stops_a_scan():
    _, segment = segments("mixed")[0]
    whole = [record.log_offset for record in scan(0, segment)]
    broken = damaged(whole[10] + MAGIC_AT, b"\xda\xa3\x20\xa8", segment)

    assert [record.log_offset for record in scan(0, broken)] == whole[:10]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_any_buffer_any_position_and_trailing_bytes(kind):
    if kind is np.frombuffer:
        buffer = np.frombuffer(b"xyz" + VECTOR_1 + b"tail", dtype=np.uint8)
    else:
        buffer = kind(b"xyz" + VECTOR_1 + b"tail")

    assert decode_record(buffer, 3) == decode_record(VECTOR_1)
    assert store_ms_at(buffer, 3) == 1700000000123


@pytest.mark.parametrize("position", [-1, 139 - 75, 139])
def test_store_time_outside_the_buffer(position):
    with pytest.raises(FormatError, match="no room"):
        store_ms_at(VECTOR_1, position)


def test_malformed_utf8_is_replaced():
    record = decode_record(damaged(103, b"\xff"))

    assert record.topic == "\ufffdopicTest"


def test_what_a_record_says_of_its_properties():
    properties = b"KEYS\x01a  b \x02TAGS\x01t\x02UNIQ_KEY\x01u\x02ORBITMQ_FILLER\x011\x02"
    raw = encode_record(AppendRequest("T", 0, b"", properties), **PLACE)
    record = decode_record(raw)

    assert (record.tags, record.keys, record.unique_key) == ("t", ["a", "b"], "u")
    assert record.is_filler
    assert record.property_map["KEYS"] == "a  b "

    bare = decode_record(encode_record(AppendRequest("T", 0, b""), **PLACE))
    assert (bare.tags, bare.keys, bare.unique_key, bare.is_filler) == (None, [], None, False)


def test_named_positions():
    assert struct.unpack_from(">q", VECTOR_1, QUEUE_OFFSET_AT) == (5,)
    raw = encode_record(VECTOR_REQUEST, **(PLACE | {"log_offset": 77}))
    assert struct.unpack_from(">q", raw, LOG_OFFSET_AT) == (77,)


def scan(position, segment):
    """Yield the records of a segment, up to its blank or the first place that is no record."""
    while True:
        try:
            record = decode_record(segment, position)
        except FormatError:
            return
        yield record
        position += record.size


def host_text(host):
    return f"{'.'.join(map(str, host.address))}:{host.port}"


def as_manifest_row(log_offset, raw):
    record = decode_record(raw)
    return {
        "type": "record",
        "phyOffset": log_offset,
        "size": record.size,
        "magic": f"{record.magic & 0xFFFFFFFF:08x}",
        "storedPhyOffset": record.log_offset,
        "bodyCRC": record.body_crc,
        "queueId": record.queue_id,
        "flag": record.flag,
        "queueOffset": record.queue_offset,
        "sysFlag": record.sys_flag,
        "bornTimestamp": record.born_ms,
        "bornHost": host_text(record.born_host),
        "storeTimestamp": record.store_ms,
        "storeHost": host_text(record.store_host),
        "reconsumeTimes": record.reconsume_times,
        "preparedTransactionOffset": record.prepared_offset,
        "bodyLength": len(record.body),
        "bodySha256": hashlib.sha256(record.body).hexdigest(),
        "topic": record.topic,
        "properties": record.property_map,
        "propertiesLength": len(record.properties),
        "propertiesString": record.properties.decode("utf-8", "replace"),
        "offsetMsgId": record.offset_id,
        "recordSha256": hashlib.sha256(raw).hexdigest(),
    }


@pytest.mark.feature("F3", "F6")
@pytest.mark.parametrize("store", STORES)
def test_every_golden_record_equals_its_manifest_line(store):
    expected = rows(store, "record")

    for row, raw in records(store, expected):
        assert as_manifest_row(row["phyOffset"], raw) == row

    assert len(expected) >= 200


@pytest.mark.parametrize("store", STORES)
def test_every_golden_record_is_made_again_byte_for_byte(store):
    for row, raw in records(store, rows(store, "record")):
        record = decode_record(raw)
        again = encode_record(
            record.to_request(),
            log_offset=row["phyOffset"],
            queue_offset=record.queue_offset,
            store_ms=record.store_ms,
            store_host=BROKER,
        )
        assert again == raw


@pytest.mark.parametrize("store", STORES)
def test_scan_of_all_golden_segments_finds_every_record_and_blank(store):
    found, blanks = [], []
    for base, segment in segments(store):
        end = 0
        for record in scan(0, segment):
            found.append(base + end)
            end += record.size
        blank = decode_blank(segment, end)
        if blank is not None:
            assert end + blank == len(segment)
            blanks.append((base + end, blank))

    assert found == [row["phyOffset"] for row in rows(store, "record")]
    assert blanks == [(row["phyOffset"], row["size"]) for row in rows(store, "blank")]
    assert all(b[0] - a[0] == len(a[1]) for a, b in pairwise(segments(store)))


def test_both_versions_are_among_the_golden_records():
    magics = {row["magic"] for row in rows("mixed", "record")}

    assert magics == {f"{magic & 0xFFFFFFFF:08x}" for magic in (MAGIC_V1, MAGIC_V2)}
