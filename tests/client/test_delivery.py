"""Settling a message once, and recognizing how a loop was left."""

import asyncio
import contextlib
import sys

import pytest

from async_run import run_async
from orbitmq.client.consumer.delivery import Deliveries, Delivery, settle_left
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.message_queue import MessageQueue


class Sink(list):
    put = list.append


def message() -> ReceivedMessage:
    return ReceivedMessage("T", b"x", "b", 0, 7, 0, {"KEYS": "k"}, 0, 0, "", "", "ID")


def loop_over(deliveries: list[Delivery]):
    class Loop:
        current = None

        def __iter__(self):
            return self

        def __next__(self):
            if not deliveries:
                raise StopIteration
            self.current = deliveries.pop(0)
            return self.current

        def __del__(self):
            settle_left(self.current, sys._getframe().f_back)

    return Loop()


def new_delivery() -> tuple[Delivery, list[str]]:
    words: list[str] = []
    made = Delivery("T", b"", "b", 0, 0, 0, {}, 0, 0, "", "", "")
    made.answers_to(lambda outcome: words.append("ok" if outcome.ok else "failed"))
    return made, words


def test_a_break_acknowledges():
    delivery, words = new_delivery()

    for _ in loop_over([delivery]):
        break

    assert words == ["ok"]


def test_a_break_out_of_an_inner_block_acknowledges():
    delivery, words = new_delivery()

    for _ in loop_over([delivery]):
        try:
            if delivery:
                break
        finally:
            words.append("finally")

    assert words == ["finally", "ok"]


@pytest.mark.parametrize("value", [None, 1, "computed"])
def test_a_return_acknowledges(value):
    delivery, words = new_delivery()

    def take():
        for _ in loop_over([delivery]):
            if value == "computed":
                return len(words) + 1
            if value:
                return value
            return None
        return None

    take()

    assert words == ["ok"]


def raises(delivery):
    for _ in loop_over([delivery]):
        raise ValueError


def fails_in_a_call(delivery):
    for _ in loop_over([delivery]):
        int("no number")


def fails_in_an_expression(delivery):
    for _ in loop_over([delivery]):
        1 / 0  # noqa: B018


def fails_and_catches_outside_the_loop(delivery):
    try:
        for _ in loop_over([delivery]):
            raise ValueError
    finally:
        pass


def is_never_finished(delivery):
    next(iter(loop_over([delivery])))


@pytest.mark.parametrize(
    "leave",
    [
        raises,
        fails_in_a_call,
        fails_in_an_expression,
        fails_and_catches_outside_the_loop,
        is_never_finished,
    ],
    ids=lambda function: function.__name__,
)
def test_every_other_way_out_of_a_loop_gives_the_message_back(leave):
    delivery, words = new_delivery()

    with contextlib.suppress(ValueError, ZeroDivisionError):
        leave(delivery)

    assert words == ["failed"]


def test_only_the_first_word_counts():
    delivery, words = new_delivery()

    delivery.ack()
    delivery.retry()
    delivery.withdraw()

    assert words == ["ok"]


def test_a_delivery_that_was_taken_cannot_be_withdrawn():
    delivery, words = new_delivery()

    taken = delivery.take()
    delivery.withdraw()

    assert taken
    assert words == []


def test_a_delivery_that_was_withdrawn_cannot_be_taken():
    delivery, _ = new_delivery()

    delivery.withdraw()

    assert not delivery.take()


def test_the_handler_waits_until_the_message_is_settled():
    async def main():
        sink = Sink()
        deliveries = Deliveries(sink)
        original = message()
        handled = asyncio.ensure_future(deliveries.handle([original], None))
        await asyncio.sleep(0)
        assert not handled.done()
        sink[0].retry(level=3)
        outcome = await handled
        return sink[0].keys, outcome.failed[0] is original, outcome.level

    assert run_async(main) == (["k"], True, 3)


def test_a_dropped_queue_withdraws_what_nobody_took():
    async def main():
        sink = Sink()
        deliveries = Deliveries(sink)
        queue = ProcessQueue(MessageQueue("T", "b", 0), 0, FakeClock())
        handled = [asyncio.ensure_future(deliveries.handle([message()], queue)) for _ in range(2)]
        await asyncio.sleep(0)
        sink[0].take()
        queue.drop()
        await asyncio.sleep(0)
        waiting = handled[0].done()
        sink[0].ack()
        return waiting, (await handled[0]).abandoned, (await handled[1]).abandoned, queue.on_drop

    assert run_async(main) == (False, False, True, set())


def test_after_closing_nothing_is_given_out():
    async def main():
        sink = Sink()
        deliveries = Deliveries(sink)
        waiting = asyncio.ensure_future(deliveries.handle([message()], None))
        await asyncio.sleep(0)
        deliveries.close()
        later = await deliveries.handle([message()], None)
        return (await waiting).abandoned, later.abandoned, len(sink)

    assert run_async(main) == (True, True, 1)


def test_answers_can_go_through_another_thread():
    async def main():
        sink, calls = Sink(), []
        deliveries = Deliveries(sink, calls.append)
        handled = asyncio.ensure_future(deliveries.handle([message()], None))
        await asyncio.sleep(0)
        sink[0].ack()
        assert not handled.done()
        calls[0]()
        return (await handled).ok

    assert run_async(main)
