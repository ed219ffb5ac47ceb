"""All rows of some texts in one place: which ids and keys there are more than once, and where."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.format.columns import Ints
from orbitmq.spark.jobs.audit.facts import add
from orbitmq.spark.jobs.audit.keyed import ID, KEY, PLACES_SHOWN, continues, group_numbers, unpacked

_BY_NAMES: Final = {ID: "id", KEY: "key"}


class Place(NamedTuple):
    """Where a message lies."""

    broker: str  # empty in a store directory
    queue_id: int
    queue_offset: int
    log_offset: int
    store_ms: int


class Offender(NamedTuple):
    """An id or a key of more than one message of a topic."""

    topic: str
    by: str  # "id" or "key"
    value: str
    copies: int
    places: tuple[Place, ...]  # the first of them, in log order


@dataclass(slots=True)
class CopyCounts:
    """Ids or keys of a topic."""

    distinct: int = 0
    repeated: int = 0  # ids or keys that more than one message has
    surplus: int = 0  # messages that another one came before
    batched: int = 0  # messages that have their id from their batch, as others beside them

    def merge(self, other: "CopyCounts") -> None:
        self.distinct += other.distinct
        self.repeated += other.repeated
        self.surplus += other.surplus
        self.batched += other.batched


@dataclass(slots=True)
class CopyFacts:
    """What was found of some texts, or of all."""

    counts: dict[tuple[str, str], CopyCounts] = field(default_factory=dict)  # by topic and kind
    worst: list[Offender] = field(default_factory=list)

    def merge(self, other: "CopyFacts", top: int) -> None:
        """Add what was found of other texts; keep the worst of each kind."""
        for key, counts in other.counts.items():
            add(self.counts, key, counts)
        both = self.worst + other.worst
        self.worst = [
            one
            for by in _BY_NAMES.values()
            for one in nsmallest(top, (one for one in both if one.by == by), key=badness)
        ]


def badness(one: Offender) -> tuple[int, str, str]:
    """Return what offenders are sorted by, the worst first."""
    return -one.copies, one.topic, one.value


class Grouped:
    """Rows sorted by kind, topic, text and place. `starts` has the first row of each text, its group."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        table = pa.concat_tables([unpacked(data) for data in pieces]).combine_chunks()
        numbers = group_numbers(table)
        brokers = table["broker"].combine_chunks().dictionary_encode()
        ranks = pc.rank(brokers.dictionary).to_numpy()[brokers.indices.to_numpy()]
        order = np.lexsort((table["log_offset"].to_numpy(), ranks, numbers))
        self.table, numbers = table.take(order), numbers[order]
        self.starts: Ints = np.flatnonzero(np.append([True], numbers[1:] != numbers[:-1]))
        self.sizes: Ints = np.diff(np.append(self.starts, len(numbers)))
        self.by = self.column("by")[self.starts]
        self.topics: pa.Array = self.table["topic"].combine_chunks().take(self.starts)
        # Pieces of a batch that two tasks have read are one copy.
        same = (numbers, ranks[order], *map(self.column, ("queue_id", "born_ms", "store_ms")))
        touching = continues(self.column("log_offset"), self.column("end_offset"), *same)
        self.copies_of_rows: Ints = self.column("copies") - (touching & (self.column("by") == ID))
        self.copies: Ints = np.add.reduceat(self.copies_of_rows, self.starts)

    def column(self, name: str) -> Ints:
        found: Ints = self.table[name].to_numpy()
        return found

    def texts(self) -> pa.Array:
        """Return the text of each group."""
        return self.table["text"].combine_chunks().take(self.starts)

    def places(self, group: int) -> tuple[Place, ...]:
        """Return where copies of a group lie."""
        start = int(self.starts[group])
        rows = np.arange(start, start + int(self.sizes[group]))
        rows = rows[self.copies_of_rows[rows] > 0][:PLACES_SHOWN]
        found = self.table.select(list(Place._fields)).take(rows).to_pylist()
        return tuple(Place(**one) for one in found)


def find_copies(grouped: Grouped, top: int) -> CopyFacts:
    """Return which texts there are more than once."""
    facts, topics = CopyFacts(), grouped.topics.dictionary_encode()
    codes = topics.indices.to_numpy()
    messages = np.add.reduceat(grouped.column("messages"), grouped.starts)
    for kind, name in _BY_NAMES.items():
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            mine = (grouped.by == kind) & (codes == code)
            copies = grouped.copies[mine]
            if len(copies):
                facts.counts[topic, name] = CopyCounts(
                    len(copies),
                    int((copies > 1).sum()),
                    int((copies - 1).sum()),
                    int((messages[mine] - copies).sum()),
                )
    facts.worst = _worst(grouped, top)
    return facts


def _worst(grouped: Grouped, top: int) -> list[Offender]:
    found: list[Offender] = []
    for kind, name in _BY_NAMES.items():
        several = np.flatnonzero((grouped.by == kind) & (grouped.copies > 1))
        if not len(several):
            continue
        # All that have as many copies as the last one that is shown, so that ties end by name everywhere.
        counts = grouped.copies[several]
        least = np.partition(counts, -top)[-top] if len(counts) > top else 0
        chosen = several[counts >= least]
        texts = grouped.table["text"].combine_chunks().take(grouped.starts[chosen]).to_pylist()
        topics = grouped.topics.take(chosen).to_pylist()
        named = zip(chosen.tolist(), topics, texts, grouped.copies[chosen].tolist(), strict=True)
        first = nsmallest(top, named, key=lambda one: (-one[3], one[1], one[2]))
        found += [
            Offender(topic, name, text, copies, grouped.places(group))
            for group, topic, text, copies in first
        ]
    return found
