"""Everything that the client can do by now, against a broker in a process of its own."""

import asyncio

import pytest

from async_run import run_async
from orbitmq.client import Admin, Consumer, Message, Producer, PullConsumer, aio
from orbitmq.testing import Broker
from up_process import Up, up_process


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    with up_process(tmp_path_factory.mktemp("up")) as up:
        with Admin(up.namesrv) as admin:
            admin.create_topic("Sync", queues=4)
            admin.create_topic("Async", queues=4)
        yield up
        assert up.stop() == 0


BODIES = sorted(["one", "two", "three", "batch 0", "batch 1", "step 1", "step 2", "step 3"])


def test_sync(up: Up):
    with Producer(up.namesrv, "tour") as producer:
        assert producer.send(Message("Sync", b"one", tag="TagA", keys=["k1"])).message_id
        assert producer.send_async(Message("Sync", b"two")).result(10).queue_offset >= 0
        producer.send_oneway(Message("Sync", b"three"))
        batch = producer.send_batch([Message("Sync", f"batch {n}".encode()) for n in range(2)])
        steps = [producer.send(Message("Sync", f"step {n}".encode()), key=17) for n in (1, 2, 3)]
    assert len(batch) == 2
    assert len({result.queue for result in steps}) == 1

    pushed = []
    with Consumer(up.namesrv, "tour-push", "Sync", start_from="first") as consumer:
        for message in consumer:
            pushed.append(message.body.decode())
            if len(pushed) == len(BODIES):
                message.ack()
                break
    with PullConsumer(up.namesrv, "tour-pull", auto_commit=False) as consumer:
        consumer.assign(consumer.topic_queues("Sync"), "TagA")
        consumer.seek_to_begin()
        pulled = [message.body for message in consumer.poll(timeout=20)]
    with Admin(up.namesrv) as admin:
        lag = admin.progress("tour-push", "Sync").lag
        by_key = admin.messages_by_key("Sync", "k1")

    assert sorted(pushed) == BODIES
    assert pulled == [b"one"]
    assert lag == 0
    assert [message.body for message in by_key] == [b"one"]


def test_asyncio(up: Up):
    pushed: list[str] = []
    everything = asyncio.Event()

    async def handle(message):
        pushed.append(message.body.decode())
        if len(pushed) == len(BODIES):
            everything.set()

    async def main():
        async with aio.Producer(up.namesrv, "tour") as producer:
            await producer.send(Message("Async", b"one", tag="TagA", keys=["k1"]))
            await asyncio.gather(producer.send(Message("Async", b"two")))
            await producer.send_oneway(Message("Async", b"three"))
            await producer.send_batch([Message("Async", f"batch {n}".encode()) for n in range(2)])
            for n in (1, 2, 3):
                await producer.send(Message("Async", f"step {n}".encode()), key=17)
        async with aio.Consumer(up.namesrv, "tour-push", "Async", handle, start_from="first"):
            await everything.wait()
        async with aio.PullConsumer(up.namesrv, "tour-pull", auto_commit=False) as consumer:
            await consumer.assign(await consumer.topic_queues("Async"), "TagA")
            await consumer.seek_to_begin()
            pulled = [message.body for message in await consumer.poll(timeout=20)]
        async with aio.Admin(up.namesrv) as admin:
            progress = await admin.progress("tour-push", "Async")
        return pulled, progress.lag

    assert run_async(main, seconds=60) == ([b"one"], 0)
    assert sorted(pushed) == BODIES


@pytest.mark.feature("F20")
def test_a_consumer_is_told_of_each_message_when_it_comes():
    """Not polled: a pull waits for minutes, so what comes before is the answer to a message."""
    minutes = {"suspend_ms": 300_000, "pull_timeout_ms": 600_000}

    async def main(namesrv: str) -> list[bytes]:
        came: asyncio.Queue[bytes] = asyncio.Queue()

        async def handle(message):
            came.put_nowait(message.body)

        async with (
            aio.Producer(namesrv, "tour") as producer,
            aio.Consumer(namesrv, "readers", "Orders", handle, start_from="first", **minutes),
        ):
            bodies = []
            for number in range(20):
                await producer.send(Message("Orders", b"%d" % number))
                bodies.append(await came.get())
            return bodies

    with Broker() as broker:
        with Admin(broker.namesrv) as admin:
            admin.create_topic("Orders", queues=1)

        assert run_async(lambda: main(broker.namesrv)) == [b"%d" % n for n in range(20)]
