"""Delivery: a fetched message, decoded when it is looked at, that can be acknowledged or given back.

A pull's answer is checked as a whole, record by record; of each record only its place is kept. Body,
texts and numbers are read from it when somebody asks for them: most loops look at the body alone.

event                                            | the message is
a loop asks for the next one                     | acknowledged
message.ack(), message.retry()                   | settled by that, at once; only the first counts
a loop is left (break, return, an exception)     | given back: it comes again later

Whoever leaves a loop behind a message that is done with says message.ack() first.
"""

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Protocol

from orbitmq.client.core.broker_api import PullResult
from orbitmq.client.core.message import ReceivedMessage, received, unwrap
from orbitmq.format.crc import CRC_MASK, crc32
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.properties import decode_properties
from orbitmq.format.record import (
    BODY_AT,
    FIXED,
    MAGIC_V1,
    decode_record,
    unpack_host,
)
from orbitmq.message import TOPIC_BYTES_MAX, SysFlag

RETRY_TOPIC: Final = "RETRY_TOPIC"
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"

# What became of a message of a batch.
WAITING: Final = 0
TAKEN: Final = 1  # somebody has it
FAILED: Final = 2  # is being given back
DONE: Final = 3

# What becomes of each state, as a table for bytes.translate.
START: Final = bytes((TAKEN, TAKEN, FAILED, DONE)) + bytes(252)
STOP: Final = bytes((WAITING, WAITING, FAILED, DONE)) + bytes(252)
FINISH: Final = bytes((DONE, DONE, FAILED, DONE)) + bytes(252)
GIVE_OUT_AGAIN: Final = bytes((WAITING, WAITING, WAITING, DONE)) + bytes(252)
FORGET: Final = bytes((DONE, DONE, DONE, DONE)) + bytes(252)

_NAMES: Final = tuple(item.name for item in fields(ReceivedMessage))
_HEAD: Final = struct.Struct(">iii8xq8xi44xi")  # size, magic, CRC, queue offset, flags, body length
assert _HEAD.size == FIXED.size == BODY_AT
_LENGTH: Final = struct.Struct(">i")
_LENGTH_AT: Final = BODY_AT - _LENGTH.size
_NOT_PLAIN: Final = (
    SysFlag.COMPRESSED | SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP | SysFlag.INNER_BATCH
).value  # fmt: skip

_retry_lock = threading.Lock()  # only the first retry counts; held for a few instructions


@dataclass(slots=True)
class Outcome:
    """What became of some messages."""

    failed: Sequence[ReceivedMessage] = ()
    level: int | None = None  # None: as configured
    suspend_ms: int = -1  # -1: as configured
    error: BaseException | None = field(default=None, repr=False)
    abandoned: bool = False  # nobody looked at them: they stay where they are

    @property
    def ok(self) -> bool:
        return not self.failed


class Holder(Protocol):
    """The queue that messages belong to; see `ProcessQueue`."""

    dropped: bool

    def monotonic_ms(self) -> float: ...

    def begin(self, messages: "Sequence[Delivery]") -> bool: ...

    def finish(self, messages: "Sequence[Delivery]", spent_ms: float) -> None: ...

    def notify(self) -> None: ...

    def give_back(self, message: "Delivery") -> None: ...


class Batch:
    """The messages that came together, and what became of each. Any thread may settle them.

    A state is one byte that is written whole, so threads need no lock; the loop's thread counts them.
    """

    __slots__ = ("bytes", "failed", "held", "messages", "spent_ms", "state")

    def __init__(self, held: Holder, messages: "list[Delivery]") -> None:
        self.held, self.messages = held, messages
        self.state = bytearray(len(messages))
        self.spent_ms = [0.0] * len(messages)  # since when it is taken, then how long that was
        self.bytes = 0
        self.failed = 0  # how often one was given back
        for index, message in enumerate(messages):
            message._batch, message._index = self, index
            self.bytes += message._body_bytes

    @property
    def pending(self) -> int:
        """How many messages are not done with."""
        return len(self.state) - self.state.count(DONE)

    @property
    def running(self) -> int:
        """How many messages somebody has, or are on their way back."""
        return self.state.count(TAKEN) + self.state.count(FAILED)

    @property
    def pending_bytes(self) -> int:
        pending = self.pending
        if pending in (0, len(self.state)):
            return self.bytes if pending else 0
        pairs = zip(self.messages, self.state, strict=True)
        return sum(message._body_bytes for message, state in pairs if state != DONE)

    @property
    def first_pending(self) -> int:
        return len(self.state) - len(self.state.lstrip(b"\x03"))


