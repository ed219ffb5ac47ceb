"""Check points and acks, as they lie in the revive topic: JSON bodies in RocketMQ's names.

A check point says which messages one pop took of one queue. What its acks do not name comes again when
the invisible time is over. Older brokers wrote longer names into acks, and no gaps into check points.

member | check point                     | ack                        | batch ack
t, c   | topic, group                    | the same                   | the same
q, so  | queue id, start offset          | the same                   | the same
pt, bn | time of the pop, broker         | the same                   | the same
it     | invisible time                  |                            |
n, d   | messages, their gaps to `so`    |                            |
bm, ro | 0, kept for readers             |                            |
rp     | how often it was written again  |                            |
ao     |                                 | offset of the message      | -1
aol    |                                 |                            | offsets of the messages
"""

from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

from orbitmq.errors import FormatError

CHECK_POINT_TAG: Final = "ck"
ACK_TAG: Final = "ack"
BATCH_ACK_TAG: Final = "bAck"
MESSAGES_MAX: Final = 32
"""So many messages one pop takes of a queue at most; in RocketMQ acks are bits of 32."""

_LONG_NAMES: Final = {
    "ackOffset": "ao",
    "ackOffsetList": "aol",
    "startOffset": "so",
    "consumerGroup": "c",
    "topic": "t",
    "queueId": "q",
    "popTime": "pt",
    "brokerName": "bn",
    "cId": "c",
}

CheckPointId = tuple[str, str, int, int, int]
"""What a check point and its acks have in common: topic, group, queue id, start offset, time of the pop."""


class CheckPoint(msgspec.Struct, kw_only=True):
    """The messages that one pop took of one queue."""

    bits: int = msgspec.field(default=0, name="bm")
    broker: str = msgspec.field(default="", name="bn")
    group: str = msgspec.field(name="c")
    gaps: list[int] = msgspec.field(default_factory=list, name="d")
    invisible_ms: int = msgspec.field(name="it")
    count: int = msgspec.field(name="n")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    revive_ms: int = msgspec.field(default=0, name="reviveTime")
    revive_offset: int = msgspec.field(default=0, name="ro")
    puts: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="rp")
    start_offset: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    def __post_init__(self) -> None:
        self.revive_ms = self.pop_ms + self.invisible_ms

    @property
    def id(self) -> CheckPointId:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms

    @property
    def offsets(self) -> list[int]:
        """The queue offsets of its messages."""
        start = self.start_offset
        return [start + gap for gap in (self.gaps or range(self.count))]

    @property
    def times_put(self) -> int:
        """How often it was written again because a message could not be put into its retry topic."""
        text = self.puts if isinstance(self.puts, str) else "0"
        return int(text) if text.isdecimal() and len(text) < 10 else 127


class Ack(msgspec.Struct, kw_only=True):
    """Messages of a check point that are done with."""

    offset: int = msgspec.field(default=-1, name="ao")
    offset_list: list[int] | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="aol")
    broker: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="bn")
    group: str = msgspec.field(name="c")
    pop_ms: int = msgspec.field(name="pt")
    queue_id: int = msgspec.field(name="q")
    start_offset: int = msgspec.field(name="so")
    topic: str = msgspec.field(name="t")

    @property
    def check_point_id(self) -> CheckPointId:
        return self.topic, self.group, self.queue_id, self.start_offset, self.pop_ms

    @property
    def offsets(self) -> list[int]:
        return self.offset_list if isinstance(self.offset_list, list) else [self.offset]

    @property
    def is_batch(self) -> bool:
        return isinstance(self.offset_list, list)


_Kind = TypeVar("_Kind", CheckPoint, Ack)

_encode: Final = msgspec.json.Encoder().encode
_read_check_point: Final = msgspec.json.Decoder(CheckPoint, strict=False).decode
_read_ack: Final = msgspec.json.Decoder(Ack, strict=False).decode


def encode_body(value: CheckPoint | Ack) -> bytes:
    """Return the body of its record."""
    return _encode(value)


def decode_check_point(body: bytes) -> CheckPoint:
    """Return the check point of a record. FormatError: it is none, or one that nobody could have made."""
    point = _decoded(body, CheckPoint, _read_check_point)
    if not 0 <= point.count <= MESSAGES_MAX or len(point.gaps) not in (0, point.count):
        raise FormatError(f"check point of {point.count} messages with {len(point.gaps)} gaps")
    return point


def decode_ack(body: bytes) -> Ack:
    """Return the ack of a record. FormatError: it is none."""
    return _decoded(body, Ack, _read_ack)


def _decoded(body: bytes, kind: type[_Kind], read: Callable[[bytes], _Kind]) -> _Kind:
    try:
        return read(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        value = msgspec.json.decode(body)
        named = {_LONG_NAMES.get(name, name): item for name, item in value.items()}
        kept = {name: item for name, item in named.items() if item is not None}
        return msgspec.convert(kept, kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError, TypeError) as cause:
        raise FormatError(f"no {kind.__name__}: {cause}") from cause
