"""What a task counts as it reads: traffic, sizes, latency, what groups have before them, what came back.

Whole columns are compared and summed at once; no Python object is made per message.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from orbitmq.format.columns import Ints, Mark, Rows
from orbitmq.format.kernels import Kernels
from orbitmq.spark.jobs.audit.facts import (
    Amount,
    QueueSpan,
    Returned,
    ReturnedKey,
    ScanFacts,
    Unread,
    add,
)
from orbitmq.spark.jobs.audit.histogram import Histogram
from orbitmq.spark.jobs.audit.readers import Reader, Readers
from orbitmq.spark.jobs.replay.messages import ORIGINS
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.row_columns import RowColumns, is_time
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import HOUR_MS

TAGS_MAX: Final = 1_000
"""Tags of a topic that a task counts one by one; whoever makes a tag for each message has millions."""
MORE_TAGS: Final = "(more tags)"
_HAD_TO_WAIT: Final = RowSelection(ReadOptions(sql92="REAL_TOPIC IS NOT NULL"))
"""A message that was delayed, or part of a transaction, lay somewhere else before."""
_NO_HOUR: Final = -(2**32)

Mask = npt.NDArray[np.bool_]


def by_topic(columns: RowColumns) -> Iterator[tuple[str, Rows]]:
    """Yield the rows of each topic, in log order; fillers and what no consumer can see are left out."""
    rows = columns.rows[(columns.rows["marks"] & (Mark.FILLER | Mark.NO_UNIT)) == 0]
    if not len(rows):
        return
    topics = RowColumns(columns.kernels, columns.buffer, rows).column("topic").dictionary_encode()
    codes = topics.indices.to_numpy()
    order, end = np.argsort(codes, kind="stable"), 0
    for topic, count in zip(topics.dictionary.to_pylist(), np.bincount(codes), strict=True):
        start, end = end, end + int(count)
        yield topic, rows[order[start:end]]


def message_counts(rows: Rows) -> Ints:
    """Return how many messages each record holds: an inner batch has several."""
    counts: Ints = np.maximum(rows["batch_count"].astype(np.int64), 1)
    return counts


def born_ms(columns: RowColumns) -> tuple[Ints, Mask]:
    """Return when messages were born, and which of these times can be one."""
    column = columns.column("born_time")
    micros = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return micros // 1000, column.is_valid().to_numpy(zero_copy_only=False)


class Tally:
    """Counts what one task reads. Not thread-safe."""

    def __init__(self, kernels: Kernels, readers: Readers) -> None:
        self._kernels, self._readers = kernels, readers
        self.facts = ScanFacts()

    def note_read(self, rows: Rows) -> None:
        """Count records of any topic."""
        counts, sizes = message_counts(rows), rows["size"]
        amount = Amount(int(counts.sum()), len(rows), int(sizes.sum(dtype=np.int64)))
        self.facts.read.merge(amount)

    # --- traffic, sizes, latency ---

    def take_messages(self, topic: str, columns: RowColumns) -> None:
        """Count messages of a topic by tag and hour, their sizes, and how long they took."""
        rows, facts = columns.rows, self.facts
        self._take_traffic(topic, columns)
        sizes = rows["size"].astype(np.int64)
        facts.sizes.setdefault(topic, Histogram()).add(sizes)
        born, known = born_ms(columns)
        waited = _HAD_TO_WAIT.matches(self._kernels, columns.buffer, rows)
        add(facts.waited, topic, int(waited.sum()))
        times = (rows["store_ms"] - born)[known & ~waited & is_time(rows["store_ms"])]
        facts.latencies.setdefault(topic, Histogram()).add(times)

    def _take_traffic(self, topic: str, columns: RowColumns) -> None:
        rows = columns.rows
        tags = columns.column("tags").dictionary_encode()
        names: list[str | None] = [*tags.dictionary.to_pylist(), None]
        codes = pc.fill_null(tags.indices, len(names) - 1).to_numpy().astype(np.int64)
        times = rows["store_ms"]
        hours = np.where(is_time(times), times // HOUR_MS, _NO_HOUR)
        places, inverse = np.unique(hours * len(names) + codes, return_inverse=True)
        records = np.bincount(inverse)
        messages = np.bincount(inverse, weights=message_counts(rows))  # exact up to 2**53
        sizes = np.bincount(inverse, weights=rows["size"])
        for number, place in enumerate(places.tolist()):
            hour, code = divmod(place, len(names))
            key = topic, names[code], None if hour == _NO_HOUR else hour * HOUR_MS
            amount = Amount(int(messages[number]), int(records[number]), int(sizes[number]))
            add(self.facts.traffic, key, amount)

    # --- lag ---

    def take_queue(self, topic: str, broker: str, columns: RowColumns) -> None:
        """Note how far the queues of a topic reach, and what its readers have not read of these rows."""
        readers = self._readers.get(topic)
        if not readers:
            return
        rows = columns.rows
        first = rows["queue_offset"]
        ends = first + message_counts(rows)
        ids, which = np.unique(rows["queue_id"], return_inverse=True)
        for number, queue_id in enumerate(ids.tolist()):
            mine = which == number
            span = QueueSpan(int(first[mine].min()), int(ends[mine].max()))
            add(self.facts.queues, (topic, broker, queue_id), span)
        for reader in readers:
            offsets = [reader.offsets.get((broker, queue_id), 0) for queue_id in ids.tolist()]
            unread = ends - np.maximum(first, np.array(offsets, dtype=np.int64)[which])
            self._take_unread(topic, broker, reader, columns, unread)

    def _take_unread(
        self, topic: str, broker: str, reader: Reader, columns: RowColumns, unread: Ints
    ) -> None:
        left = np.flatnonzero(unread > 0)
        wanted = reader.wanted.selection() if reader.wanted is not None else None
        if wanted is not None and len(left):
            left = left[wanted.matches(self._kernels, columns.buffer, columns.rows[left])]
        rows, counts = columns.rows[left], unread[left]
        for queue_id in np.unique(rows["queue_id"]).tolist():
            mine = rows["queue_id"] == queue_id
            found = Unread(int(counts[mine].sum()), int(rows["store_ms"][mine].min()))
            add(self.facts.unread, (reader.group, topic, broker, queue_id), found)

    # --- what came back ---

    def take_returned(self, group: str, dead: bool, columns: RowColumns) -> None:
        """Count retries or dead letters by where they came from and how often they were tried."""
        rows = columns.rows
        properties = columns.column("properties")
        found = (pc.map_lookup(properties, pa.scalar(name), "first") for name in ORIGINS)
        origins = pc.coalesce(*found).dictionary_encode()
        names: list[str | None] = [*origins.dictionary.to_pylist(), None]
        codes = pc.fill_null(origins.indices, len(names) - 1).to_numpy().astype(np.int64)
        times = columns.column("reconsume_times").to_numpy().astype(np.int64)
        places, inverse = np.unique(times * len(names) + codes, return_inverse=True)
        for number, place in enumerate(places.tolist()):
            tried, code = divmod(place, len(names))
            mine = rows[inverse == number]
            returned = Returned(
                len(mine),
                int(mine["size"].sum(dtype=np.int64)),
                int(mine["store_ms"].min()),
                int(mine["store_ms"].max()),
            )
            add(self.facts.returned, ReturnedKey(group, dead, names[code], tried), returned)

    def end(self) -> ScanFacts:
        """Return what was counted, the rarest tags of a topic that has very many of them as one."""
        _fold_tags(self.facts)
        return self.facts


def _fold_tags(facts: ScanFacts) -> None:
    by_tag: dict[str, dict[str | None, int]] = {}
    for (topic, tag, _), amount in facts.traffic.items():
        add(by_tag.setdefault(topic, {}), tag, amount.messages)
    for topic, tags in by_tag.items():
        if len(tags) <= TAGS_MAX:
            continue
        most = sorted(tags, key=lambda tag: (-tags[tag], tag or ""))
        rare = set(most[TAGS_MAX:])
        for key in [key for key in facts.traffic if key[0] == topic and key[1] in rare]:
            amount = facts.traffic.pop(key)
            add(facts.traffic, (topic, MORE_TAGS, key[2]), amount)
            add(facts.many_tags, topic, amount.messages)


def rows_between(rows: Rows, since_ms: int | None, until_ms: int | None) -> Rows:
    """Return the rows that were stored in [since, until); the same array if all were."""
    mask = np.ones(len(rows), dtype=np.bool_)
    if since_ms is not None:
        mask &= rows["store_ms"] >= since_ms
    if until_ms is not None:
        mask &= rows["store_ms"] < until_ms
    return rows if mask.all() else rows[mask]
