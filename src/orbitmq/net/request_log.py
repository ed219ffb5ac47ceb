"""RequestLog: which requests a server refused and which were slow, with who and why, and not too often.

One line for each cause and second: the first one at once, those that follow within the second as a number in
the next. A cause is the request, what became of it, and who asked about which topic or group.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from orbitmq.clock import Clock, SystemClock
from orbitmq.net.connection import Connection
from orbitmq.units import SECOND_MS
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send import LETTERS

logger = logging.getLogger(__name__)

NO_REFUSAL: Final = frozenset(
    (
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,  # stored; the sync is logged by itself
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
    )
)
"""Answers that are no news to an operator."""

CAUSES_MAX: Final = 100
"""So many causes are told apart in a second; peers can make up any number of them."""
_TEXT_MAX: Final = 300

_LETTERED: Final = frozenset((RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE))
_TOPIC_FIELDS: Final = ("topic", "originTopic")
_GROUP_FIELDS: Final = ("consumerGroup", "producerGroup", "group", "groupName")


class _Seen:
    """A cause that was logged within the last second."""

    __slots__ = ("count", "fields", "logged_ms", "text")

    def __init__(self, text: str, fields: dict[str, Any], logged_ms: float) -> None:
        self.text, self.fields, self.logged_ms = text, fields, logged_ms
        self.count = 0  # since then


class _Cause(NamedTuple):
    text: str
    request: str
    code: str
    host: str
    topic: str
    group: str


class RequestLog:
    """Belongs to the event loop's thread. `tick` has to be called every second."""

    def __init__(self, clock: Clock | None = None, slow_ms: int = SECOND_MS // 2) -> None:
        self._clock = clock or SystemClock()
        self._seen: dict[_Cause, _Seen] = {}
        self._others = 0
        self.slow_s = 0.0
        """A request that takes so long is slow."""
        self.use_slow_ms(slow_ms)

    def use_slow_ms(self, milliseconds: int) -> None:
        self.slow_s = milliseconds / 1000

    def refused(self, connection: Connection, request: Command, answer: Command) -> None:
        """A request was answered with this; no line if that is no refusal."""
        if answer.code in NO_REFUSAL:
            return
        code = _name(ResponseCode, answer.code)
        self._add("request refused", connection, request, code, {"reason": _cut(answer.remark)})

    def slow(
        self, connection: Connection, request: Command, seconds: float, requests: int = 1
    ) -> None:
        """A request, or so many sends together, kept the server so long."""
        took = {"milliseconds": round(seconds * 1000), "requests": requests}
        self._add("request slow", connection, request, "", took)

    def tick(self) -> None:
        """Log how often each cause was repeated, and forget those that were not."""
        now_ms = self._clock.monotonic_ms()
        due = [one for one in self._seen.items() if now_ms - one[1].logged_ms >= SECOND_MS]
        for cause, seen in due:
            if seen.count:
                self._log(seen, now_ms)
            else:
                del self._seen[cause]
        if self._others:
            others, self._others = self._others, 0
            logger.info("more requests refused or slow", extra={"count": others})

    def close(self) -> None:
        """Log what was counted and not told yet."""
        for seen in self._seen.values():
            if seen.count:
                self._log(seen, 0)
        self._seen.clear()

    def _add(
        self,
        text: str,
        connection: Connection,
        request: Command,
        code: str,
        more: Mapping[str, object],
    ) -> None:
        if not logger.isEnabledFor(logging.INFO):
            return
        name, now_ms = _name(RequestCode, request.code), self._clock.monotonic_ms()
        topic, group = _about(request)
        host = connection.peer.rpartition(":")[0]
        cause = _Cause(text, name, code, host, topic, group)
        seen = self._seen.get(cause)
        if seen is None and len(self._seen) >= CAUSES_MAX:
            self._others += 1
            return
        known = {"code": code, "topic": topic, "group": group}
        fields = {"request": name, "peer": connection.peer, **known, **more}
        shown = {key: value for key, value in fields.items() if value != ""}
        if seen is None:
            seen = self._seen[cause] = _Seen(text, shown, now_ms - SECOND_MS)
        seen.fields = shown
        seen.count += 1
        if now_ms - seen.logged_ms >= SECOND_MS:
            self._log(seen, now_ms)

    @staticmethod
    def _log(seen: _Seen, now_ms: float) -> None:
        logger.info(seen.text, extra={**seen.fields, "count": seen.count})
        seen.count, seen.logged_ms = 0, now_ms


def _about(request: Command) -> tuple[str, str]:
    """Return the topic and the group that a request names."""
    fields = request.fields or {}
    if request.code in _LETTERED:
        names = LETTERS["topic"], LETTERS["producerGroup"]
        return _first(fields, names[:1]), _first(fields, names[1:])
    return _first(fields, _TOPIC_FIELDS), _first(fields, _GROUP_FIELDS)


def _first(fields: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((_cut(fields[name]) for name in names if name in fields), "")


def _cut(text: str | None) -> str:
    """Return the beginning of what a peer or a store said; it may be of any length."""
    text = text or ""
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}..."


def _name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name
    except ValueError:
        return str(code)
