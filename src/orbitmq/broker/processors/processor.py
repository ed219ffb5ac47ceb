"""Processor: a family of requests, and how its answers come about."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import FieldError
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

RequestHandler = Callable[[Connection, Command], Command | None]
"""Answers one request; None: it is answered later, or not at all."""

_Method = TypeVar("_Method", bound=Callable[..., Command | None])


def answers(*codes: int) -> Callable[[_Method], _Method]:
    """Mark the method of a processor that answers requests with these codes."""

    def mark(method: _Method) -> _Method:
        method.codes = codes  # type: ignore[attr-defined]
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
        return {
            code: getattr(self, name)
            for name, method in vars(type(self)).items()
            for code in getattr(method, "codes", ())
        }

    def answer_later(
        self,
        connection: Connection,
        request: Command,
        work: Coroutine[Any, Any, Command | None],
    ) -> None:
        """Do what waits beside other requests, and answer then; the end of the broker waits for it."""
        task = self._context.loop.create_task(_answer_then(connection, request, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer_then(
    connection: Connection, request: Command, work: Coroutine[Any, Any, Command | None]
) -> None:
    try:
        answer = await work
    except Exception as error:
        answer = failure_answer(connection, request, error)
    if answer is not None and not request.is_oneway:
        connection.send(answer)


def failure_answer(connection: Connection, request: Command, error: Exception) -> Command:
    """Return the answer that tells what went wrong; what nobody expected is logged."""
    if isinstance(error, Refusal):
        return request.answer(error.code, error.remark, fields=error.fields)
    if isinstance(error, FieldError):
        return request.answer(ResponseCode.SYSTEM_ERROR, f"{error}; the request was not done")
    logger.error("request %d of %s failed", request.code, connection.peer, exc_info=error)
    remark = f"{type(error).__name__}: {error}"
    return request.answer(ResponseCode.SYSTEM_ERROR, remark)
