"""Our simple consumer on RocketMQ's own broker and on ours: the same outcome on both."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from async_run import run_async
from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java
from compat.scenarios import fresh
from consumer_world import names
from orbitmq.client import AsyncProducer, AsyncSimpleConsumer, Message, SimpleConsumer, sql
from orbitmq.client.core.message import ReceivedMessage

pytestmark = [pytest.mark.compat, needs_java]

SHORT_MS = 2_000
LONG_MS = 60_000


@pytest.fixture(scope="module", params=("java", "ours"))
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


Work = Callable[[str, str, AsyncProducer], Coroutine[Any, Any, None]]


def beside(cluster: Cluster, work: Work, queues: int = 2) -> None:
    """Run `work(topic, group, producer)` beside a new topic."""
    topic, group = fresh("Pop"), fresh("pop-group")
    cluster.create_topic(topic, queues)

    async def main() -> None:
        async with AsyncProducer(cluster.namesrv, group="pop-producer") as producer:
            await work(topic, group, producer)

    run_async(main, seconds=120)


async def send(producer: AsyncProducer, topic: str, *bodies: str, **given: Any) -> None:
    for body in bodies:
        await producer.send(Message(topic, body.encode(), **given))


async def receive_all(
    consumer: AsyncSimpleConsumer, count: int, invisible_ms: int = LONG_MS
) -> list[ReceivedMessage]:
    """Receive until so many messages are there."""
    got: list[ReceivedMessage] = []
    async with asyncio.timeout(60):
        while len(got) < count:
            got += await consumer.receive(count - len(got), invisible_ms, wait_ms=5_000)
    return got


def bodies(messages: list[ReceivedMessage]) -> list[str]:
    return sorted(message.body.decode() for message in messages)


@pytest.mark.feature("X3")
def test_each_message_goes_to_one_member_and_not_again_once_acknowledged(cluster: Cluster) -> None:
    async def work(topic: str, group: str, producer: AsyncProducer) -> None:
        await send(producer, topic, *names(60))
        given: dict[str, Any] = {"start_from": "first"}
        async with (
            AsyncSimpleConsumer(cluster.namesrv, group, topic, **given) as one,
            AsyncSimpleConsumer(cluster.namesrv, group, topic, **given) as two,
        ):
            first, second = await receive_all(one, 20), await receive_all(two, 40)
            assert bodies(first + second) == sorted(names(60))
            await one.ack(first[0])
            await one.ack(first[1:])
            await two.ack(second)
            await send(producer, topic, "more")
            assert bodies(await receive_all(one, 1)) == ["more"]

    beside(cluster, work)


def test_what_is_not_acknowledged_comes_again_and_a_changed_time_decides_when(
    cluster: Cluster,
) -> None:
    async def work(topic: str, group: str, producer: AsyncProducer) -> None:
        await send(producer, topic, "again", "kept", "done")
        async with AsyncSimpleConsumer(
            cluster.namesrv, group, topic, start_from="first"
        ) as consumer:
            got = {one.body: one for one in await receive_all(consumer, 3, SHORT_MS)}
            await consumer.ack(got[b"done"])
            await consumer.change_invisible(got[b"kept"], LONG_MS)
            (again,) = await receive_all(consumer, 1, LONG_MS)
            assert (again.body, again.reconsume_times, again.topic) == (b"again", 1, topic)
            # Its receipt is of the retry topic now; with it the message can be had sooner, and ended.
            await consumer.change_invisible(again, SHORT_MS)
            (third,) = await receive_all(consumer, 1, SHORT_MS)
            assert (third.body, third.reconsume_times) == (b"again", 2)
            await consumer.ack([third])
            await consumer.ack(got[b"kept"])
            assert await consumer.receive(8, wait_ms=3 * SHORT_MS) == []

    beside(cluster, work)


def test_what_is_received_in_order_holds_back_what_is_behind_it(cluster: Cluster) -> None:
    async def work(topic: str, group: str, producer: AsyncProducer) -> None:
        given: dict[str, Any] = {"start_from": "first", "ordered": True}
        for name in names(6):
            await producer.send(Message(topic, name.encode()), key="same queue")
        async with AsyncSimpleConsumer(cluster.namesrv, group, topic, **given) as consumer:
            first = await consumer.receive(3, SHORT_MS, wait_ms=10_000)
            assert [one.body.decode() for one in first] == names(6)[:3]
            await consumer.ack(first[:2])
            again = await receive_all(consumer, 1, LONG_MS)
            assert [(one.body, one.reconsume_times) for one in again] == [(first[2].body, 1)]
            assert await consumer.receive(8, LONG_MS, wait_ms=0) == []
            await consumer.ack(again)
            rest = await receive_all(consumer, 3)
            assert [one.body.decode() for one in rest] == names(6)[3:]

    beside(cluster, work)


def test_a_receive_waits_for_a_message_and_filters_select(cluster: Cluster) -> None:
    async def work(topic: str, group: str, producer: AsyncProducer) -> None:
        other = fresh("Pop")
        cluster.create_topic(other, 1)
        filters = {topic: "A || B", other: sql("price > 3")}
        async with AsyncSimpleConsumer(
            cluster.namesrv, group, filters, start_from="first"
        ) as consumer:
            assert await consumer.receive(8, wait_ms=200) == []
            waits = asyncio.ensure_future(consumer.receive(8, wait_ms=30_000))
            await asyncio.sleep(0.5)  # sleep: the broker should have parked the request
            await send(producer, topic, "a", tag="A")
            assert bodies(await waits) == ["a"]
            await send(producer, topic, "c", tag="C")
            await send(producer, topic, "b", tag="B")
            await send(producer, other, "cheap", properties={"price": "1"})
            await send(producer, other, "dear", properties={"price": "9"})
            got = await receive_all(consumer, 2)
            assert bodies(got) == ["b", "dear"]
            await consumer.ack(got)

    beside(cluster, work)


def test_threads_share_one_consumer(cluster: Cluster) -> None:
    async def work(topic: str, group: str, producer: AsyncProducer) -> None:
        def take() -> list[ReceivedMessage]:
            messages: list[ReceivedMessage] = consumer.receive(8, LONG_MS, 3_000)
            consumer.ack(messages)
            return messages

        consumer = SimpleConsumer(cluster.namesrv, group, topic, start_from="first")
        await asyncio.to_thread(consumer.open)
        try:
            taken = [asyncio.ensure_future(asyncio.to_thread(take)) for _ in range(3)]
            await send(producer, topic, *names(3))
            got = [message for messages in await asyncio.gather(*taken) for message in messages]
            assert bodies(got) == names(3)
        finally:
            await asyncio.to_thread(consumer.close)

    beside(cluster, work)
