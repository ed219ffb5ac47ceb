"""`async for message in consumer`: what acknowledges a message and what gives it back."""

import asyncio
import contextlib

import pytest

from async_run import run_async
from consumer_world import Seen, consumer_world, names, until
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.errors import ClientClosedError, ClientError


def waiting_for_retry(world) -> int:
    """Return how many messages were given back and wait for their delay."""
    store = world.broker.context.store
    return sum(store.next_queue_offset("SCHEDULE_TOPIC_XXXX", level) for level in range(18))


def test_a_loop_gets_every_message_and_acknowledges_each(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders")
            await world.send("Orders", *names(30))
            bodies = []

            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first"
            ) as consumer:
                async for message in consumer:
                    bodies.append(message.body.decode())
                    if len(bodies) == 30:
                        message.ack()
                        break

            assert sorted(bodies) == sorted(names(30))
            assert sum(world.offset("demo", "Orders", queue) for queue in range(4)) == 30
            assert waiting_for_retry(world) == 0

    run_async(main)


def test_an_exception_in_the_loop_gives_the_message_back(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))

            async def loop():
                async with AsyncConsumer(
                    world.namesrv, "demo", "Orders", start_from="first"
                ) as consumer:
                    async for message in consumer:
                        if message.body == b"m1":
                            raise ValueError("m1")

            with pytest.raises(ValueError, match="m1"):
                await loop()

            assert waiting_for_retry(world) == 1
            assert world.offset("demo", "Orders", 0) == 2

    run_async(main)


def test_a_loop_that_fails_inside_the_with_block_gives_its_message_back_too(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            bodies = []

            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first"
            ) as consumer:
                for _ in range(2):
                    with contextlib.suppress(ValueError):
                        async for message in consumer:
                            if message.body == b"m0":
                                raise ValueError("m0")
                            bodies.append(message.body)
                            if len(bodies) == 2:
                                message.ack()
                                break
                await until(lambda: waiting_for_retry(world) == 1)

            assert bodies == [b"m1", b"m2"]
            assert world.offset("demo", "Orders", 0) == 3

    run_async(main)


def test_a_message_that_a_loop_left_behind_without_a_word_comes_again(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            bodies = []
            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first", retry_level=1
            ) as consumer:
                async for message in consumer:
                    if message.body == b"m0":
                        break
                async for message in consumer:
                    bodies.append((message.body.decode(), message.reconsume_times))
                    if len(bodies) == 3:
                        message.ack()
                        break

            assert bodies == [("m1", 0), ("m2", 0), ("m0", 1)]

    run_async(main)


def test_messages_can_be_settled_by_hand(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))

            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first"
            ) as consumer:
                one, two, three = [await consumer.receive(timeout=5) for _ in range(3)]
                two.retry(level=1)
                two.ack()  # too late: only the first word counts
                one.ack()
                three.ack()
                again = await consumer.receive(timeout=5)
                again.ack()

            assert (again.body, again.reconsume_times) == (b"m1", 1)
            assert world.offset("demo", "Orders", 0) == 3

    run_async(main)


def test_what_nobody_settled_comes_again(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            seen = Seen()
            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first", close_wait_ms=50
            ) as consumer:
                (await consumer.receive(timeout=5)).ack()
                await consumer.receive(timeout=5)

            assert world.offset("demo", "Orders", 0) == 1
            async with AsyncConsumer(world.namesrv, "demo", "Orders", seen):
                await until(lambda: len(seen.messages) == 2)

            assert seen.bodies == ["m1", "m2"]

    run_async(main)


def test_closing_ends_the_loops_over_a_consumer(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            consumer = AsyncConsumer(world.namesrv, "demo", "Orders")
            await consumer.open()

            async def loop():
                return [message async for message in consumer]

            loops = [asyncio.ensure_future(loop()) for _ in range(2)]
            await asyncio.sleep(0)  # both wait for a message now
            await consumer.close()

            assert await asyncio.gather(*loops) == [[], []]
            await consumer.close()

    run_async(main)


def test_receive_returns_none_after_its_time(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            async with AsyncConsumer(world.namesrv, "demo", "Orders") as consumer:
                assert await consumer.receive(timeout=0.05) is None

    run_async(main)


def test_messages_that_wait_are_withdrawn_when_their_queue_goes_to_another_member(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            for queue_id in (0, 1):
                await world.send("Orders", *names(3, f"q{queue_id}-"), queue_id=queue_id)
            seen, bodies = Seen(), []
            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", start_from="first", instance_name="1"
            ) as consumer:
                await until(lambda: consumer._inbox.qsize() == 6)
                async with AsyncConsumer(
                    world.namesrv, "demo", "Orders", seen, start_from="first", instance_name="2"
                ):
                    await until(lambda: len(seen.messages) == 3)
                    while message := await consumer.receive(timeout=0.1):
                        bodies.append(message.body.decode())
                        message.ack()

            assert sorted(bodies + seen.bodies) == names(3, "q0-") + names(3, "q1-")

    run_async(main)


def test_an_orderly_loop_gets_the_messages_of_a_queue_one_after_the_other(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(5))
            bodies = []
            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", orderly=True, start_from="first"
            ) as consumer:
                async for message in consumer:
                    bodies.append(message.body.decode())
                    if message.body == b"m2" and message.reconsume_times == 0:
                        message.retry(suspend_ms=10)
                    if len(bodies) == 6:
                        message.ack()
                        break

            assert bodies == ["m0", "m1", "m2", "m2", "m3", "m4"]

    run_async(main)


def test_a_consumer_with_a_handler_cannot_be_iterated():
    async def main():
        consumer = AsyncConsumer("127.0.0.1:9", "demo", "Orders", Seen())
        with pytest.raises(ClientError, match="handler"):
            aiter(consumer)

    run_async(main)


def test_a_consumer_that_is_not_open_says_so():
    async def main():
        consumer = AsyncConsumer("127.0.0.1:9", "demo", "Orders")
        with pytest.raises(ClientClosedError, match="with"):
            aiter(consumer)

    run_async(main)
