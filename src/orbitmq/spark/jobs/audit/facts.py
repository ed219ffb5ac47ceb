"""What tasks of an audit count, in a form that can be added up in any order."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple, Self

from orbitmq.spark.jobs.audit.histogram import Histogram

TrafficKey = tuple[str, str | None, int | None]
"""Topic, tag, first millisecond of the hour (None: of no year that has a number)."""
QueueKey = tuple[str, str, int]
"""Topic, broker, queue id."""
LagKey = tuple[str, str, str, int]
"""Group, and a queue."""


@dataclass(slots=True)
class Amount:
    """So much of something."""

    messages: int = 0
    records: int = 0
    bytes: int = 0

    def merge(self, other: "Amount") -> None:
        self.messages += other.messages
        self.records += other.records
        self.bytes += other.bytes


@dataclass(slots=True)
class Unread:
    """Messages that a group has before it in one queue."""

    messages: int = 0
    oldest_ms: int | None = None  # when the first of them was stored

    def merge(self, other: "Unread") -> None:
        self.messages += other.messages
        self.oldest_ms = least(self.oldest_ms, other.oldest_ms)


@dataclass(slots=True)
class QueueSpan:
    """The messages of a queue that were seen: from the first to the one behind the last."""

    start: int
    end: int

    def merge(self, other: "QueueSpan") -> None:
        self.start, self.end = min(self.start, other.start), max(self.end, other.end)


class ReturnedKey(NamedTuple):
    """Messages that a group did not manage: retries, or dead letters."""

    group: str
    dead: bool
    origin: str | None  # the topic that they came from, where they tell
    times: int  # how often the group had tried


@dataclass(slots=True)
class Returned:
    """How many of them, and how old."""

    messages: int = 0
    bytes: int = 0
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def merge(self, other: "Returned") -> None:
        self.messages += other.messages
        self.bytes += other.bytes
        self.oldest_ms = least(self.oldest_ms, other.oldest_ms)
        self.newest_ms = greatest(self.newest_ms, other.newest_ms)


@dataclass(slots=True)
class ScanFacts:
    """What one task has seen of the log, and what all of them have seen together."""

    read: Amount = field(default_factory=Amount)  # whatever topic they are of
    bad_places: int = 0
    traffic: dict[TrafficKey, Amount] = field(default_factory=dict)
    sizes: dict[str, Histogram] = field(default_factory=dict)  # by topic
    latencies: dict[str, Histogram] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)  # stored late because they had to wait
    many_tags: dict[str, int] = field(default_factory=dict)  # messages under no tag of their own
    queues: dict[QueueKey, QueueSpan] = field(default_factory=dict)
    unread: dict[LagKey, Unread] = field(default_factory=dict)
    returned: dict[ReturnedKey, Returned] = field(default_factory=dict)

    def merge(self, other: "ScanFacts") -> None:
        """Add what another task has seen."""
        self.read.merge(other.read)
        self.bad_places += other.bad_places
        for part in fields(self):
            mine, more = getattr(self, part.name), getattr(other, part.name)
            if isinstance(mine, dict):
                for key, value in more.items():
                    add(mine, key, value)

    @classmethod
    def joined(cls, found: Iterable["ScanFacts"]) -> Self:
        whole = cls()
        for one in found:
            whole.merge(one)
        return whole


def add(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Add a number, or what can be merged, to a table."""
    if key not in table:
        table[key] = value
    elif isinstance(value, int):
        table[key] += value
    else:
        table[key].merge(value)


def least(one: int | None, other: int | None) -> int | None:
    """Return the smaller one; None is none."""
    return min((number for number in (one, other) if number is not None), default=None)


def greatest(one: int | None, other: int | None) -> int | None:
    """Return the greater one; None is none."""
    return max((number for number in (one, other) if number is not None), default=None)
