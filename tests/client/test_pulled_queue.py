"""One queue of a pull consumer: read ahead, but not further than the limits."""

import asyncio
from types import SimpleNamespace

import pytest

from async_run import run_async, until
from client.test_pull_loop import QUEUE, found, record
from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.pulled_queue import PulledQueue
from orbitmq.client.consumer.subscription import subscription
from orbitmq.client.core.broker_api import PullResult
from orbitmq.wire.headers.pull import PullHeader


class Endless:
    """A broker that has two messages of 5 bytes for every pull."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.brokers = self.routes = self

    def address(self, broker_name: str, broker_id: int = 0) -> str:
        return "127.0.0.1:1"

    async def pull(self, address: str, header: PullHeader, **more: object) -> PullResult:
        offset = header.queue_offset
        self.asked.append(offset)
        await asyncio.sleep(0)
        return found(record(offset), record(offset + 1), next_offset=offset + 2)


@pytest.mark.parametrize(
    ("limit", "pulls"),
    [
        pytest.param({"held_count_max": 4}, 2, id="4 messages"),
        pytest.param({"held_count_max": 5}, 3, id="5 messages"),
        pytest.param({"held_bytes_max": 20}, 2, id="20 bytes"),
        pytest.param({"held_bytes_max": 21}, 3, id="21 bytes"),
    ],
)
def test_no_more_is_read_ahead_than_the_limits_until_messages_are_taken(limit, pulls):
    async def main():
        broker = Endless()
        config = ConsumerConfig(group="demo", **limit)
        context = SimpleNamespace(config=config, core=broker, group="demo")
        queue = PulledQueue(context, QUEUE, subscription("Orders", "*", 1), 0, lambda: None)

        await until(lambda: queue.ready >= 2 * pulls)
        for _ in range(20):
            await asyncio.sleep(0)
        before = list(broker.asked)
        taken = queue.take(2)
        await until(lambda: len(broker.asked) == pulls + 1)
        await queue.close()

        assert before == list(range(0, 2 * pulls, 2))
        assert [message.queue_offset for message in taken] == [0, 1]
        assert queue.position == 2

    run_async(main)
