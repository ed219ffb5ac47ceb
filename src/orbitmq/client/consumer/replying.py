"""A consumer that replies: a handler whose result goes back to who asked.

def answer(message):                      # returns the reply, or None: no reply
    return b"there are 17"

with (
    Producer(namesrv, group="answers") as producer,
    Consumer(namesrv, group="questions", topics="Questions", handler=replies(producer, answer)) as consumer,
):
    consumer.wait()

An async producer takes a coroutine function, for an AsyncConsumer.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, overload

from orbitmq.client.consumer.handling import is_coroutine_function
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.producer.request_reply import is_request, is_requester_gone
from orbitmq.client.producer.send_result import SendResult
from orbitmq.errors import ClientError, OrbitError

_log = logging.getLogger(__name__)


class Replier(Protocol):
    """Sends replies, and waits for that: `Producer`."""

    def reply(self, request: ReceivedMessage, body: bytes) -> SendResult: ...


class AsyncReplier(Protocol):
    """The same for asyncio: `AsyncProducer`."""

    async def reply(self, request: ReceivedMessage, body: bytes) -> SendResult: ...


Answer = Callable[[Any], bytes | None]
AsyncAnswer = Callable[[Any], Awaitable[bytes | None]]


@overload
def replies(
    producer: AsyncReplier, function: AsyncAnswer
) -> Callable[[ReceivedMessage], Awaitable[None]]: ...
@overload
def replies(producer: Replier, function: Answer) -> Callable[[ReceivedMessage], None]: ...
def replies(
    producer: Replier | AsyncReplier, function: Answer | AsyncAnswer
) -> Callable[[ReceivedMessage], Any]:
    """Return a handler for consumers: what the function returns is sent as the reply.

    When who asked is gone, that is logged, and the message is done with. When the reply could not be sent
    for another reason the message comes again, as after any exception of the function.
    """
    is_async = is_coroutine_function(function)
    if is_async != inspect.iscoroutinefunction(producer.reply):
        raise ClientError(
            "replies() takes an async producer with an async function, or a producer with a plain one"
        )
    return _async_handler(producer, function) if is_async else _handler(producer, function)


def _handler(producer: Any, function: Any) -> Callable[[ReceivedMessage], None]:
    def handle(message: ReceivedMessage) -> None:
        body = function(message)
        if body is None or not is_request(message):
            return
        try:
            producer.reply(message, body)
        except OrbitError as failure:
            _require_gone(failure, message)

    return handle


def _async_handler(producer: Any, function: Any) -> Callable[[ReceivedMessage], Awaitable[None]]:
    async def handle(message: ReceivedMessage) -> None:
        body = await function(message)
        if body is None or not is_request(message):
            return
        try:
            await producer.reply(message, body)
        except OrbitError as failure:
            _require_gone(failure, message)

    return handle


def _require_gone(failure: OrbitError, request: ReceivedMessage) -> None:
    """Raise what happened to a reply, unless only the requester is gone: nobody needs another one."""
    if not is_requester_gone(failure):
        raise failure
    _log.warning("message %s: who asked is gone: %s", request.message_id, failure)
