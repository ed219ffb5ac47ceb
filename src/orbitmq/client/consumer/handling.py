"""How messages reach the user's function, and what it said of them.

A function that returns has handled the message. One that raises has not: the message comes again later.
`RetryLater` says when; every other exception is logged and means the same without a wish.
"""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final

from orbitmq.client.consumer.delivery import Delivery, Outcome
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.message import ReceivedMessage

_log = logging.getLogger(__name__)

DEAD_LETTERS: Final = -1
"""The level of `RetryLater` that means: never again, to the group's dead letters."""


class RetryLater(Exception):  # noqa: N818 - a wish, not an error
    """Raised by a handler: give me this message again later.

    `level` is a delay level of the broker (1s 5s 10s 30s 1m 2m ...), 0: it chooses, -1: dead letters.
    An orderly consumer waits `suspend_ms` instead, with the whole queue.
    """

    def __init__(self, reason: str = "", *, level: int | None = None, suspend_ms: int = -1) -> None:
        self.level, self.suspend_ms = level, suspend_ms
        super().__init__(reason)


Handler = Callable[[list[Delivery], ProcessQueue | None], Awaitable[Outcome]]
"""Gets messages and the queue that holds them; None: they came by themselves."""

UserFunction = Callable[[Any], Any]


def make_handler(
    function: UserFunction, *, batch: bool, executor: Executor | None = None
) -> Handler:
    """Return a handler that calls the user's function: with one message, or with a list if `batch`.

    A coroutine function is awaited on the loop. Any other needs an executor, whose threads call it.
    """
    coroutine = is_coroutine_function(function)

    async def handle(messages: list[Delivery], held: ProcessQueue | None) -> Outcome:
        if not coroutine:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(executor, call_function, function, messages, batch)
        try:
            failed = await function(messages if batch else messages[0])
        except Exception as error:
            return _raised(error, messages)
        return Outcome(_failed(failed, messages) if batch else ())

    return handle


def is_coroutine_function(function: UserFunction) -> bool:
    """Tell whether calling it gives something to be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object with async __call__
    )


def call_function(function: UserFunction, messages: list[Delivery], batch: bool) -> Outcome:
    """Call a user's function, which is no coroutine function, in this thread."""
    try:
        failed = _call(function, messages if batch else messages[0])
    except Exception as error:
        return _raised(error, messages)
    return Outcome(_failed(failed, messages) if batch else ())


def _raised(error: Exception, messages: Sequence[ReceivedMessage]) -> Outcome:
    if isinstance(error, RetryLater):
        return Outcome(messages, error.level, error.suspend_ms, error)
    _log.warning("handler failed for %s", _names(messages), exc_info=error)
    return Outcome(messages, error=error)


def _call(function: UserFunction, argument: Any) -> Any:
    try:
        return function(argument)
    except (SystemExit, KeyboardInterrupt) as wish:
        # These would end the event loop, with all clients of the process on it.
        raise RuntimeError(f"the handler wanted to end the program: {wish!r}") from wish


def _failed(returned: object, messages: Sequence[ReceivedMessage]) -> Sequence[ReceivedMessage]:
    """Return which messages of a batch a handler named as failed; None means: none."""
    if returned is None:
        return ()
    named = {id(one) for one in returned} if isinstance(returned, list | tuple | set) else set()
    return [message for message in messages if id(message) in named]


def _names(messages: Sequence[ReceivedMessage]) -> str:
    first = messages[0]
    more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
    return f"message {first.message_id} of topic {first.topic}{more}"
