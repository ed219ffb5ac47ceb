"""Producers and consumers with a trace, against a live broker: what they write, and when they do not."""

import asyncio
import contextlib
import threading
from contextlib import contextmanager

import pytest

from async_run import run_async
from orbitmq.client import Admin, Consumer, Message, Producer, PullConsumer, RetryLater, aio
from orbitmq.client.core.config import TRACE_TOPIC
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.client.trace.records import MessageKind, TraceKind, decode_records
from orbitmq.errors import ResponseError
from orbitmq.testing import Broker


@pytest.fixture(scope="module")
def broker():
    with Broker(settings={"recallMessageEnable": "true"}) as broker:
        yield broker


@pytest.fixture
def admin(broker):
    with Admin(broker.namesrv) as admin:
        yield admin


_numbers = iter(range(10_000))


@pytest.fixture
def topic(admin):
    name = f"Traced{next(_numbers)}"
    admin.create_topic(name, queues=1)
    return name


def steps(broker, admin, message_id):
    broker.wait_dispatched()
    found = admin.trace(message_id)
    assert [way.message_id for way in found] == [message_id]
    return [(s.what, s.group, s.attempt, s.result) for s in found[0].steps]


def records(broker, admin, message_id):
    broker.wait_dispatched()
    found = admin.messages_by_key(TRACE_TOPIC, message_id)
    return [r for m in found for r in decode_records(m.body) if r.message_id == message_id]


def send(broker, topic, body=b"x", **given):
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        return producer.send(Message(topic, body, **given))


@pytest.mark.feature("F113")
def test_a_send_is_written_with_all_its_fields(broker, admin, topic):
    result = send(broker, topic, b"hello", tag="TagA", keys=["k1", "k2"])

    (record,) = records(broker, admin, result.message_id)
    assert (record.kind, record.group, record.topic) == (TraceKind.PUB, "PG", topic)
    assert (record.tag, record.keys, record.body_bytes) == ("TagA", "k1 k2", 5)
    assert (record.offset_id, record.store_host) == (result.offset_id, broker.address)
    assert (record.region, record.success) == ("DefaultRegion", True)
    assert record.message_kind is MessageKind.NORMAL
    assert 0 <= record.cost_ms < 10_000
    (way,) = admin.trace("k2")
    assert (way.message_id, way.keys) == (result.message_id, ["k1", "k2"])
    (same,) = admin.trace(result.offset_id)
    assert same == way


def test_what_a_message_does_not_have_is_null(broker, admin, topic):
    result = send(broker, topic, delay_level=1)

    (message,) = admin.messages_by_key(TRACE_TOPIC, result.message_id)
    fields = message.body.decode().split("\x01")
    assert fields[6:8] == ["null", "null"]
    assert fields[11] == "3"


def test_each_message_of_a_batch_and_of_async_sends_is_written(broker, admin, topic):
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        results = producer.send_batch(
            [Message(topic, b"a", keys="ka"), Message(topic, b"bb", tag="B")]
        )
        futures = [producer.send_async(Message(topic, b"c")) for _ in range(30)]
        results += [future.result() for future in futures]
        producer.send_oneway(Message(topic, b"nobody knows"))

    for result in results:
        (record,) = records(broker, admin, result.message_id)
        assert record.offset_id == result.offset_id
    first, second = (records(broker, admin, r.message_id)[0] for r in results[:2])
    assert (first.keys, first.tag, first.body_bytes) == ("ka", None, 1)
    assert (second.keys, second.tag, second.body_bytes) == (None, "B", 2)


def test_without_the_setting_nothing_is_written(broker, admin, topic):
    with Producer(broker.namesrv, "PG") as producer:
        result = producer.send(Message(topic, b"x"))
    send(broker, topic)  # so that there is a trace topic

    broker.wait_dispatched()
    assert admin.trace(result.message_id) == []


def test_a_topic_of_ones_own_is_used(broker, admin, topic):
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        producer.send(Message(topic, b"the usual topic is there"))
    with Producer(broker.namesrv, "PG", trace="OwnTraces") as producer:
        result = producer.send(Message(topic, b"x"))

    broker.wait_dispatched()
    assert admin.trace(result.message_id, trace_topic="OwnTraces") != []
    assert admin.trace(result.message_id) == []


