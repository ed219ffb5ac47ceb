"""Sending: one message on its way, over as many tries as it takes. No task per message.

Each try is a request that calls back; success ends it, a failure that may be cured elsewhere
starts the next try on another broker, and the time of all tries together is limited.

what happened                                      | `send`       | `send_async`
no connection, it broke, no answer in time         | next try     | next try
answer 1, 2, 14, 16, 17, 204, 205 or 1500          | next try     | raised
any other answer that is no success                | raised       | raised
GO_AWAY (1500)                                     | once more over a new connection, then as above
queue given or ordered by key                      | one try only
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from orbitmq.client.core.calls import response_error
from orbitmq.client.core.route_cache import PublishRoute
from orbitmq.client.producer.send_engine import SendEngine
from orbitmq.client.producer.send_request import SendRequest
from orbitmq.client.producer.send_result import (
    STATUS_BY_CODE,
    SendResult,
    SendStatus,
    send_result,
)
from orbitmq.errors import (
    OrbitError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
    TooManyRequestsError,
    UnreachableError,
    WireError,
)
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

_log = logging.getLogger(__name__)

RETRY_CODES: Final = frozenset(
    code.value
    for code in (
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    )
)
"""Answers after which another broker may do better."""

_RETRY_MS_MIN: Final = 10
"""A try that nobody can wait for would only leave a second copy of the message."""

QueueSelector = Callable[[PublishRoute], MessageQueue]


class Outcome(Protocol):
    """What gets the result: an asyncio future or one of concurrent.futures."""

    def done(self) -> bool: ...
    def set_result(self, result: Any, /) -> None: ...
    def set_exception(self, exception: Any, /) -> None: ...


class RetryRule(NamedTuple):
    """How often to try, and after which answers."""

    tries: int
    codes: frozenset[int] = RETRY_CODES


def may_retry(failure: Exception, rule: RetryRule) -> bool:
    """Return whether another try may cure this failure."""
    if isinstance(failure, ResponseError):
        return failure.code in rule.codes
    if isinstance(failure, TooManyRequestsError):
        return False
    return isinstance(failure, UnreachableError | RequestTimeoutError)


class Sending:
    """One request on its way. Belongs to the loop's thread."""

    __slots__ = (
        "_address",
        "_attempts",
        "_connection",
        "_engine",
        "_gone_away",
        "_last_result",
        "_outcome",
        "_queue",
        "_route",
        "_rule",
        "_selector",
        "_started_ms",
        "_tries",
        "_until_ms",
        "request",
    )

    def __init__(
        self,
        engine: SendEngine,
        request: SendRequest,
        outcome: Outcome,
        rule: RetryRule,
        timeout_ms: float,
        selector: QueueSelector | None,
    ) -> None:
        self.request = request
        self._engine, self._outcome, self._rule, self._selector = engine, outcome, rule, selector
        self._until_ms = engine.clock.monotonic_ms() + timeout_ms
        self._started_ms = 0.0
        self._tries = 0
        self._route: PublishRoute | None = None
        self._queue: MessageQueue | None = None
        self._address = ""
        self._connection: Connection | None = None
        self._gone_away = False
        self._attempts: list[tuple[str, Exception]] | None = None
        self._last_result: SendResult | None = None

    def start(self) -> None:
        """Make the first try; the route is asked for if it is not known. Raises nothing."""
        self._engine.pending.add(self)
        self._find_way()

    def _find_way(self) -> None:
        engine, topic = self._engine, self.request.topic
        flights = engine.route_flights
        if flights.waiting and flights.join(topic, self._find_way):
            return
        try:
            route = engine.routes.publish_route_nowait(topic)
            if route is not None and route.queues:
                self._try(route)
            else:
                # Later messages wait behind this one: nobody expects them to be stored before it.
                flights.begin(topic)
                engine.spawn(self._find_route())
        except Exception as problem:
            self._broke(problem)

    async def _find_route(self) -> None:
        try:
            await self._ask_for_route()
        finally:
            self._engine.route_flights.end(self.request.topic)

    async def _ask_for_route(self) -> None:
        topic = self.request.topic
        try:
            async with asyncio.timeout(max(self._left_ms(), 1) / 1000):
                route = await self._engine.routes.publish_route(topic)
        except TimeoutError:
            self._fail(RequestTimeoutError("", f"no route of topic {topic} in time"))
        except asyncio.CancelledError:
            self._fail(self._engine.closed_error())
            raise
        except Exception as failure:
            self._fail(failure)
        else:
            self._guard(self._try, route)

    def _left_ms(self) -> float:
        return self._until_ms - self._engine.clock.monotonic_ms()

    # --- one try ---

    def _try(self, route: PublishRoute) -> None:
        engine, self._route = self._engine, route
        self._tries += 1
        if self._selector is not None:
            self._queue = self._selector(route)
        else:
            last_broker = None if self._queue is None else self._queue.broker_name
            self._queue = engine.chooser.choose(route, last_broker)
        self._started_ms = engine.clock.monotonic_ms()
        needed_ms = 0 if self._tries == 1 else _RETRY_MS_MIN
        if self._started_ms + needed_ms >= self._until_ms:
            self._give_up()
            return
        address = engine.routes.primary(self._queue.broker_name)
        if address is None:
            what = f"broker {self._queue.broker_name} has no primary"
            self._failed(UnreachableError("", what, "Wait until it is back, or start it."))
            return
        self._address = engine.calls.vip(address)
        self._gone_away = False
        self._connect(self._started_ms)

    def _connect(self, now_ms: float) -> None:
        engine, address = self._engine, self._address
        flights = engine.connection_flights
        if flights.waiting and flights.join(address, self._connect_later):
            return
        connection = engine.channels.get_nowait(address)
        if connection is not None:
            self._transmit(connection, now_ms)
        else:
            flights.begin(address)
            engine.spawn(self._open(address))

    def _connect_later(self) -> None:
        self._guard(self._connect, self._engine.clock.monotonic_ms())

    async def _open(self, address: str) -> None:
        try:
            await self._ask_for_connection()
        finally:
            self._engine.connection_flights.end(address)

    async def _ask_for_connection(self) -> None:
        try:
            async with asyncio.timeout(max(self._left_ms(), 1) / 1000):
                connection = await self._engine.channels.get(self._address)
        except TimeoutError:
            what = "no connection in time"
            self._guard(self._failed, UnreachableError(self._address, what))
        except asyncio.CancelledError:
            self._fail(self._engine.closed_error())
            raise
        except Exception as failure:
            self._guard(self._failed, failure)
        else:
            self._guard(self._transmit, connection, self._engine.clock.monotonic_ms())

    def _transmit(self, connection: Connection, now_ms: float) -> None:
        assert self._queue is not None
        engine, request, self._connection = self._engine, self.request, connection
        opaque = connection.next_opaque()
        frame = engine.frame(request, self._queue, opaque)
        left_ms = max(self._until_ms - now_ms, 1)
        if engine.try_timeout_ms:
            left_ms = min(left_ms, engine.try_timeout_ms)
        try:
            connection.exchange(opaque, request.code, frame, left_ms, self._on_answer)
        except WireError as failure:
            self._failed(failure)

    def _on_answer(self, answer: Command | WireError) -> None:
        try:
            if isinstance(answer, WireError):
                self._failed(answer)
            elif (status := STATUS_BY_CODE.get(answer.code)) is not None:
                self._stored(answer, status)
            elif answer.code == ResponseCode.GO_AWAY and not self._gone_away:
                self._go_again()
            else:
                self._failed(response_error(answer, self._address))
        except Exception as problem:  # whoever waits must not wait for ever
            self._fail(problem)

    def _stored(self, answer: Command, status: SendStatus) -> None:
        assert self._queue is not None
        assert self._route is not None
        engine = self._engine
        result = send_result(status, self.request.message_id, self._queue, answer.fields)
        if engine.faults is not None:
            engine.record(self._queue.broker_name, self._started_ms)
        if engine.tracer is not None:
            engine.tracer.stored(self.request, self._address, self._started_ms, result)
        if not self._route.created:
            engine.learn(self.request.topic)
        if answer.code and engine.retry_when_not_flushed and self._may_try_again():
            self._last_result = result
            self._again()
        else:
            self._succeed(result)

    def _go_again(self) -> None:
        """The broker is about to stop: the same try once more, over a new connection."""
        self._gone_away = True
        self._engine.calls.retire(self._address, self._connection)
        self._connect(self._engine.clock.monotonic_ms())

    # --- the next try, or the end ---

    def _failed(self, failure: Exception) -> None:
        assert self._queue is not None
        broker_name = self._queue.broker_name
        self._engine.record(broker_name, self._started_ms, failed=True)
        if self._attempts is None:
            self._attempts = []
        self._attempts.append((broker_name, failure))
        if not may_retry(failure, self._rule):
            if self._last_result is not None:
                self._succeed(self._last_result)
            else:
                self._fail(failure)
        elif self._may_try_again():
            _log.info("topic %s: another try after: %s", self.request.topic, failure)
            self._again()
        else:
            self._give_up()

    def _may_try_again(self) -> bool:
        return self._selector is None and self._tries < self._rule.tries

    def _again(self) -> None:
        route = self._engine.routes.publish_route_nowait(self.request.topic)
        if route is None or not route.queues:
            self._give_up()
        else:
            self._try(route)

    def _give_up(self) -> None:
        if self._last_result is not None:
            self._succeed(self._last_result)
            return
        if not self._attempts:
            self._fail(RequestTimeoutError("", "the time was over before the first try"))
            return
        failure = SendFailedError(self.request.topic, self._attempts)
        failure.__cause__ = self._attempts[-1][1]
        self._fail(failure)

    def _succeed(self, result: SendResult) -> None:
        self._engine.pending.remove(self)
        if not self._outcome.done():
            self._outcome.set_result(result)

    def _fail(self, failure: Exception) -> None:
        self._engine.pending.remove(self)
        if not self._outcome.done():
            self._outcome.set_exception(failure)

    def abandon(self) -> None:
        """End it now: the producer closes and waited long enough."""
        self._fail(self._engine.closed_error())

    def _guard(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception as problem:
            self._broke(problem)

    def _broke(self, problem: Exception) -> None:
        if not isinstance(problem, OrbitError):
            _log.exception("topic %s: a send failed", self.request.topic)
        self._fail(problem)
