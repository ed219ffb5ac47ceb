"""Messages as they come back."""

import zlib

import pytest

from golden_frames import frames
from orbitmq.client.core.message import decode_messages
from orbitmq.errors import FormatError
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.record import encode_record
from orbitmq.message import AppendRequest, Host

STORE_HOST = Host(b"\x7f\x00\x00\x02", 10911)


def stored(body: bytes = b"body", properties: bytes = b"", sys_flag: int = 0, **more) -> bytes:
    request = AppendRequest("T", 3, body, properties, sys_flag=sys_flag, born_ms=5, **more)
    return encode_record(request, log_offset=77, queue_offset=10, store_ms=9, store_host=STORE_HOST)


def test_a_pull_answer_of_a_java_broker_is_decoded():
    answers = [
        frame.command
        for frame in frames("java-json/read-back")
        if not frame.to_server and frame.request_code == 11 and frame.command.code == 0
    ]

    messages = [message for answer in answers for message in decode_messages(answer.body, "b")]

    assert len(messages) > 20
    assert {message.broker_name for message in messages} == {"b"}
    tagged = next(message for message in messages if message.body == b"tag and key")
    assert (tagged.tag, tagged.keys) == ("TagA", ["key-1"])
    assert tagged.message_id == tagged.properties["UNIQ_KEY"]
    assert tagged.store_host == "127.0.0.2:11311"
    assert len(tagged.offset_id) == 32
    packed = [message for message in messages if message.sys_flag & 0x300]
    assert len(packed) >= 3
    assert all(not message.sys_flag & 1 and len(message.body) >= 4096 for message in packed)


def test_all_fields_are_there():
    (message,) = decode_messages(stored(b"x", b"KEYS\x01a b\x02TAGS\x01t\x02"), "broker-a")

    assert (message.topic, message.queue_id, message.queue_offset) == ("T", 3, 10)
    assert (message.log_offset, message.born_ms, message.store_ms) == (77, 5, 9)
    assert (message.keys, message.tag) == (["a", "b"], "t")
    assert message.message_id == message.offset_id == "7F00000200002A9F000000000000004D"
    assert message.queue.broker_name == "broker-a"


def test_a_body_that_cannot_be_unpacked_is_kept_with_its_bit():
    (message,) = decode_messages(stored(b"not zlib", sys_flag=1))

    assert (message.body, message.sys_flag & 1) == (b"not zlib", 1)


def test_a_packed_body_loses_its_bit():
    (message,) = decode_messages(stored(zlib.compress(b"text"), sys_flag=0x301))

    assert (message.body, message.sys_flag) == (b"text", 0x300)


def test_an_inner_batch_becomes_its_messages():
    batch = encode_client_batch(
        [ClientMessage(b"a", b"KEYS\x011\x02", 4), ClientMessage(b"b", b"KEYS\x012\x02")]
    )

    first, second = decode_messages(stored(batch, sys_flag=0x40 | 0x80))

    assert (first.body, first.keys, first.flag, first.queue_offset) == (b"a", ["1"], 4, 10)
    assert (second.body, second.keys, second.flag, second.queue_offset) == (b"b", ["2"], 0, 11)


def test_broken_answers_are_errors():
    whole = stored()

    for broken in (whole[:-1], whole + b"x", b"\0" * 100):
        with pytest.raises(FormatError):
            decode_messages(broken)


def test_an_empty_answer_has_no_messages():
    assert decode_messages(b"") == []


def test_hosts_as_text():
    assert Host(b"\x7f\x00\x00\x01", 5).text() == "127.0.0.1:5"
    assert Host(bytes(15) + b"\x01", 5).text() == "[::1]:5"