def test_what_is_sent_to_the_trace_topic_is_not_traced(broker, admin):
    with Producer(broker.namesrv, "PG", trace="LoopTraces") as producer:
        result = producer.send(Message("LoopTraces", b"not a trace"))

    broker.wait_dispatched()
    assert admin.trace(result.message_id, trace_topic="LoopTraces") == []


@contextmanager
def no_traces(broker):
    """While the broker says that it wants none."""
    with Admin(broker.namesrv) as admin:
        admin.update_broker_config(broker.address, {"traceOn": "false"})
        yield
        admin.update_broker_config(broker.address, {"traceOn": "true"})


def test_a_broker_that_wants_no_traces_gets_none(broker, admin, topic):
    send(broker, topic)
    with no_traces(broker):
        result = send(broker, topic)
        with Consumer(
            broker.namesrv, f"quiet-{topic}", topic, start_from="first", trace=True
        ) as consumer:
            taken = [consumer.receive(20) for _ in range(2)]
            for message in taken:
                message.ack()

    broker.wait_dispatched()
    assert {one.message_id for one in taken} >= {result.message_id}
    assert admin.trace(result.message_id) == []


# --- consumers: each way of taking messages ---


def fails_once(seen, error=RetryLater):
    def handle(message):
        seen.append(message)
        if message.reconsume_times == 0:
            raise error("once")

    return handle


RETRIED = [
    ("sent", "PG", None, "ok"),
    ("consumed", "CG", 0, "failed"),
    ("consumed", "CG", 1, "ok"),
]


def as_told(group, rows):
    return [(what, group if who == "CG" else who, *rest) for what, who, *rest in rows]


@pytest.mark.feature("F113")
@pytest.mark.parametrize("orderly", [False, True])
def test_a_handler_in_threads_is_traced_through_its_retries(broker, admin, topic, orderly):
    group, seen = f"threads-{topic}", []
    result = send(broker, topic)

    with Consumer(
        broker.namesrv,
        group,
        topic,
        handler=fails_once(seen),
        orderly=orderly,
        start_from="first",
        retry_level=1,
        suspend_queue_ms=10,
        trace=True,
    ):
        wait_for(lambda: len(seen) == 2)

    assert steps(broker, admin, result.message_id) == as_told(group, RETRIED)


def wait_for(condition, seconds=30):
    done = threading.Event()
    for _ in range(seconds * 50):
        if condition():
            return
        done.wait(0.02)
    raise AssertionError("it did not come")


def test_a_handler_that_raises_is_told_from_one_that_wants_it_again(broker, admin, topic):
    group, seen = f"raises-{topic}", []
    result = send(broker, topic)

    with Consumer(
        broker.namesrv,
        group,
        topic,
        handler=fails_once(seen, ValueError),
        start_from="first",
        retry_level=1,
        trace=True,
    ):
        wait_for(lambda: len(seen) == 2)

    assert [row[-1] for row in steps(broker, admin, result.message_id)] == ["ok", "exception", "ok"]


def test_of_a_batch_each_message_has_its_own_result(broker, admin, topic):
    group, seen = f"batch-{topic}", []
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        good, bad = producer.send_batch([Message(topic, b"good"), Message(topic, b"bad")])

    def handle(messages):
        seen.extend(messages)
        return [one for one in messages if one.body == b"bad" and not one.reconsume_times]

    with Consumer(
        broker.namesrv,
        group,
        topic,
        handler=handle,
        batch_size=8,
        start_from="first",
        retry_level=1,
        trace=True,
    ):
        wait_for(lambda: len(seen) == 3)

    assert steps(broker, admin, good.message_id)[1:] == [("consumed", group, 0, "ok")]
    assert steps(broker, admin, bad.message_id)[1:] == [
        ("consumed", group, 0, "failed"),
        ("consumed", group, 1, "ok"),
    ]


@pytest.mark.parametrize("orderly", [False, True])
def test_a_loop_is_traced_by_what_it_settles(broker, admin, topic, orderly):
    group = f"loop-{topic}"
    first, second = send(broker, topic), send(broker, topic)

    with Consumer(
        broker.namesrv,
        group,
        topic,
        orderly=orderly,
        start_from="first",
        suspend_queue_ms=10,
        retry_level=1,
        trace=True,
    ) as consumer:
        again = set()
        for message in consumer:
            if message.message_id == first.message_id and not message.reconsume_times:
                message.retry()
                again.add(message.message_id)
            elif message.reconsume_times or message.message_id in again:
                message.ack()
                if message.message_id == first.message_id:
                    break

    assert steps(broker, admin, first.message_id) == as_told(group, RETRIED)
    if not orderly:
        assert steps(broker, admin, second.message_id)[1:] == [("consumed", group, 0, "ok")]


