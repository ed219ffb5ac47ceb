"""Router: from request codes to the processors that answer them, and from what goes wrong to an answer."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from time import monotonic
from typing import Final

from orbitmq.broker.processors.processor import (
    HandleMany,
    Processor,
    RequestHandler,
    failure_answer,
)
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.net.request_log import RequestLog
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, Encoding

logger = logging.getLogger(__name__)

SEND_CODES: Final = frozenset(
    (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
)

_A_SEND: Final = Command(RequestCode.SEND_MESSAGE_V2)
"""What the log of requests is told of sends that were not decoded."""

_LATER: Final[Mapping[str, Collection[int]]] = {
    "replication": (
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    ),
    "access control": range(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_ACL + 1),
    "pop consumption over RocksDB": (RequestCode.POP_ROLLBACK,),
}
"""Features of RocketMQ that this broker does not have yet, and the codes that belong to them."""

_LEFT_OUT: Final[Mapping[int, str]] = {
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: (
        "OrbitMQ leaves static topics (logic queues) out: create an ordinary topic"
    ),
}
"""What stays out, by its code, and what to do instead."""

_WHOLE_CODES: Final = {
    code & 0xFFFF: int(code)
    for code in RequestCode
    if RequestCode.POP_MESSAGE <= code <= RequestCode.BATCH_ACK_MESSAGE
}
"""A binary header has 16 bits for a code: of pop's clients send half, which RocketMQ's broker refuses."""


class Router:
    """Which handler answers which code. Every request gets exactly one answer, unless it is one-way."""

    def __init__(
        self, processors: Iterable[Processor] = (), request_log: RequestLog | None = None
    ) -> None:
        self.request_log = request_log or RequestLog()
        self._handlers: dict[int, RequestHandler] = {}
        self.together: dict[int, HandleMany] = {}
        """Who answers requests with these codes that came together."""
        for processor in processors:
            self.use(processor)

    def use(self, processor: Processor) -> None:
        """Have requests answered by this processor."""
        self.add(processor.handlers())
        self.together.update(processor.together())

    def add(self, handlers: Mapping[int, RequestHandler]) -> None:
        for code, handler in handlers.items():
            assert code not in self._handlers, f"two processors for code {code}"
            self._handlers[code] = handler

    def handle(self, connection: Connection, request: Command) -> None:
        """Answer the request on its connection, or leave that to the handler's own time."""
        answer = self.answer(connection, request)
        if answer is None:
            return
        if answer.code:
            self.request_log.refused(connection, request, answer)
        if not request.is_oneway and not connection.closed:
            connection.send(answer)

    def answer(self, connection: Connection, request: Command) -> Command | None:
        """Return the answer; whatever goes wrong becomes one."""
        code = request.code
        if request.encoding is Encoding.BINARY:
            code = _WHOLE_CODES.get(code, code)
        handler = self._handlers.get(code)
        if handler is None:
            return request.answer(
                ResponseCode.REQUEST_CODE_NOT_SUPPORTED, unsupported_remark(request.code)
            )
        try:
            return handler(connection, request)
        except Exception as error:
            return failure_answer(connection, request, error)


def unsupported_remark(code: int) -> str:
    """Return why a code has no handler; the beginning is RocketMQ's."""
    remark = f" request type {code} not supported"
    if code in _LEFT_OUT:
        return f"{remark}: {_LEFT_OUT[code]}"
    for feature, codes in _LATER.items():
        if code in codes:
            return f"{remark}: OrbitMQ does not do {feature} yet"
    return remark


class BrokerHandler(ConnectionHandler):
    """What a broker's servers tell: requests go to the router; sends of one read together, and others."""

    def __init__(
        self,
        router: Router,
        sends: SendProcessor | None = None,
        on_close: Sequence[Callable[[Connection], None]] = (),
    ) -> None:
        self._router, self._sends, self._on_close = router, sends, on_close
        self._many = router.together
        if sends is not None:
            self._many.update(dict.fromkeys(SEND_CODES, sends.handle_many))
        self._log = router.request_log

    def take_bytes(self, connection: Connection, data: bytes) -> int:
        """Have the ordinary sends that these bytes begin with appended; return how many bytes they are."""
        if self._sends is None:
            return 0
        try:
            taken = self._sends.take(connection, data)
        except Exception as error:
            # As in _handle_many; nothing of these bytes may be handled a second time.
            logger.exception("%s: sends failed", connection.peer)
            connection.close(f"sends failed: {error}")
            return len(data)
        if taken and (took := monotonic() - connection.active_at) >= self._log.slow_s:
            self._log.slow(connection, _A_SEND, took)
        return taken

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        find, handle = self._many.get, self._router.handle
        start, count, before = 0, len(requests), monotonic()
        while start < count:
            end, many = start + 1, find(requests[start].code)
            if many is None:
                handle(connection, requests[start])
            else:
                while end < count and find(requests[end].code) is many:
                    end += 1
                run = requests if end - start == count else requests[start:end]
                self._handle_many(many, connection, run)
            now = monotonic()
            if now - before >= self._log.slow_s:
                self._log.slow(connection, requests[start], now - before, end - start)
            start, before = end, now

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        for listener in self._on_close:
            try:
                listener(connection)
            except Exception:
                # One part's trouble must not keep the others from letting go of the connection.
                logger.exception("%s: not all was cleared at its close", connection.peer)

    @staticmethod
    def _handle_many(many: HandleMany, connection: Connection, run: Sequence[Command]) -> None:
        try:
            many(connection, run)
        except Exception as error:
            # It answers what goes wrong itself; what comes here is a bug, and what this read brought
            # may or may not be stored: closing makes its senders ask again.
            kind = run[0].code
            logger.exception("%s: %d requests %d failed", connection.peer, len(run), kind)
            connection.close(f"requests {kind} failed: {error}")
