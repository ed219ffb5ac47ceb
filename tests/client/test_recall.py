"""Producers of timer messages: delays, handles, recall; in asyncio code and without."""

import asyncio
import time

import pytest

from async_run import run_async
from fake_cluster import FakeCluster
from orbitmq.client import Message, Producer, PullConsumer
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.errors import InvalidMessageError, ResponseError
from orbitmq.testing import Broker
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.recall import RecallHandle

SETTINGS = {"recallMessageEnable": "true", "timerPrecisionMs": "100"}


def test_what_was_recalled_does_not_come_and_the_rest_does_in_time() -> None:
    with Broker(settings=SETTINGS) as broker, Producer(broker.namesrv, "PG") as producer:
        due_ms = time.time_ns() // 1_000_000 + 1_000
        results = [
            producer.send(Message("Later", b"at", deliver_ms=due_ms)),
            producer.send(Message("Later", b"after", delay_ms=1_000)),
            producer.send(Message("Later", b"never", delay_ms=1_000)),
            producer.send(Message("Later", b"now")),
        ]
        assert [bool(result.recall_handle) for result in results] == [True, True, True, False]
        recalled = producer.recall("Later", results[2].recall_handle)
        assert recalled == results[2].message_id
        found = {}
        with PullConsumer(broker.namesrv, "CG", auto_commit=False) as consumer:
            consumer.assign(consumer.topic_queues("Later"))
            consumer.seek_to_begin()
            deadline = time.monotonic() + 10
            while len(found) < 3 and time.monotonic() < deadline:
                found |= {message.body: message for message in consumer.poll(timeout=0.5)}
            found |= {message.body: message for message in consumer.poll(timeout=0.5)}
    assert sorted(found) == [b"after", b"at", b"now"]
    assert 0 <= found[b"at"].store_ms - due_ms < 2_000
    assert found[b"at"].properties["TIMER_DELIVER_MS"] == str(due_ms)


def test_asyncio_code_recalls_too_and_hears_why_not() -> None:
    async def main(namesrv: str) -> None:
        async with AsyncProducer(namesrv, "PG") as producer:
            result = await producer.send(Message("Later", b"x", delay_ms=60_000))
            assert await producer.recall("Later", result.recall_handle) == result.message_id
            with pytest.raises(ResponseError, match="topic not match"):
                await producer.recall("Other", result.recall_handle)
            with pytest.raises(InvalidMessageError, match="recall handle is invalid"):
                await producer.recall("Later", "x")

    with Broker(settings=SETTINGS) as broker:
        with Producer(broker.namesrv, "PG") as producer:
            producer.send(Message("Other", b"x"))
        asyncio.run(main(broker.namesrv))


def test_a_recall_goes_to_the_broker_that_has_the_message() -> None:
    async def main() -> None:
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("T", queues=1)
            for broker in cluster.brokers.values():
                broker.reactions[RequestCode.RECALL_MESSAGE] = lambda connection, request: (
                    request.answer(0, "not set any response code", fields={"msgId": "K"})
                )
            handle = RecallHandle("T", "broker-b", "1", "K").encode()
            async with AsyncProducer(cluster.namesrv_address, "PG") as producer:
                assert await producer.recall("T", handle) == "K"
            (asked,) = cluster.brokers["broker-b"].of_code(RequestCode.RECALL_MESSAGE)
            assert asked.fields == {
                "producerGroup": "PG",
                "bname": "broker-b",
                "topic": "T",
                "recallHandle": handle,
            }
            assert cluster.brokers["broker-a"].of_code(RequestCode.RECALL_MESSAGE) == []

    run_async(main)


@pytest.mark.parametrize("delay", [{"delay_ms": 1}, {"deliver_ms": 1}])
def test_delays_exclude_each_other(delay: dict[str, int]) -> None:
    with Broker() as broker, Producer(broker.namesrv, "PG") as producer:
        with pytest.raises(InvalidMessageError, match="set one of"):
            producer.send(Message("T", b"x", delay_level=1, **delay))
        with pytest.raises(InvalidMessageError, match="negative"):
            producer.send(Message("T", b"x", delay_ms=-1))
        with pytest.raises(InvalidMessageError, match="cannot be in a batch"):
            producer.send_batch([Message("T", b"x", **delay)])
