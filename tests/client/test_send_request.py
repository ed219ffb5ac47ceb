"""Messages as send requests."""

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden_frames import decode_command, frames
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.producer.send_request import RequestMaker, split_batch
from orbitmq.errors import InvalidMessageError
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.format.compression import Compression
from orbitmq.format.message_id import UniqueIds
from orbitmq.format.properties import decode_properties
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_command
from orbitmq.wire.headers.send import SendHeader

QUEUE = MessageQueue("T", "broker-a", 3)

names = st.text(alphabet="abcXYZ019%|_-", min_size=1, max_size=20)
texts = st.text(max_size=20).filter(lambda text: "\x01" not in text and "\x02" not in text)


def maker(**settings) -> RequestMaker:
    clock = FakeClock()
    ids = UniqueIds(b"\x0a\x4d\x00\x05", 1, 2, clock)
    return RequestMaker("PG", ClientConfig(**settings), ids, clock)


def fields(request, **settings) -> dict[str, str]:
    """Return what a broker reads in the frame of a request."""
    return decode_command(maker(**settings).frame(request, QUEUE, 7)).fields or {}


def properties(request) -> dict[str, str]:
    return decode_properties(fields(request)["i"].encode())


def test_fields_are_those_that_a_java_producer_sends():
    java = [
        f.command for f in frames("java-json/producer") if f.to_server and f.request_code == 310
    ]
    sent = next(command for command in java if command.body == b"tag and key")

    request = maker().single(Message("GwBasicJ", b"tag and key", tag="TagA", keys=["key-1"]))

    assert fields(request).keys() == (sent.fields or {}).keys()
    ours, theirs = SendHeader.read_any(310, fields(request)), SendHeader.read_any(310, sent.fields)
    for name in ("topic", "default_topic", "default_topic_queue_nums", "sys_flag", "flag", "batch"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert (ours.reconsume_times, ours.unit_mode) == (theirs.reconsume_times, theirs.unit_mode)
    java_properties = decode_properties((theirs.properties or "").encode())
    assert properties(request) == java_properties | {"UNIQ_KEY": request.message_id}


def test_properties_of_all_kinds():
    message = Message(
        "T",
        b"x",
        tag=" A ",
        keys="k1 k2",
        properties={"user": "ü\x01y"},
        flag=7,
        delay_level=3,
        wait_stored=False,
        reserved={"RETRY_TOPIC": "R"},
    )

    request = maker().single(message)

    assert properties(request) == {
        "UNIQ_KEY": request.message_id,
        "WAIT": "false",
        "TAGS": "A",
        "KEYS": "k1 k2",
        "DELAY": "3",
        "user": "ü\x01y",
        "RETRY_TOPIC": "R",
    }
    assert fields(request)["h"] == "7"


def test_a_timer_message_carries_its_time():
    assert properties(maker().single(Message("T", b"x", deliver_ms=5)))["TIMER_DELIVER_MS"] == "5"


def test_a_transactional_message_has_its_flag():
    request = maker().single(Message("T", b"x", reserved={"TRAN_MSG": "true"}))

    assert fields(request)["f"] == "4"


@pytest.mark.parametrize(("size", "flag"), [(4095, 0), (4096, 0x301)])
def test_bodies_are_compressed_from_4096_bytes_on(size, flag):
    request = maker().single(Message("T", b"a" * size))

    assert int(fields(request)["f"]) == flag
    assert (zlib.decompress(request.body) if flag else request.body) == b"a" * size


@pytest.mark.parametrize(
    ("kind", "flag"),
    [(Compression.LZ4, 0x101), (Compression.ZSTD, 0x201), (Compression.ZLIB, 0x301)],
)
def test_each_compression_has_its_flag(kind, flag):
    request = maker(compression=kind).single(Message("T", b"a" * 5000))

    assert int(fields(request)["f"]) == flag


def test_retry_counts_stand_in_the_header_and_stay_in_the_properties():
    counts = {"RECONSUME_TIME": "4", "MAX_RECONSUME_TIMES": "16"}

    request = maker().single(Message("%RETRY%G", b"x", reserved=counts))

    assert (fields(request)["j"], fields(request)["l"]) == ("4", "16")
    assert properties(request).items() >= counts.items()


def test_a_batch_keeps_each_message_with_its_own_id():
    messages = [Message("T", b"a", keys=["1"], flag=9), Message("T", b"b" * 5000, tag="x")]

    request = maker().batch(messages)

    first, second = decode_client_batch(request.body)
    assert (first.body, first.flag, second.body) == (b"a", 9, b"b" * 5000)
    ids = [decode_properties(one.properties)["UNIQ_KEY"] for one in (first, second)]
    assert ids == request.message_ids
    assert len(set(ids)) == 2
    assert (fields(request)["m"], fields(request)["f"]) == ("true", "0")
    assert properties(request) == {"WAIT": "true"}  # an id here would replace those of the messages


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "at least one"),
        ([Message("T", b"x"), Message("U", b"x")], "one topic"),
        ([Message("T", b"x", delay_level=1)], "delayed"),
        ([Message("T", b"x", reserved={"TRAN_MSG": "true"})], "transactional"),
        ([Message("%RETRY%G", b"x")], "retry topic"),
        ([Message("T", b"x"), Message("T", b"")], "empty"),
        ([Message("T", b"x" * 3_000_000)] * 2, "split_batch"),
    ],
    ids=["nothing", "two topics", "delay", "transaction", "retry", "empty body", "too large"],
)
def test_what_cannot_be_a_batch_is_refused(messages, reason):
    with pytest.raises(InvalidMessageError, match=reason):
        maker().batch(messages)


def test_parts_of_a_batch_fit_and_keep_the_order():
    messages = [Message("T", bytes([n]) * (n * 10 + 1)) for n in range(50)]

    parts = list(split_batch(messages, bytes_max=2000))

    assert [message for part in parts for message in part] == messages
    assert all(len(maker().batch(part).body) <= 2000 for part in parts)
    assert len(parts) > 5


def test_a_message_larger_than_a_part_travels_alone():
    large, small = Message("T", b"x" * 5000), Message("T", b"y")

    assert list(split_batch([small, large, small], bytes_max=100)) == [[small], [large], [small]]


@given(
    topic=names,
    broker=st.text(min_size=1, max_size=20),
    tag=texts,
    body=st.binary(min_size=1, max_size=50),
    flag=st.integers(-(1 << 31), (1 << 31) - 1),
    queue_id=st.integers(0, 1000),
    opaque=st.integers(0, (1 << 31) - 1),
    batch=st.booleans(),
)
def test_a_frame_by_template_is_that_of_the_encoder(
    topic, broker, tag, body, flag, queue_id, opaque, batch
):
    made, queue = maker(), MessageQueue(topic, broker, queue_id)
    first = Message(topic, b"first", tag="another")
    message = Message(topic, body, tag=tag, flag=flag)
    made.frame(made.batch([first]) if batch else made.single(first), queue, 1)  # the template

    request = made.batch([message]) if batch else made.single(message)
    frame = made.frame(request, queue, opaque)

    command = Command(request.code, made.fields(request, queue), request.body, opaque)
    assert frame == encode_command(command)


def test_templates_of_topics_without_end_are_forgotten(monkeypatch):
    monkeypatch.setattr("orbitmq.client.producer.send_request._TEMPLATES_MAX", 3)
    made = maker()

    for number in range(10):
        request = made.single(Message(f"T{number}", b"x"))
        frame = made.frame(request, MessageQueue(f"T{number}", "broker-a", 0), 1)
        assert decode_command(frame).fields["b"] == f"T{number}"

    assert len(made._templates) <= 3
