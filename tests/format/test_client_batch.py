"""Client batches: as they come off the wire, and as the body of an inner batch."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_bytes import records
from golden_stores import rows
from orbitmq.errors import FormatError
from orbitmq.format.client_batch import (
    ClientMessage,
    decode_client_batch,
    encode_client_batch,
    iter_client_batch,
)
from orbitmq.format.record import decode_record
from orbitmq.message import Property, SysFlag

messages = st.builds(
    ClientMessage,
    st.binary(max_size=60),
    st.binary(max_size=60),
    st.integers(-(2**31), 2**31 - 1),
)
ONE = encode_client_batch([ClientMessage(b"body", b"A\x01B\x02", 7)])


def test_layout_of_one_message():
    assert struct.pack(">iiiii", 30, 0, 0, 7, 4) + b"body" + b"\x00\x04A\x01B\x02" == ONE


@given(st.lists(messages, max_size=6))
def test_round_trip(batch):
    assert decode_client_batch(encode_client_batch(batch)) == batch


def test_nothing_is_an_empty_batch():
    assert decode_client_batch(b"") == []


@given(st.lists(messages, min_size=1, max_size=3), st.data())
def test_a_cut_batch_yields_the_whole_messages_and_then_fails(batch, data):
    sizes = [len(encode_client_batch([message])) for message in batch]
    cut = data.draw(st.integers(1, sum(sizes) - 1))
    whole = [message for i, message in enumerate(batch) if sum(sizes[: i + 1]) <= cut]
    if sum(sizes[: len(whole)]) == cut:
        return

    found = []
    with pytest.raises(FormatError):  # noqa: PT012
        for message in iter_client_batch(encode_client_batch(batch)[:cut]):
            found.append(message)
    assert found == whole


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (16, struct.pack(">i", -1)),
        (16, struct.pack(">i", 2**31 - 1)),
        (16, struct.pack(">i", 9)),
        (16, struct.pack(">i", 3)),
        (24, b"\xff\xff"),
        (24, b"\x00\x05"),
        (24, b"\x00\x03"),
    ],
)
def test_lengths_that_do_not_add_up(at, value):
    broken = ONE[:at] + value + ONE[at + len(value) :]

    with pytest.raises(FormatError):
        decode_client_batch(broken)


def test_a_body_of_negative_length_is_refused_though_the_rest_would_add_up():
    # Eight bytes back the flag stands: taken for the length of properties that end where the batch does.
    batch = struct.pack(">iiiii", 0, 0, 0, 8 << 16, -8) + bytes(2)

    with pytest.raises(FormatError):
        decode_client_batch(batch)


@given(st.binary(min_size=12, max_size=12))
def test_size_magic_and_crc_are_not_looked_at(anything):
    assert decode_client_batch(anything + ONE[12:]) == [ClientMessage(b"body", b"A\x01B\x02", 7)]


def test_values_that_do_not_fit():
    with pytest.raises(FormatError):
        encode_client_batch([ClientMessage(b"", b"x" * 32768)])
    with pytest.raises(FormatError):
        encode_client_batch([ClientMessage(b"", b"", 2**31)])


def test_golden_inner_batches_hold_as_many_messages_as_they_say():
    batches = 0
    for _, raw in records("batchcq", rows("batchcq", "record")):
        record = decode_record(raw)
        if not record.sys_flag & SysFlag.INNER_BATCH:
            continue
        batch = decode_client_batch(record.body)
        assert len(batch) == int(record.property_map[Property.INNER_NUM])
        assert int(record.property_map[Property.INNER_BASE]) == record.queue_offset
        assert encode_client_batch(batch) == record.body
        batches += 1

    assert batches == 145
