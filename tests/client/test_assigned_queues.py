"""Queues that are taken, given up, lost and moved."""

import asyncio

from async_run import run_async
from consumer_world import Seen, broker_config, consumer_world, counts, names, once, until
from orbitmq.broker.broker import Broker
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.core.message import Message
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.topic_config import TopicConfig


def orders(member: AsyncConsumer) -> list[MessageQueue]:
    return [queue for queue in member.queues if queue.topic == "Orders"]


def test_a_queue_whose_lock_was_lost_is_given_up_and_its_offset_not_stored(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            seen, queue = Seen(), world.queue("Orders", 0)
            async with AsyncConsumer(
                world.namesrv,
                "demo",
                "Orders",
                seen,
                orderly=True,
                start_from="first",
                persist_interval_ms=60_000,
                rebalance_again_ms=50,
            ) as member:
                await until(lambda: orders(member))
                await world.send("Orders", *names(2))
                await until(lambda: len(seen.messages) == 2)
                locks = world.broker.context.locks
                locks.unlock("demo", member.client_id, [queue])
                assert locks.lock("demo", "another", [queue])
                stored = world.offset("demo", "Orders", 0)

                await member._assigned.renew_locks()
                gone = orders(member)
                unchanged = world.offset("demo", "Orders", 0) == stored
                world.broker.context.offsets.commit("demo", "Orders", 0, 2)
                locks.unlock("demo", "another", [queue])
                await until(lambda: orders(member))
                await world.send("Orders", "next")
                await until(lambda: len(seen.messages) == 3)

            assert (gone, unchanged) == ([], True)
            assert seen.bodies == [*names(2), "next"]

    run_async(main)


def test_an_orderly_queue_changes_hands_only_when_its_handler_is_done(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            at_work: list[int] = []
            events: list[tuple[str, str]] = []
            may_end = asyncio.Event()

            def handler(name):
                async def handle(message):
                    at_work.append(message.queue_id)
                    events.append((name, message.body.decode()))
                    if message.body == b"slow":
                        await may_end.wait()
                    at_work.remove(message.queue_id)

                return handle

            given = {"orderly": True, "start_from": "first", "rebalance_again_ms": 50}
            one = AsyncConsumer(world.namesrv, "demo", "Orders", handler("one"), **given)
            two = AsyncConsumer(world.namesrv, "demo", "Orders", handler("two"), **given)
            async with one:
                await until(lambda: len(orders(one)) == 2)
                for queue_id in (0, 1):
                    await world.send("Orders", "slow", f"after{queue_id}", queue_id=queue_id)
                await until(lambda: len(at_work) == 2)
                async with two:
                    # One keeps what it works on, so the broker refuses the other.
                    assert not await one._assignment.round()
                    assert not await two._assignment.round()
                    assert (sorted(at_work), orders(two)) == ([0, 1], [])
                    may_end.set()
                    await until(lambda: len(orders(two)) == 1)
                    await until(lambda: len(events) == 4)

            assert sorted(body for _, body in events) == ["after0", "after1", "slow", "slow"]
            assert sum(name == "two" for name, _ in events) == 1
            assert not any(event == ("two", "slow") for event in events)

    run_async(main)


def test_the_queues_of_all_brokers_are_shared(tmp_path):
    async def main():
        async with consumer_world(tmp_path / "a") as world:
            await world.create("Orders", queues=2)
            async with Broker(broker_config(tmp_path / "b", world.namesrv, "broker-b")) as other:
                config = TopicConfig(topic_name="Orders", read_queue_nums=2, write_queue_nums=2)
                other.context.topics.put(config)
                core = world.producer._core

                async def both():
                    route = await core.namesrv.route("Orders")
                    return len(route.broker_datas) == 2

                await until(both)
                await core.routes.refresh("Orders")
                queues = await world.producer.queues("Orders")
                one, two = Seen(), Seen()
                async with (
                    AsyncConsumer(
                        world.namesrv, "demo", "Orders", one, start_from="first"
                    ) as first,
                    AsyncConsumer(
                        world.namesrv, "demo", "Orders", two, start_from="first"
                    ) as second,
                ):
                    await until(lambda: len(orders(first)) == len(orders(second)) == 2)
                    for number, body in enumerate(names(20)):
                        message = Message("Orders", body.encode())
                        await world.producer.send(message, queue=queues[number % 4])
                    await until(lambda: len(one.messages) + len(two.messages) == 20)
                    split = {queue.broker_name for queue in orders(first)}

            assert len(queues) == 4
            assert counts(one, two) == once(names(20))
            assert len(split) == 1  # sorted by broker: two runs of two

    run_async(main)


def test_a_topic_that_grows_is_read_with_its_new_queues(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            seen = Seen()
            async with AsyncConsumer(
                world.namesrv,
                "demo",
                "Orders",
                seen,
                start_from="first",
                route_interval_ms=100,
                rebalance_interval_ms=200,
            ) as member:
                await until(lambda: len(orders(member)) == 1)
                await world.create("Orders", queues=3)
                await member._context.core.refresh_routes()
                await until(lambda: len(orders(member)) == 3)
                await world.producer._core.refresh_routes()
                await world.send("Orders", *names(6))
                await until(lambda: len(seen.messages) == 6)

    run_async(main)
