"""Pull consumers: positions, polls, commits."""

import asyncio

import pytest

from async_run import run_async
from consumer_world import consumer_world, names, until
from orbitmq.client.consumer.pull_consumer import AsyncPullConsumer
from orbitmq.client.core.broker_api import PullStatus
from orbitmq.errors import ClientClosedError, ClientError, NoRouteError, ResponseError


async def poll_all(consumer: AsyncPullConsumer, count: int) -> list[str]:
    bodies: list[str] = []
    while len(bodies) < count:
        messages = await consumer.poll(timeout=5)
        assert messages, f"only {bodies} came"
        bodies += [message.body.decode() for message in messages]
    return bodies


def test_assigned_queues_are_read_from_the_offset_that_was_sought(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            await world.send("Orders", *names(10), queue_id=0)
            await world.send("Orders", *names(10, "other"), queue_id=1)
            queue = world.queue("Orders", 0)

            async with AsyncPullConsumer(world.namesrv, "audit") as consumer:
                assert await consumer.topic_queues("Orders") == [queue, world.queue("Orders", 1)]
                await consumer.assign([queue])
                await consumer.seek(queue, 7)
                assert consumer.position(queue) == 7
                bodies = await poll_all(consumer, 3)
                assert consumer.position(queue) == 10

            assert bodies == ["m7", "m8", "m9"]
            assert world.offset("audit", "Orders", 0) == 10
            assert world.offset("audit", "Orders", 1) == -1

    run_async(main)


def test_seek_to_begin_end_and_time(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "a", "b")
            now_ms = await world.later_ms()
            await world.send("Orders", "c")
            queue = world.queue("Orders", 0)

            async with AsyncPullConsumer(world.namesrv, "audit") as consumer:
                await consumer.assign([queue])
                await consumer.seek_to_end()
                assert (consumer.position(queue), await consumer.poll(timeout=0.05)) == (3, [])
                await consumer.seek_to_begin()
                assert await poll_all(consumer, 3) == ["a", "b", "c"]
                await consumer.seek_to_time(now_ms)
                assert await poll_all(consumer, 1) == ["c"]
                assert await consumer.offset_at(queue, now_ms) == 2

    run_async(main)


def test_messages_count_as_done_only_at_the_next_poll(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(4))
            queue = world.queue("Orders", 0)

            async def broken():
                async with AsyncPullConsumer(
                    world.namesrv, "audit", start_from="first"
                ) as consumer:
                    await consumer.assign([queue])
                    assert len(await consumer.poll(timeout=5, count=2)) == 2
                    assert len(await consumer.poll(timeout=5, count=2)) == 2
                    raise ValueError

            with pytest.raises(ValueError):  # noqa: PT011
                await broken()

            assert world.offset("audit", "Orders", 0) == 2

    run_async(main)


def test_commit_by_hand(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(4))
            queue = world.queue("Orders", 0)

            async with AsyncPullConsumer(
                world.namesrv, "audit", auto_commit=False, start_from="first"
            ) as consumer:
                await consumer.assign([queue])
                first = await consumer.poll(timeout=5, count=3)
                assert await consumer.committed(queue) in (None, 0)
                await consumer.commit()
                assert await consumer.committed(queue) == 3
                await consumer.commit({queue: 1})

            assert len(first) == 3
            assert world.offset("audit", "Orders", 0) == 1

    run_async(main)


def test_a_loop_reads_on_and_on(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=2)
            await world.send("Orders", *names(20))
            bodies = []
            async with AsyncPullConsumer(
                world.namesrv, "audit", "Orders", start_from="first"
            ) as consumer:
                async for message in consumer:
                    bodies.append(message.body.decode())
                    if len(bodies) == 20:
                        break

            assert sorted(bodies) == sorted(names(20))
            assert sum(world.offset("audit", "Orders", queue) for queue in (0, 1)) == 20

    run_async(main)


def test_subscribed_members_share_queues(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=4)
            given = {"start_from": "first", "handover_wait_ms": 50}
            async with AsyncPullConsumer(world.namesrv, "audit", "Orders", **given) as one:
                await until(lambda: len(one.queues) == 4)
                async with AsyncPullConsumer(world.namesrv, "audit", "Orders", **given) as two:
                    await until(lambda: len(one.queues) == len(two.queues) == 2)
                    await world.send("Orders", *names(8))
                    bodies = await poll_all(one, 4) + await poll_all(two, 4)
                await until(lambda: len(one.queues) == 4)
                await world.send("Orders", "last")
                bodies += await poll_all(one, 1)

            assert sorted(bodies) == sorted([*names(8), "last"])

    run_async(main)


def test_tags_are_filtered(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            for tag in ("Aa", "BB", "Aa"):
                await world.send("Orders", tag, tag=tag)
            queue = world.queue("Orders", 0)
            async with AsyncPullConsumer(world.namesrv, "audit", start_from="first") as consumer:
                await consumer.assign("Orders", "Aa")
                assert await poll_all(consumer, 2) == ["Aa", "Aa"]
                assert consumer.position(queue) == 3

    run_async(main)


def test_a_paused_queue_returns_nothing(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            queue = world.queue("Orders", 0)
            async with AsyncPullConsumer(world.namesrv, "audit", start_from="first") as consumer:
                await consumer.assign([queue])
                consumer.pause(queue)
                await world.send("Orders", "a")
                assert await consumer.poll(timeout=0.1) == []
                consumer.resume()
                assert await poll_all(consumer, 1) == ["a"]

    run_async(main)


@pytest.mark.feature("F20")
def test_a_poll_is_woken_by_a_new_message(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            queue = world.queue("Orders", 0)
            # Minutes: what comes sooner comes because of the message.
            given = {"start_from": "first", "suspend_ms": 300_000, "pull_timeout_ms": 600_000}
            async with AsyncPullConsumer(world.namesrv, "audit", **given) as consumer:
                await consumer.assign([queue])
                polled = asyncio.ensure_future(consumer.poll(timeout=600))
                await until(lambda: world.broker.context.long_poll.count == 1)
                await world.send("Orders", "a")
                assert [message.body for message in await polled] == [b"a"]

    run_async(main)


def test_an_offset_that_is_not_there_is_corrected(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            queue = world.queue("Orders", 0)
            async with AsyncPullConsumer(world.namesrv, "audit") as consumer:
                await consumer.assign([queue])
                await consumer.seek(queue, 99)
                await until(lambda: consumer.position(queue) == 3)

    run_async(main)


def test_single_pulls_need_no_position(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(5))
            queue = world.queue("Orders", 0)
            async with AsyncPullConsumer(world.namesrv, "audit") as consumer:
                found = await consumer.pull(queue, 2, count=2)
                end = await consumer.pull(queue, 5)

            assert [message.body for message in found.messages()] == [b"m2", b"m3"]
            assert (found.next_offset, found.min_offset, found.max_offset) == (4, 0, 5)
            assert end.status is PullStatus.NO_NEW

    run_async(main)


def test_misuse_is_refused_with_a_reason(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            queue = world.queue("Orders", 0)
            async with AsyncPullConsumer(world.namesrv, "audit") as consumer:
                with pytest.raises(ClientError, match="assign"):
                    await consumer.seek(queue, 1)
                with pytest.raises(NoRouteError):
                    await consumer.assign([world.queue("Nothing", 0)])
                await consumer.assign([queue])
                with pytest.raises(ClientError, match="subscribe"):
                    await consumer.subscribe("Orders")
            with pytest.raises(ClientClosedError, match="open"):
                await consumer.poll()

    run_async(main)


def test_a_broker_that_knows_no_lite_pulls_is_asked_in_the_plain_way(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "a")
            async with AsyncPullConsumer(world.namesrv, "audit", start_from="first") as consumer:
                brokers = consumer._context.core.brokers
                plain, lites = brokers.pull, []

                async def pull(address, header, *, timeout_ms, lite=False):
                    lites.append(lite)
                    if lite:
                        raise ResponseError(3, "request type 361 not supported")
                    return await plain(address, header, timeout_ms=timeout_ms)

                brokers.pull = pull
                await consumer.assign("Orders")
                assert await poll_all(consumer, 1) == ["a"]
                assert lites[:2] == [True, False]

    run_async(main)


def test_a_second_one_of_the_same_client_is_refused_and_leaves_the_first_alone(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", "a")
            given = {"instance_name": "same", "start_from": "first"}
            async with AsyncPullConsumer(world.namesrv, "audit", "Orders", **given) as first:
                second = AsyncPullConsumer(world.namesrv, "audit", "Orders", **given)
                with pytest.raises(ClientError, match="exists already"):
                    await second.open()

                assert first._context.core.consumer("audit") is first
                assert await poll_all(first, 1) == ["a"]

    run_async(main)
