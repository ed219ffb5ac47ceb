"""The queues of a pull consumer: fetched ahead, but not further than the limits."""

import asyncio
from types import SimpleNamespace

import pytest

from async_run import run_async, until
from client.test_fetcher import QUEUE, found, record
from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.consume_rates import ConsumeRates
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.pulled_queues import PulledQueues
from orbitmq.client.consumer.subscription import subscription
from orbitmq.client.core.broker_api import PullResult
from orbitmq.clock import SystemClock
from orbitmq.wire.headers.pull import PullHeader


class Endless:
    """A broker that has two messages of 5 bytes for every pull."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.brokers = self.routes = self
        self.clock = SystemClock()

    async def find_address(self, broker_name: str, topic: str, broker_id: int = 0) -> str:
        return "127.0.0.1:1"

    async def pull(self, address: str, header: PullHeader, **more: object) -> PullResult:
        offset = header.queue_offset
        self.asked.append(offset)
        await asyncio.sleep(0)
        return found(record(offset), record(offset + 1), next_offset=offset + 2)


@pytest.mark.parametrize(
    ("limit", "pulls"),
    [
        pytest.param({"prefetch_count": 3}, 2, id="4 are more than 3 messages"),
        pytest.param({"prefetch_count": 4}, 3, id="4 are not more than 4 messages"),
        pytest.param({"prefetch_bytes": 19}, 2, id="20 are more than 19 bytes"),
        pytest.param({"prefetch_bytes": 20}, 3, id="20 are not more than 20 bytes"),
    ],
)
def test_no_more_is_read_ahead_than_the_limits_until_messages_are_taken(limit, pulls):
    async def main():
        broker = Endless()
        config = ConsumerConfig(group="demo", **limit)
        context = SimpleNamespace(
            config=config,
            core=broker,
            retry_topic="%RETRY%demo",
            rates=ConsumeRates(),
            delivery_kind=Delivery,
        )
        queues = PulledQueues(context)
        queues.add(QUEUE, 0, subscription("Orders", "*", 1))
        (held,) = queues.held

        await until(lambda: held.count >= 2 * pulls)
        for _ in range(20):
            await asyncio.sleep(0)
        before = list(broker.asked)
        taken = queues.take(2)
        queues.finish_returned()
        await until(lambda: len(broker.asked) == pulls + 1)
        await queues.stop()

        assert before == list(range(0, 2 * pulls, 2))
        assert [message.queue_offset for message in taken] == [0, 1]
        assert (queues.position(QUEUE), queues.done) == (2, {QUEUE: 2})

    run_async(main)
