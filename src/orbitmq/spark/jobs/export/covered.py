"""What of its source a lake holds: ranges of offsets, by topic (a log) or by queue (a cluster).

    key                        offsets
    ("Orders",)                log offsets
    ("Orders", "broker-a", 0)  queue offsets

A range [start, end) says that every message in it is in the lake, once. Going on makes it longer at its end,
a backfill at its start; nothing else can happen to it, so no message is forgotten or comes twice. `others` is
the range of all topics of a log that are not named here, many of which may not exist yet.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Key = tuple[str | int, ...]


class Span(NamedTuple):
    """Offsets `start` to `end`, the end not included."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Covered:
    """The ranges of a lake. Immutable."""

    spans: Mapping[Key, Span] = field(default_factory=dict)
    others: Span | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as a manifest holds it."""
        spans = [[*key, *span] for key, span in sorted(self.spans.items(), key=str)]
        return {"spans": spans, "others": list(self.others) if self.others else None}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "Covered":
        """Return what `to_json` made. ValueError, TypeError, KeyError: it is not that."""
        spans = {tuple(one[:-2]): Span(*map(int, one[-2:])) for one in value["spans"]}
        others = value["others"]
        return cls(spans, Span(*map(int, others)) if others else None)


def advanced(
    held: Span | None, first: int | None, oldest: int, end: int
) -> tuple[list[Span], Span]:
    """Return what has to be read of one topic or queue, and what is held afterwards.

    `first` is where the user wants it to start, None: wherever it does, and at `oldest` if nothing is held
    yet. What lies before `oldest` is deleted and cannot be had.
    """
    if held is None:
        start = oldest if first is None else min(max(first, oldest), end)
        return _not_empty(Span(start, end)), Span(start, end)
    start = held.start if first is None else min(max(first, oldest), held.start)
    reads = _not_empty(Span(start, held.start), Span(held.end, end))
    return reads, Span(start, max(held.end, end))


def _not_empty(*spans: Span) -> list[Span]:
    return [span for span in spans if span.start < span.end]


def joined(spans: list[Span]) -> list[Span]:
    """Return the same offsets in order, each once."""
    made: list[Span] = []
    for span in sorted(spans):
        if made and span.start <= made[-1].end:
            made[-1] = Span(made[-1].start, max(made[-1].end, span.end))
        else:
            made.append(span)
    return made
