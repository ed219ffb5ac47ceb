"""Processor: a family of requests, and how its answers come about."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.long_poll import CATCH_UP_BYTES
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import FieldError
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

RequestHandler = Callable[[Connection, Command], Command | None]
"""Answers one request; None: it is answered later, or not at all."""

HandleMany = Callable[[Connection, Sequence[Command]], None]
"""Answers requests of one kind that came together, each by itself."""

_Method = TypeVar("_Method", bound=Callable[..., Command | None])


def answers(*codes: int, of_queues: bool = False) -> Callable[[_Method], _Method]:
    """Mark the method of a processor that answers requests with these codes.

    `of_queues`: it tells about queues or the index, so what was acknowledged before is dispatched first,
    unless it is much.
    """

    def mark(method: _Method) -> _Method:
        method.codes, method.of_queues = codes, of_queues  # type: ignore[attr-defined]
        return method

    return mark


class Processor:
    """A family of requests: its methods that are marked with `answers`."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._tasks: set[asyncio.Task[None]] = set()
        context.pending.append(lambda: len(self._tasks))

    def handlers(self) -> dict[int, RequestHandler]:
        """Return who answers which code."""
        found: dict[int, RequestHandler] = {}
        for name, method in vars(type(self)).items():
            handler = getattr(self, name)
            if getattr(method, "of_queues", False):
                handler = partial(self._catch_up_first, handler)
            found.update(dict.fromkeys(getattr(method, "codes", ()), handler))
        return found

    def together(self) -> dict[int, HandleMany]:
        """Return who answers requests that came together in one read; by default each is handled alone."""
        return {}

    def _catch_up_first(
        self, handler: RequestHandler, connection: Connection, request: Command
    ) -> Command | None:
        self._store.catch_up(CATCH_UP_BYTES)
        return handler(connection, request)

    def _send(self, connection: Connection, request: Command, answer: Command) -> None:
        """Answer a request that the router left to this processor."""
        if answer.code:
            self._context.request_log.refused(connection, request, answer)
        if not request.is_oneway:
            connection.send(answer)

    def answer_later(
        self,
        connection: Connection,
        request: Command,
        work: Coroutine[Any, Any, Command | None],
    ) -> None:
        """Do what waits beside other requests, and answer then; the end of the broker waits for it."""
        task = self._context.loop.create_task(self._answer_then(connection, request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_then(
        self, connection: Connection, request: Command, work: Coroutine[Any, Any, Command | None]
    ) -> None:
        try:
            answer = await work
        except Exception as error:
            answer = failure_answer(connection, request, error)
        if answer is not None:
            self._send(connection, request, answer)


def failure_answer(connection: Connection, request: Command, error: Exception) -> Command:
    """Return the answer that tells what went wrong; what nobody expected is logged."""
    if isinstance(error, Refusal):
        return request.answer(error.code, error.remark, fields=error.fields)
    if isinstance(error, FieldError):
        return request.answer(ResponseCode.SYSTEM_ERROR, f"{error}; the request was not done")
    logger.error("request %d of %s failed", request.code, connection.peer, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return request.answer(ResponseCode.SYSTEM_ERROR, remark)
