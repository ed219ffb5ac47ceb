"""What of a log, or of a cluster's queues, is held elsewhere, and left out of a read (option `without`).

    {"spans": [["Orders", 0, 81920, null]], "others": [[4096, 81920, 1794960000000]], "firsts": [[0]]}

`spans` are offsets [start, end) by topic (a log), or by topic, broker and queue (a cluster). The last number
is a time: of what was stored before it, nothing is held any more. `others` is the same for all topics that
stand nowhere in `spans`, but for those that brokers made for themselves. `firsts` says where the log, or each
queue, began when this was true: a read that finds it beginning later lacks what was deleted since, and fails.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from orbitmq.errors import StaleQueryError
from orbitmq.format.columns import Ints
from orbitmq.spark.source.row_columns import is_time

Key = tuple[str | int, ...]
Mask = npt.NDArray[np.bool_]
Stretch = tuple[int, int]
_NOWHERE: Final = 2**63 - 1


class HeldSpan(NamedTuple):
    """Offsets `start` to `end`, the end not included; None: whenever they were stored."""

    start: int
    end: int
    since_ms: int | None = None


Spans = tuple[HeldSpan, ...]


class _Text(msgspec.Struct, forbid_unknown_fields=True):
    """The option's JSON."""

    spans: list[list[str | int | None]]
    others: list[tuple[int, int, int | None]]
    firsts: list[list[str | int]]


@dataclass(frozen=True, slots=True)
class Held:
    """What is elsewhere. Immutable; travels to tasks."""

    spans: Mapping[Key, Spans] = field(default_factory=dict)
    others: Spans = ()
    firsts: Mapping[Key, int] = field(default_factory=dict)  # of the log: its key is empty

    def to_text(self) -> str:
        """Return it as an option holds it."""
        value = {
            "spans": [[*key, *span] for key, spans in self.spans.items() for span in spans],
            "others": self.others,
            "firsts": [[*key, first] for key, first in self.firsts.items()],
        }
        return msgspec.json.encode(value).decode()

    @classmethod
    def from_text(cls, text: str) -> "Held":
        """Return what `to_text` made. ValueError: it is not that."""
        found = msgspec.json.decode(text, type=_Text)
        spans: dict[Key, Spans] = {}
        for row in found.spans:
            key = msgspec.convert(tuple(row[:-3]), type=Key)
            span = HeldSpan(*msgspec.convert(row[-3:], type=tuple[int, int, int | None]))
            spans[key] = (*spans.get(key, ()), span)
        firsts = {tuple(row[:-1]): msgspec.convert(row[-1], type=int) for row in found.firsts}
        return cls(spans, tuple(HeldSpan(*one) for one in found.others), firsts)

    def of_topic(self, topic: str) -> Spans:
        """Return the log offsets of a topic that are held."""
        from orbitmq.client.admin.base import (
            is_system_topic,
        )  # the client is large, and few reads ask

        found = self.spans.get((topic,))
        if found is not None:
            return found
        return () if is_system_topic(topic) else self.others

    def of_queue(self, topic: str, broker_name: str, queue_id: int) -> Spans:
        """Return the queue offsets of a queue that are held."""
        return self.spans.get((topic, broker_name, queue_id), ())

    def require_all_there(self, key: Key, start: int, held: Iterable[Stretch], name: str) -> None:
        """Raise StaleQueryError where something was deleted since that is not held either."""
        first = self.firsts.get(key, start)
        if first < start and uncovered(held, first, start):
            what = (
                f"{name}: what lay from {first} to {start} was deleted since the lake was looked at"
            )
            raise StaleQueryError(what, "It may be in the lake by now: make the query again.")

    def stretches(self, topics: Collection[str]) -> list[Stretch]:
        """Return what of the log need not be read for these topics, in order and apart.

        No topics: all of them. Some are never held, so all of the log may have something of interest.
        """
        found: list[Stretch] = [(0, _NOWHERE)] if topics else []
        for topic in topics:
            found = _common(found, whole(self.of_topic(topic)))
        return found


def whole(spans: Spans) -> list[Stretch]:
    """Return the ranges of which everything is held, in order and apart."""
    return sorted((one.start, one.end) for one in spans if one.since_ms is None)


def uncovered(covered: Iterable[Stretch], start: int, end: int) -> list[Stretch]:
    """Return what of [start, end) lies in none of the stretches."""
    rest: list[Stretch] = []
    for low, high in sorted(covered):
        if low > start:
            rest.append((start, min(low, end)))
        start = max(start, high)
    rest.append((start, end))
    return [(low, high) for low, high in rest if low < high]


def _common(some: Sequence[Stretch], others: Sequence[Stretch]) -> list[Stretch]:
    pairs = ((max(a, c), min(b, d)) for a, b in some for c, d in others)
    return [(low, high) for low, high in pairs if low < high]


def is_held(spans: Spans, offsets: Ints, store_ms: Ints) -> Mask:
    """Return of each message whether it is held: by its offset, and when it was stored."""
    mask = np.zeros(len(offsets), dtype=np.bool_)
    for start, end, since_ms in spans:
        inside = (offsets >= start) & (offsets < end)
        if since_ms is not None:
            # What has no time that a calendar knows has no day either, and no day of it was removed.
            inside &= (store_ms >= since_ms) | ~is_time(store_ms)
        mask |= inside
    return mask
