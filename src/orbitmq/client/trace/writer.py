"""TraceWriter: takes trace records of one producer or consumer and sends them to the trace topic.

Nobody waits for it. Contexts (the records of one send, or of one call of a handler) wait in a bounded queue;
what does not fit is counted and lost. They go out in batches: as soon as enough are there, after 5 seconds
anyway, and all of them at the end. Brokers get what a Java client sends: a producer of its own whose group is
named after the one that is traced, one trace message for each topic of a batch, ids and keys as its keys.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final, Protocol, Self

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.trace.records import TraceRecord, encode_record, keys_of
from orbitmq.errors import OrbitError
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.units import SECOND_MS

if TYPE_CHECKING:
    from orbitmq.client.producer.send_result import SendResult

_log = logging.getLogger(__name__)

CONTEXTS_MAX: Final = 2048
"""So many contexts may wait (RocketMQ: traceContextQueue)."""
BATCH_MAX: Final = 20
FLUSH_MS: Final = 5 * SECOND_MS
SEND_TIMEOUT_MS: Final = 5 * SECOND_MS
BODY_BYTES_MAX: Final = 128_000
KEYS_CHARS_MAX: Final = 8_000
"""Keys are a property, of which all together have 32 767 bytes; a character takes up to four."""
PENDING_MAX: Final = 64
"""Trace messages on their way at once; meanwhile contexts wait, and in the end are lost."""

PRODUCE: Final = "PRODUCE"
CONSUME: Final = "CONSUME"

_INSTANCE: Final = "PID_CLIENT_INNER_TRACE_PRODUCER"
_GROUP: Final = "_INNER_TRACE_PRODUCER"
_GROUP_CHARS_MAX: Final = 120
_counter: Final = count(1)

Context = tuple[str, Sequence[TraceRecord]]
"""Topic, and what one client did with messages of it at one time."""


class TraceProducer(Protocol):
    """What sends trace messages: an AsyncProducer."""

    async def open(self) -> Self: ...
    async def close(self) -> None: ...
    def send_async(self, message: Message) -> "asyncio.Future[SendResult]": ...


def trace_config(config: ClientConfig) -> ClientConfig:
    """Return the configuration of the producer that writes the traces of a client."""
    # Traces of all clients share connections, as in Java; with keys of its own each has its own.
    shared = f"{_INSTANCE}_{';'.join(config.namesrv)}"
    return replace(
        config,
        instance_name="" if config.access_key else shared,
        trace=False,
        vip_channel=False,
        send_timeout_ms=SEND_TIMEOUT_MS,
        message_bytes_max=BODY_BYTES_MAX,
    )


def trace_group(group: str, kind: str) -> str:
    """Return the group of that producer."""
    number = next(_counter)
    room = _GROUP_CHARS_MAX - len(f"{_GROUP}--{kind}-{number}")
    return f"{_GROUP}-{group[:room]}-{kind}-{number}"


class TraceWriter:
    """Any thread may append; the rest belongs to the loop's thread."""

    def __init__(self, producer: TraceProducer, config: ClientConfig) -> None:
        self._producer = producer
        self.topic = config.trace_topic
        self._batch = min(config.trace_batch, BATCH_MAX)
        self._waiting: deque[Context] = deque()
        self._call: Callable[[Callable[[], None]], None] = lambda function: function()
        self._told = False
        self._jobs = PeriodicJobs()
        self._pending = 0
        self._is_open = False
        self.lost = 0  # contexts that found no room, or could not be sent
        self._lost_told = 0

    def is_own(self, topic: str) -> bool:
        """Return whether this is the trace topic: what happens there is not traced."""
        return topic.startswith(self.topic)

    async def open(self, call: Callable[[Callable[[], None]], None] | None = None) -> None:
        """Send from now on. `call`: how other threads reach the loop."""
        if call is not None:
            self._call = call
        await self._producer.open()
        self._is_open, self._told = True, False
        self._jobs.add("message trace", FLUSH_MS, self._flush_all)

    async def close(self) -> None:
        """Send what waits, and wait for the answers, for some seconds at most."""
        await self._jobs.stop()
        if self._is_open:
            self._flush(least=1, pending_max=CONTEXTS_MAX)
            self._is_open = False
            await self._producer.close()
        self._tell_lost()

    def append(self, topic: str, records: Sequence[TraceRecord]) -> None:
        """Have these records written, or count them as lost. Never waits, raises nothing."""
        if len(self._waiting) >= CONTEXTS_MAX:
            self.lost += 1
            return
        self._waiting.append((topic, records))
        if len(self._waiting) >= self._batch and not self._told:
            self._told = True
            self._call(self._flush_batches)

    # --- in the loop's thread ---

    def _flush_batches(self) -> None:
        # First the flag: what is appended from now on is seen below, or calls again.
        self._told = False
        self._flush(least=self._batch, pending_max=PENDING_MAX)

    def _flush_all(self) -> None:
        self._flush(least=1, pending_max=PENDING_MAX)
        self._tell_lost()

    def _flush(self, *, least: int, pending_max: int) -> None:
        while self._is_open and len(self._waiting) >= least and self._pending < pending_max:
            count_now = min(self._batch, len(self._waiting))
            contexts = [self._waiting.popleft() for _ in range(count_now)]
            for message in trace_messages(self.topic, contexts):
                self._send(message)

    def _send(self, message: Message) -> None:
        try:
            outcome = self._producer.send_async(message)
        except OrbitError as failure:
            self._failed(failure)
            return
        self._pending += 1
        outcome.add_done_callback(self._sent)

    def _sent(self, outcome: "asyncio.Future[SendResult]") -> None:
        self._pending -= 1
        if not outcome.cancelled() and (failure := outcome.exception()) is not None:
            self._failed(failure)
        if len(self._waiting) >= self._batch:
            self._flush_batches()

    def _failed(self, failure: BaseException) -> None:
        self.lost += 1
        _log.debug("topic %s: a trace was not written: %s", self.topic, failure)

    def _tell_lost(self) -> None:
        """Say how many traces were lost, once for many."""
        if self.lost != self._lost_told:
            news, self._lost_told = self.lost - self._lost_told, self.lost
            _log.warning("topic %s: %d traces were not written", self.topic, news)


def trace_messages(trace_topic: str, contexts: Sequence[Context]) -> Iterator[Message]:
    """Yield the trace messages of a batch of contexts: one for each topic, more where they grow too long."""
    by_topic: dict[str, list[Sequence[TraceRecord]]] = {}
    for topic, records in contexts:
        by_topic.setdefault(topic, []).append(records)
    for rows in by_topic.values():
        yield from _messages(trace_topic, [record for records in rows for record in records])


def _messages(trace_topic: str, records: Sequence[TraceRecord]) -> Iterator[Message]:
    body, kept = b"", list[TraceRecord]()
    for record in records:
        more = encode_record(record).encode("utf-8", "replace")
        keys = " ".join(keys_of([*kept, record]))
        if kept and (len(body) + len(more) > BODY_BYTES_MAX or len(keys) > KEYS_CHARS_MAX):
            yield Message(trace_topic, body, keys=keys_of(kept))
            body, kept = b"", []
        body += more
        kept.append(record)
    if kept:
        yield Message(trace_topic, body, keys=keys_of(kept))
