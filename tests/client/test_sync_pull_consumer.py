"""The synchronous pull consumer."""

import asyncio

import pytest

from async_run import run_async
from consumer_world import consumer_world, names
from orbitmq.client.sync.pull_consumer import PullConsumer
from orbitmq.errors import ClientClosedError


def in_thread(tmp_path, work, count=10):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(count))
            result = await asyncio.to_thread(work, world, world.queue("Orders", 0))
            return result, world.offset("audit", "Orders", 0)

    return run_async(main)


def test_seek_poll_and_commit(tmp_path):
    def work(world, queue):
        with PullConsumer(world.namesrv, "audit") as consumer:
            consumer.assign([queue])
            consumer.seek(queue, 7)
            bodies = [message.body for message in consumer.poll(timeout=5)]
            consumer.commit()
            return bodies, consumer.position(queue), consumer.committed(queue), consumer.queues

    (bodies, position, committed, queues), offset = in_thread(tmp_path, work)

    assert bodies == [b"m7", b"m8", b"m9"]
    assert (position, committed, offset) == (10, 10, 10)
    assert len(queues) == 1


def test_a_loop_that_is_left_early_gives_back_what_nobody_saw(tmp_path):
    def work(world, queue):
        bodies = []
        with PullConsumer(world.namesrv, "audit", "Orders", start_from="first") as consumer:
            for rounds in (3, 4):
                for message in consumer:
                    bodies.append(message.body.decode())
                    if len(bodies) == rounds:
                        break
        return bodies

    bodies, offset = in_thread(tmp_path, work)

    assert bodies == names(4)
    assert offset == 4


def test_begin_end_time_pause_and_single_pulls(tmp_path):
    def work(world, queue):
        with PullConsumer(world.namesrv, "audit") as consumer:
            assert consumer.topic_queues("Orders") == [queue]
            consumer.assign([queue])
            consumer.seek_to_end()
            assert consumer.position(queue) == 10
            consumer.seek_to_begin(queue)
            consumer.pause()
            assert consumer.poll(timeout=0.05) == []
            consumer.resume()
            assert len(consumer.poll(timeout=5)) == 10
            consumer.seek_to_time(0)
            assert consumer.offset_at(queue, 0) == 0
            return len(consumer.pull(queue, 8).messages())

    assert in_thread(tmp_path, work)[0] == 2


def test_a_closed_consumer_says_so():
    consumer = PullConsumer("127.0.0.1:9", "audit")

    with pytest.raises(ClientClosedError, match="with"):
        consumer.poll()