def test_a_poll_is_traced_as_done(broker, admin, topic):
    group = f"poll-{topic}"
    result = send(broker, topic)

    with PullConsumer(broker.namesrv, group, trace=True) as consumer:
        consumer.assign(topic)
        consumer.seek_to_begin()
        assert [one.message_id for one in consumer.poll(timeout=20)] == [result.message_id]

    assert steps(broker, admin, result.message_id)[1:] == [("consumed", group, 0, "ok")]


def test_asyncio_clients_are_traced(broker, admin, topic):
    group, seen = f"aio-{topic}", []

    async def main():
        async with aio.Producer(broker.namesrv, "PG", trace=True) as producer:
            result = await producer.send(Message(topic, b"x"))
        done = asyncio.Event()

        async def handle(message):
            seen.append(message)
            if message.reconsume_times == 0:
                raise RetryLater
            done.set()

        async with aio.Consumer(
            broker.namesrv,
            group,
            topic,
            handler=handle,
            start_from="first",
            retry_level=1,
            trace=True,
        ):
            await done.wait()
        async with aio.Consumer(
            broker.namesrv, f"{group}-2", topic, start_from="first", trace=True
        ) as consumer:
            async for message in consumer:
                message.ack()
                break
        return result

    made = []

    async def keep():
        made.append(await main())

    run_async(keep)
    message_id = made[0].message_id
    assert steps(broker, admin, message_id) == [
        *as_told(group, RETRIED),
        ("consumed", f"{group}-2", 0, "ok"),
    ]


def test_a_send_does_not_wait_for_its_trace_and_does_not_fail_with_it(broker, topic, monkeypatch):
    """The producer of traces never gets an answer; sends go on and the close ends."""
    sent = AsyncProducer.send_async

    def hang(self, message, **given):
        if message.topic == TRACE_TOPIC:
            return asyncio.get_running_loop().create_future()
        return sent(self, message, **given)

    monkeypatch.setattr(AsyncProducer, "send_async", hang)
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        results = [producer.send(Message(topic, b"x")) for _ in range(50)]
    assert len({result.message_id for result in results}) == 50


def test_a_client_can_be_opened_again(broker, admin, topic):
    producer = Producer(broker.namesrv, "PG", trace=True)
    results = []
    for _ in range(2):
        with producer:
            results.append(producer.send(Message(topic, b"x")))

    for result in results:
        assert len(records(broker, admin, result.message_id)) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_end_of_a_transaction_is_in_the_trace(broker, admin, topic, fails):
    with (
        Producer(broker.namesrv, "PG", trace=True) as producer,
        contextlib.suppress(KeyError),
        producer.transaction(Message(topic, b"x", tag="A", keys=["kt"])) as transaction,
    ):
        if fails:
            raise KeyError

    half, end = records(broker, admin, transaction.result.message_id)
    assert (half.kind, half.message_kind) == (TraceKind.PUB, MessageKind.HALF)
    assert (end.kind, end.message_kind) == (TraceKind.END_TRANSACTION, MessageKind.TRANSACTION_END)
    assert end.state == ("ROLLBACK_MESSAGE" if fails else "COMMIT_MESSAGE")
    assert (end.region, end.keys, end.tag) == ("DefaultRegion", "kt", "A")
    assert (end.transaction_id, end.from_check) == (transaction.result.message_id, False)


def test_a_message_that_was_taken_back_is_in_the_trace(broker, admin, topic):
    with Producer(broker.namesrv, "PG", trace=True) as producer:
        sent = producer.send(Message(topic, b"x", delay_ms=600_000))
        producer.recall(topic, sent.recall_handle)
        with pytest.raises(ResponseError):
            producer.recall("Another", sent.recall_handle)

    kinds = [(r.kind, r.success, r.topic) for r in records(broker, admin, sent.message_id)]
    assert (TraceKind.PUB, True, topic) in kinds
    assert [each for each in kinds if each[0] is TraceKind.RECALL] == [
        (TraceKind.RECALL, True, topic),
        (TraceKind.RECALL, False, "Another"),
    ]
    assert ("recalled", "PG") in [step[:2] for step in steps(broker, admin, sent.message_id)]