class _Source:
    """What the messages of one answer share."""

    __slots__ = ("bounds", "broker_name", "data", "retry_topic")

    def __init__(self, result: PullResult, retry_topic: str) -> None:
        self.data, self.broker_name, self.retry_topic = result.body, result.broker_name, retry_topic
        self.bounds = {MIN_OFFSET: str(result.min_offset), MAX_OFFSET: str(result.max_offset)}

    def adapt(self, message: ReceivedMessage) -> None:
        """Add what the answer said, and show a message of the retry topic under its own topic."""
        message.properties.update(self.bounds)
        if message.topic == self.retry_topic:
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)


class Delivery(ReceivedMessage):
    """A received message. Any thread may settle it; only the first time counts."""

    # A field whose slot is empty is decoded by __getattr__ when it is first asked for.
    __slots__ = ("_at", "_batch", "_body_bytes", "_index", "_outcome", "_source")

    _at: int
    _batch: Batch | None
    _body_bytes: int
    _index: int
    _outcome: Outcome | None
    _source: _Source

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "body":  # nearly everybody wants it, and of every message
                start = self._at + BODY_AT
                body = self.body = self._source.data[start : start + self._body_bytes]
                return body
            decode = _DECODERS.get(name)
            if decode is None:
                raise AttributeError(f"a message has no attribute {name!r}")
            decode(self)
            return object.__getattribute__(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, also one in another process, is a message that cannot be settled."""
        return ReceivedMessage, tuple(getattr(self, name) for name in _NAMES)

    def ack(self) -> None:
        """The message was handled: it does not come again."""
        batch = self._batch
        if batch is not None and self.finish(batch.held.monotonic_ms()):
            batch.held.notify()

    def retry(self, *, level: int | None = None, suspend_ms: int = -1) -> None:
        """The message was not handled: it comes again later; see `RetryLater`."""
        batch = self._batch
        if batch is None:
            return
        with _retry_lock:
            if batch.state[self._index] >= FAILED:
                return
            self._outcome = Outcome([self], level, suspend_ms)
            batch.state[self._index] = FAILED
            batch.failed += 1
        batch.held.give_back(self)

    @property
    def is_settled(self) -> bool:
        return self._batch is None or self._batch.state[self._index] >= FAILED

    @property
    def outcome(self) -> Outcome:
        """What became of it, as far as that is known."""
        return self._outcome or Outcome()

    # --- for loops ---

    def take(self, now_ms: float) -> bool:
        """Mark it as seen; False: its queue went to another member, or somebody has it."""
        batch, index = self._batch, self._index
        assert batch is not None
        if batch.state[index] != WAITING:
            return False
        batch.state[index] = TAKEN
        batch.spent_ms[index] = now_ms
        # Looked at after the state was written: who drops the queue looks the other way round.
        if batch.held.dropped:
            batch.state[index] = WAITING
            return False
        return True

    def finish(self, now_ms: float, taken_ms: float | None = None) -> bool:
        """Mark it as done with and tell nobody; return whether that is new.

        `taken_ms`: only as it was taken then. A message that was given back meanwhile may be on its way
        again, and that is another time.
        """
        batch, index = self._batch, self._index
        assert batch is not None
        if batch.state[index] >= FAILED:
            return False
        if taken_ms is not None and (
            batch.state[index] != TAKEN or batch.spent_ms[index] != taken_ms
        ):
            return False
        batch.spent_ms[index] = now_ms - batch.spent_ms[index] if batch.state[index] else 0.0
        batch.state[index] = DONE
        return True


# --- decoding ---


def decode_answer(
    result: PullResult, retry_topic: str, kind: type[Delivery] = Delivery
) -> list[Delivery]:
    """Return the messages of a pull's answer. FormatError: one of its records is broken."""
    source, data = _Source(result, retry_topic), result.body
    view, unpack, new = memoryview(data), _HEAD.unpack_from, kind.__new__
    found: list[Delivery] = []
    at, end = 0, len(data)
    while at < end:
        try:
            size, magic, crc, queue_offset, flags, body_bytes = unpack(data, at)
            body_at = at + BODY_AT
            body_end = body_at + body_bytes
            topic_bytes = data[body_end]
            texts_end = body_end + 3 + topic_bytes  # of the topic, with both lengths
            texts_end += data[texts_end - 2] << 8 | data[texts_end - 1]
        except (struct.error, IndexError):
            magic = 0
        if (
            magic != MAGIC_V1
            or flags & _NOT_PLAIN
            or body_bytes < 0
            or topic_bytes > TOPIC_BYTES_MAX
            or not texts_end == at + size <= end
            or crc32(view[body_at:body_end]) & CRC_MASK != crc
        ):
            at += _decode_other(source, at, found, kind)
            continue
        message = new(kind)
        message._source, message._at = source, at
        message._body_bytes, message.queue_offset = body_bytes, queue_offset
        found.append(message)
        at = texts_end
    return found


def _decode_other(source: _Source, at: int, found: list[Delivery], kind: type[Delivery]) -> int:
    """Decode a record of a rarer kind, or say what is wrong with it; return its size."""
    record = decode_record(source.data, at)
    for message in unwrap(received(record, source.broker_name)):
        source.adapt(message)
        found.append(delivery_of(message, kind))
    return record.size


def delivery_of(message: ReceivedMessage, kind: type[Delivery] = Delivery) -> Delivery:
    """Return a delivery with the fields of a message."""
    if isinstance(message, Delivery):
        return message
    return kind(*(getattr(message, name) for name in _NAMES))


def _decode_texts(message: Delivery) -> None:
    source = message._source
    data, at = source.data, message._at + BODY_AT + message._body_bytes
    topic_end = at + 1 + data[at]
    properties_end = topic_end + 2 + int.from_bytes(data[topic_end : topic_end + 2])
    message.topic = data[at + 1 : topic_end].decode("utf-8", "replace")
    message.properties = decode_properties(data[topic_end + 2 : properties_end])
    source.adapt(message)


def _decode_numbers(message: Delivery) -> None:
    (size, _, _, queue_id, flag, _, log_offset, sys_flag, born_ms, born, store_ms, store, *rest) = (
        FIXED.unpack_from(message._source.data, message._at)
    )
    store_host = unpack_host(store)
    message.broker_name, message.stored_bytes = message._source.broker_name, size
    message.queue_id, message.flag, message.sys_flag = queue_id, flag, sys_flag
    message.log_offset, message.born_ms, message.store_ms = log_offset, born_ms, store_ms
    message.born_host, message.store_host = unpack_host(born).text(), store_host.text()
    message.offset_id = encode_offset_id(store_host, log_offset)
    message.reconsume_times, message.prepared_offset = rest[0], rest[1]


def _count_body(message: Delivery) -> None:
    message._body_bytes = len(message.body)


def _belong_nowhere(message: Delivery) -> None:
    message._batch = None


def _have_no_outcome(message: Delivery) -> None:
    message._outcome = None


_DECODERS: Final[dict[str, Callable[[Delivery], None]]] = {
    **dict.fromkeys(_NAMES, _decode_numbers),
    "topic": _decode_texts,
    "properties": _decode_texts,
    "_body_bytes": _count_body,
    "_batch": _belong_nowhere,
    "_outcome": _have_no_outcome,
}
