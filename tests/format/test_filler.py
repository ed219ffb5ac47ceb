"""Fillers: valid records of exactly the wanted size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.filler import encode_filler, filler_bytes_min
from orbitmq.format.record import decode_record
from orbitmq.message import LOOPBACK, Host

topics = st.text("abc%_", min_size=1, max_size=255).map(str.encode)


@given(
    topics, st.integers(0, 100), st.integers(0, 2**40), st.integers(0, 2**50), st.integers(0, 3000)
)
def test_filler_is_a_valid_record_of_the_size(topic, queue_id, queue_offset, log_offset, more):
    size = filler_bytes_min(topic) + more

    raw = encode_filler(topic, queue_id, queue_offset, log_offset, size, 1234)
    record = decode_record(raw)

    assert len(raw) == record.size == size
    assert record.is_filler
    assert (record.topic, record.queue_id) == (topic.decode(), queue_id)
    assert (record.queue_offset, record.log_offset) == (queue_offset, log_offset)
    assert (record.store_ms, record.born_ms) == (1234, 1234)
    assert record.body == bytes(more)
    assert record.born_host == record.store_host == LOOPBACK
    assert (record.tags, record.keys, record.unique_key) == (None, [], None)
    assert record.version == (1 if len(topic) <= 127 else 2)


@given(topics)
def test_a_size_below_the_smallest_is_refused(topic):
    with pytest.raises(FormatError, match="needs"):
        encode_filler(topic, 0, 0, 0, filler_bytes_min(topic) - 1, 0)


@pytest.mark.parametrize("size", [0, -5])
def test_impossible_sizes(size):
    with pytest.raises(FormatError):
        encode_filler(b"T", 0, 0, 0, size, 0)


def test_topic_that_is_not_utf8():
    with pytest.raises(FormatError, match="UTF-8"):
        encode_filler(b"\xff\xfe", 0, 0, 0, 500, 0)


def test_filler_of_a_half_message_of_an_inner_batch_and_with_property_crc():
    batch = {"INNER_BASE": "40", "INNER_NUM": "8"}

    raw = encode_filler(
        b"T",
        0,
        40,
        0,
        300,
        0,
        sys_flag=0x4,
        host=Host(b"\x0a\0\0\1", 10911),
        more_properties=batch,
        property_crc=True,
    )
    record = decode_record(raw, check_property_crc=True)

    assert record.size == 300
    assert record.sys_flag == 0x4
    assert record.store_host == Host(b"\x0a\0\0\1", 10911)
    assert batch.items() <= record.property_map.items()


def test_every_golden_record_leaves_room_for_its_filler():
    for row in rows("crashed", "record"):
        topic = row["topic"].encode()
        if row["size"] >= filler_bytes_min(topic):
            raw = encode_filler(topic, row["queueId"], row["queueOffset"], 0, row["size"], 0)
            assert len(raw) == row["size"]
