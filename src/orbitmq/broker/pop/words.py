"""What is asked of the pop engine, and what it gives: values without wire and connection."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.errors import FieldError
from orbitmq.message import has_separator
from orbitmq.store.reads.tag_filter import MessageFilter


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Some messages of a topic, for so long."""

    group: str
    topic: str
    queue_id: int = -1  # -1: of any queue
    count: int = 32
    invisible_ms: int
    from_end: bool = False  # where a new group begins
    wanted: MessageFilter | None = None  # None: all
    ordered: bool = False
    attempt_id: str | None = None


@dataclass(slots=True, eq=False)
class Batch:
    """Messages of one queue."""

    topic: str  # where they lie: the topic asked for, or the group's retry topic
    queue_id: int
    start_offset: int
    next_offset: int
    offsets: list[int]
    records: list[bytes | memoryview]
    message_count: int
    total_bytes: int


@dataclass(slots=True)
class Received:
    """What a pop took. `rest` messages are left, as far as it has looked."""

    pop_ms: int
    invisible_ms: int
    revive_queue: int
    rest: int = 0
    batches: list[Batch] = field(default_factory=list)
    order_counts: list[str] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(len(batch.offsets) for batch in self.batches)


class Popped(NamedTuple):
    """Messages of one pop, as their consumer names them."""

    group: str
    topic: str  # where they lie
    queue_id: int
    start_offset: int
    pop_ms: int
    invisible_ms: int
    revive_queue: int
    broker: str
    offsets: Sequence[int]


def require_plain(popped: Popped) -> None:
    """FieldError: a name holds a character that separates properties, so no check point can have it."""
    given = ("topic", popped.topic), ("consumerGroup", popped.group), ("extraInfo", popped.broker)
    for field_name, text in given:
        if isinstance(text, str) and has_separator(text):
            raise FieldError(field_name, f"{text!r} holds 0x01 or 0x02")


class Renewed(NamedTuple):
    """What a receipt says after its invisible time was changed; None: it was too late, nothing changed."""

    pop_ms: int
    invisible_ms: int
    revive_queue: int
    end_offset: int = 0  # the change is safe when the log is flushed so far
