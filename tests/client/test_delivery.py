"""Fetched messages: decoded when they are looked at, settled once."""

import copy
import pickle
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.test_fetcher import found
from orbitmq.client.consumer.delivery import Delivery, decode_answer
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.message import ReceivedMessage, decode_messages
from orbitmq.errors import FormatError
from orbitmq.format.client_batch import ClientMessage, encode_client_batch
from orbitmq.format.compression import Compression, compress
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import encode_record
from orbitmq.message import AppendRequest, Host, SysFlag
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("Orders", "broker-a", 0)
V4, V6 = Host(b"\x0a\x00\x00\x01", 10911), Host(b"\x20\x01" + bytes(13) + b"\x01", 10911)
NAMES = [item.name for item in fields(ReceivedMessage)]


def record(request: AppendRequest, offset: int = 3, host: Host = V4) -> bytes:
    return encode_record(
        request, queue_offset=offset, log_offset=5000 + offset, store_ms=77, store_host=host
    )


def request(topic: str = "Orders", body: bytes = b"hello", **more) -> AppendRequest:
    more.setdefault("properties", encode_properties({"KEYS": "k", "UNIQ_KEY": "U"}))
    return AppendRequest(topic, 2, body, born_ms=66, born_host=V4, flag=9, **more)


def decoded(*records: bytes) -> list[Delivery]:
    return decode_answer(found(*records, next_offset=9), "%RETRY%demo")


def batch_request() -> AppendRequest:
    inner = [ClientMessage(b"a", b"K\x01v\x02", 0), ClientMessage(b"b", b"", 0)]
    flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    return request(body=encode_client_batch(inner), sys_flag=flags.value)


def compressed_request() -> AppendRequest:
    flags = SysFlag.COMPRESSED.value
    return request(body=compress(b"x" * 5000, Compression.ZLIB, 5), sys_flag=flags)


KINDS = {
    "ordinary": record(request()),
    "empty": record(request(body=b"", properties=b"")),
    "IPv6": record(request(), host=V6),
    "long topic": record(request("T" * 200)),
    "compressed": record(compressed_request()),
    "inner batch": record(batch_request()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_says_the_same_as_one_that_was_decoded_at_once(kind):
    eager = decode_messages(KINDS[kind], "broker-a")
    for message in eager:
        message.properties.update({"MIN_OFFSET": "0", "MAX_OFFSET": "100"})

    lazy = decoded(KINDS[kind])

    assert [[getattr(one, name) for name in NAMES] for one in lazy] == [
        [getattr(one, name) for name in NAMES] for one in eager
    ]


@given(order=st.permutations(NAMES), body=st.binary(max_size=40))
def test_the_order_in_which_fields_are_looked_at_does_not_matter(order, body):
    (lazy,) = decoded(record(request(body=body)))
    (eager,) = decode_messages(record(request(body=body)), "broker-a")
    eager.properties.update({"MIN_OFFSET": "0", "MAX_OFFSET": "100"})

    assert [getattr(lazy, name) for name in order] == [getattr(eager, name) for name in order]


def test_a_message_of_the_retry_topic_shows_its_own_topic():
    properties = encode_properties({"RETRY_TOPIC": "Orders"})

    (message,) = decoded(record(request("%RETRY%demo", properties=properties)))

    assert message.topic == "Orders"


@given(st.data())
def test_a_broken_answer_is_found_out_before_anybody_looks_at_a_message(data):
    whole = b"".join(KINDS.values())
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]

    assert outcome_of(damaged) == eager_outcome_of(damaged)
    assert outcome_of(whole[:at]) == eager_outcome_of(whole[:at])


def outcome_of(data: bytes) -> object:
    try:
        return [message.body for message in decoded(data)]
    except FormatError:
        return "broken"


def eager_outcome_of(data: bytes) -> object:
    try:
        return [message.body for message in decode_messages(data)]
    except FormatError:
        return "broken"


def test_a_copy_in_another_process_is_a_plain_message():
    (message,) = held(decoded(KINDS["ordinary"]))

    for other in (copy.copy(message), pickle.loads(pickle.dumps(message))):
        assert type(other) is ReceivedMessage
        assert (other.body, other.keys) == (b"hello", ["k"])


# --- settling ---


def held(messages: list[Delivery], queue: ProcessQueue | None = None) -> list[Delivery]:
    queue = queue or ProcessQueue(QUEUE, 0, FakeClock())
    return queue.put(messages, 9)


def new_delivery() -> tuple[Delivery, ProcessQueue, list[Delivery]]:
    queue, given = ProcessQueue(QUEUE, 0, FakeClock()), []
    queue.on_give_back = given.append
    (message,) = held(decoded(KINDS["ordinary"]), queue)
    return message, queue, given


def test_only_the_first_word_counts():
    message, queue, given = new_delivery()

    message.ack()
    message.retry()
    message.ack()

    assert (given, queue.consumer_offset) == ([], 9)


def test_a_message_is_given_back_once():
    message, queue, given = new_delivery()

    message.retry(level=3, suspend_ms=5)
    message.retry()
    message.ack()

    assert given == [message]
    assert (message.outcome.level, message.outcome.suspend_ms) == (3, 5)
    assert queue.consumer_offset == 3


def test_a_message_is_taken_once():
    message, queue, _ = new_delivery()

    assert [message.take(1.0), message.take(2.0)] == [True, False]
    assert queue.running == 1


def test_a_message_of_a_dropped_queue_cannot_be_taken():
    message, queue, _ = new_delivery()

    queue.drop()

    assert not message.take(1.0)
    assert (queue.running, queue.consumer_offset) == (0, 3)


def test_a_message_that_was_taken_when_its_queue_is_dropped_can_be_settled():
    message, queue, _ = new_delivery()
    message.take(1.0)

    queue.drop()
    running = queue.running
    message.ack()

    assert (running, queue.running, queue.consumer_offset) == (1, 0, 9)


def test_a_message_that_belongs_nowhere_can_be_settled_without_effect():
    (message,) = decoded(KINDS["ordinary"])

    message.ack()
    message.retry()

    assert message.is_settled


def test_an_unknown_attribute_is_an_error():
    (message,) = decoded(KINDS["ordinary"])

    with pytest.raises(AttributeError, match="colour"):
        message.colour  # noqa: B018


def test_a_loop_that_goes_on_late_does_not_settle_what_comes_again() -> None:
    held = ProcessQueue(QUEUE, 0, FakeClock(), lambda function: function())
    (message,) = decoded(KINDS["ordinary"])
    held.put([message], 4)
    assert message.take(100.0)
    message.retry()
    held.put_back([message])  # on its way to a loop again

    assert not message.finish(130.0, 100.0)
    assert not message.is_settled
    assert message.take(140.0)
    assert not message.finish(150.0, 100.0)
    assert message.finish(150.0, 140.0)
