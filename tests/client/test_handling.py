"""From the user's function to an outcome."""

import threading
from concurrent.futures import ThreadPoolExecutor

from async_run import run_async
from orbitmq.client.consumer.handling import DEAD_LETTERS, RetryLater, make_handler
from orbitmq.client.core.message import ReceivedMessage


def message(number: int = 0) -> ReceivedMessage:
    return ReceivedMessage("T", b"%d" % number, "b", 0, number, 0, {}, 0, 0, "", "", "ID")


def handle(function, messages, **given):
    async def main():
        return await make_handler(function, batch=given.pop("batch", False), **given)(
            messages, None
        )

    return run_async(main)


def test_a_function_that_returns_has_handled_the_message():
    async def function(one):
        assert one.body == b"0"
        return "anything"

    assert handle(function, [message()]).ok


def test_an_exception_means_later(caplog):
    async def function(one):
        raise ValueError("no")

    outcome = handle(function, [message()])

    assert (len(outcome.failed), outcome.level, outcome.suspend_ms) == (1, None, -1)
    assert "message ID of topic T" in caplog.text


def test_retry_later_carries_wishes_and_is_not_logged(caplog):
    async def function(one):
        raise RetryLater("full", level=DEAD_LETTERS, suspend_ms=50)

    outcome = handle(function, [message()])

    assert (len(outcome.failed), outcome.level, outcome.suspend_ms) == (1, -1, 50)
    assert not caplog.text


def test_plain_functions_run_in_the_executor():
    names = []

    def function(one):
        names.append(threading.current_thread().name)

    with ThreadPoolExecutor(1, "worker") as executor:
        assert handle(function, [message()], executor=executor).ok

    assert names[0].startswith("worker")


def test_a_handler_that_wants_to_exit_has_failed():
    def function(one):
        raise SystemExit(3)

    with ThreadPoolExecutor(1) as executor:
        outcome = handle(function, [message()], executor=executor)

    assert not outcome.ok
    assert "SystemExit(3)" in str(outcome.error)


def test_an_object_with_an_async_call_is_awaited():
    class Counting:
        count = 0

        async def __call__(self, one):
            self.count += 1

    counting = Counting()
    handle(counting, [message()])

    assert counting.count == 1


def test_a_batch_handler_names_the_failed_ones():
    messages = [message(number) for number in range(3)]

    async def function(batch):
        return [batch[1]]

    assert handle(function, messages, batch=True).failed == [messages[1]]


def test_a_batch_that_raises_failed_as_a_whole():
    async def function(batch):
        raise ValueError

    assert len(handle(function, [message(1), message(2)], batch=True).failed) == 2
