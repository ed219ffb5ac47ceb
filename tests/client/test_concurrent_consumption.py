"""Messages handled at the same time, while their queue stays or goes."""

import asyncio
from types import SimpleNamespace

import pytest

from async_run import run_async, until
from orbitmq.client.consumer.concurrent_consumption import ConcurrentConsumption
from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.consume_rates import ConsumeRates
from orbitmq.client.consumer.delivery import Delivery, Outcome
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue

QUEUE = MessageQueue("Orders", "broker-a", 0)


def message(offset: int) -> Delivery:
    return Delivery("Orders", b"x", "broker-a", 0, offset, 0, {}, 0, 0, "", "", f"ID{offset}")


class World:
    """A queue with two messages, a handler that fails when it may, and what is told to others."""

    def __init__(self, taken_back: bool = True) -> None:
        clock, self.told = FakeClock(), []
        config = ConsumerConfig(group="demo", workers=2)
        context = SimpleNamespace(
            config=config, core=SimpleNamespace(clock=clock), rates=ConsumeRates()
        )
        self.taken_back, self.may_end, self.handled = taken_back, asyncio.Event(), []
        self.held = ProcessQueue(QUEUE, 0, clock)
        self.consumption = ConcurrentConsumption(context, self.handle, self)

    async def handle(self, messages: list[Delivery], held: ProcessQueue) -> Outcome:
        self.handled += [one.queue_offset for one in messages]
        await self.may_end.wait()
        return Outcome(messages)

    async def give_back(self, one: Delivery, level: int) -> bool:
        self.told.append(f"back {one.queue_offset}")
        return self.taken_back

    def start(self) -> None:
        self.consumption.start()
        self.consumption.open_queue(self.held)
        new = self.held.put([message(0), message(1)], 2)
        self.consumption.submit(self.held, new)


def run_with_world(test, **given):
    async def main():
        world = World(**given)
        world.start()
        await until(lambda: len(world.handled) == 2)
        await test(world)
        await world.consumption.stop(1000)

    run_async(main)


def test_what_failed_is_given_back_and_then_counts_as_done():
    async def test(world):
        world.may_end.set()
        await until(lambda: world.held.count == 0)

        assert sorted(world.told) == ["back 0", "back 1"]
        assert world.held.consumer_offset == 2

    run_with_world(test)


def test_a_queue_that_was_handed_over_is_another_members_matter():
    async def test(world):
        world.held.drop()
        world.held.handed_over = True
        world.may_end.set()
        await until(lambda: world.held.running == 0)

        assert world.told == []

    run_with_world(test)


def test_what_nobody_took_back_stays_held_and_is_handled_again(monkeypatch):
    monkeypatch.setattr("orbitmq.client.consumer.concurrent_consumption.TRY_AGAIN_MS", 1)

    async def test(world):
        world.may_end.set()
        await until(lambda: len(world.handled) >= 4)

        assert (world.held.count, world.held.consumer_offset) == (2, 0)

    run_with_world(test, taken_back=False)


@pytest.mark.parametrize("ends", [True, False])
def test_a_stop_waits_for_handlers_and_says_whether_they_ended(ends):
    async def main():
        world = World()
        world.start()
        await until(lambda: len(world.handled) == 2)
        if ends:
            asyncio.get_running_loop().call_soon(world.may_end.set)
        return await world.consumption.stop(1000 if ends else 1)

    assert run_async(main) is ends
