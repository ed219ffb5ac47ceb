"""Where a consumer begins a queue."""

from types import SimpleNamespace

import pytest

from async_run import run_async
from orbitmq.client.consumer.config import ConsumerConfig, StartFrom
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

NOW_MS = 1_700_000_000_000
END = 70
ORDERS, RETRIES = (MessageQueue(topic, "broker-a", 0) for topic in ("Orders", "%RETRY%demo"))


class FakeContext:
    """A broker whose queues end at 70; a search by time is answered with the time itself."""

    def __init__(self, stored: int, **given) -> None:
        self.config = ConsumerConfig(group="demo", **given)
        self.core = SimpleNamespace(brokers=self, routes=self, clock=FakeClock(NOW_MS))
        self.offsets, self.stored = self, stored

    async def read(self, queue: MessageQueue) -> int:
        return self.stored

    async def find_address(self, broker_name: str, topic: str) -> str:
        return "127.0.0.1:1"

    async def max_offset(self, address: str, queue: MessageQueue) -> int:
        return END

    async def search_offset(self, address: str, queue: MessageQueue, ms: int) -> int:
        return ms


@pytest.mark.parametrize(
    ("queue", "given", "expected"),
    [
        (ORDERS, {"start_from": StartFrom.FIRST}, 0),
        (ORDERS, {"start_from": StartFrom.LAST}, END),
        (ORDERS, {"start_from": StartFrom.TIMESTAMP}, NOW_MS - 30 * 60_000),
        (ORDERS, {"start_from": StartFrom.TIMESTAMP, "start_ms": 17}, 17),
        (RETRIES, {"start_from": StartFrom.FIRST}, 0),
        (RETRIES, {"start_from": StartFrom.LAST}, 0),
        (RETRIES, {"start_from": StartFrom.TIMESTAMP}, END),
    ],
)
def test_a_new_group_begins_as_rocketmq_does(queue, given, expected):
    context = FakeContext(stored=-1, **given)

    assert run_async(lambda: ConsumerContext.start_offset(context, queue)) == expected


@pytest.mark.parametrize("stored", [0, 5])
@pytest.mark.parametrize("start_from", StartFrom)
def test_a_group_that_has_an_offset_goes_on_there(stored, start_from):
    context = FakeContext(stored, start_from=start_from)

    assert run_async(lambda: ConsumerContext.start_offset(context, ORDERS)) == stored
