"""The tasks of an audit: one reads records and counts, another sees all copies of some ids and keys.

What a reading task yields is (bucket, content): what it counted under bucket 0, rows and trace records under
the bucket of their text. Spark brings together what has the same bucket.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orbitmq.errors import CorruptRecordError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BadPlace, read_split
from orbitmq.spark.jobs.audit.copies import CopyFacts, Grouped, find_copies
from orbitmq.spark.jobs.audit.facts import ScanFacts
from orbitmq.spark.jobs.audit.keyed import KeyedRows
from orbitmq.spark.jobs.audit.options import AuditOptions
from orbitmq.spark.jobs.audit.readers import Readers
from orbitmq.spark.jobs.audit.roles import Roles
from orbitmq.spark.jobs.audit.sources import SKIP_STEP, Look, Work
from orbitmq.spark.jobs.audit.tally import Tally, by_topic, rows_between
from orbitmq.spark.jobs.audit.traces import TraceFacts, TraceRows, join_traces
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.source.batches import LogChunk
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.spark.source.row_columns import RowColumns
from orbitmq.spark.source.segment import open_split
from orbitmq.spark.streams.cluster import connected
from orbitmq.spark.streams.pull import range_chunks

COUNTS: Final = 0
"""The bucket of what tasks counted; those of texts begin behind it."""


class Piece(NamedTuple):
    """What a reading task hands to the one that sees a bucket."""

    content: bytes
    is_trace: bool


Handed = tuple[int, ScanFacts | Piece]


@dataclass(slots=True)
class Found:
    """What one task has to say, or all of them."""

    scan: ScanFacts = field(default_factory=ScanFacts)
    copies: CopyFacts = field(default_factory=CopyFacts)
    trace: TraceFacts = field(default_factory=TraceFacts)

    def merge(self, other: "Found", top: int) -> None:
        self.scan.merge(other.scan)
        self.copies.merge(other.copies, top)
        self.trace.merge(other.trace, top)


@dataclass(frozen=True, slots=True)
class AuditScan:
    """Reads records and counts. Travels to executors."""

    options: AuditOptions
    readers: Readers
    roles: Roles
    namesrv: str
    back_bytes: int
    buckets: int
    counter: StageCounter

    @classmethod
    def of(
        cls, found: Look, options: AuditOptions, buckets: int, counter: StageCounter
    ) -> "AuditScan":
        given = found.readers, found.roles, found.namesrv, found.back_bytes
        return cls(options, *given, buckets, counter)

    def __call__(self, _number: int, works: Iterator[Work]) -> Iterator[Handed]:
        for work in works:
            yield from _ScanTask(self).run(work)


class _ScanTask:
    """One reading task at work. Not thread-safe."""

    def __init__(self, scan: AuditScan) -> None:
        self._scan, self._kernels = scan, compiled()
        self._tally = Tally(self._kernels, scan.readers)
        self._keyed, self._traces = KeyedRows(scan.buckets), TraceRows(scan.buckets)

    def run(self, work: Work) -> Iterator[Handed]:
        for broker, chunk in self._chunks(work):
            self._tally.note_read(chunk.rows)
            columns = RowColumns(self._kernels, chunk.segment.data, chunk.rows)
            for topic, rows in by_topic(columns):
                self._take(topic, broker, RowColumns(self._kernels, columns.buffer, rows))
            if self._keyed.full() or self._traces.full():
                yield from self._handed()
        yield from self._handed()
        yield COUNTS, self._tally.end()

    def _handed(self) -> Iterator[Handed]:
        for bucket, content in self._keyed.pieces():
            yield bucket + 1, Piece(content, is_trace=False)
        for bucket, content in self._traces.pieces():
            yield bucket + 1, Piece(content, is_trace=True)

    def _take(self, topic: str, broker: str, whole: RowColumns) -> None:
        options, roles, tally = self._scan.options, self._scan.roles, self._tally
        tally.take_queue(topic, broker, whole)
        if topic == roles.trace_topic:
            self._traces.add(whole)  # whatever their times: they tell of older messages
        rows = rows_between(whole.rows, options.since_ms, options.until_ms)
        if not len(rows):
            return
        columns = RowColumns(self._kernels, whole.buffer, rows)
        if roles.counts(topic):
            tally.take_messages(topic, columns)
            self._keyed.add(topic, broker, columns)
        if (returned := roles.returned_to(topic)) is not None:
            tally.take_returned(*returned, columns)

    # --- reading ---

    def _chunks(self, work: Work) -> Iterator[tuple[str, LogChunk]]:
        """Yield records with the name of their broker, which a store directory does not tell."""
        counter = self._scan.counter
        for split in work.splits:
            segment, records = open_split(split), 0
            for chunk in read_split(
                split,
                segment,
                self._kernels,
                ScanOptions(),
                self._on_bad,
                back_bytes=self._scan.back_bytes,
            ):
                records += len(chunk.rows)
                yield "", LogChunk(segment, chunk.rows)
            counter.add(split.end - split.start, records)
        if work.ranges:
            yield from self._pulled(work)

    def _pulled(self, work: Work) -> Iterator[tuple[str, LogChunk]]:
        namesrv = self._scan.namesrv
        options = ReadOptions(namesrv=namesrv, bad_records=self._scan.options.bad_records)
        with connected(namesrv):  # one client for all ranges
            for one in work.ranges:
                for chunk in range_chunks([one], options, self._kernels):
                    yield one.broker_name, chunk
                    size = int(chunk.rows["size"].sum(dtype="i8"))
                    self._scan.counter.add(size, len(chunk.rows))

    def _on_bad(self, place: BadPlace) -> None:
        if self._scan.options.bad_records is BadRecords.FAIL:
            raise CorruptRecordError(place.path, place.position, place.reason, SKIP_STEP)
        self._tally.facts.bad_places += 1


@dataclass(frozen=True, slots=True)
class AuditJoin:
    """Sees all copies of the ids and keys of some buckets. Travels to executors."""

    groups: frozenset[str]
    top: int

    def __call__(self, _number: int, handed: Iterator[Handed]) -> Iterator[Found]:
        by_bucket: dict[int, list[Any]] = {}
        for bucket, content in handed:
            by_bucket.setdefault(bucket, []).append(content)
        if not by_bucket:
            return
        whole = Found(ScanFacts.joined(by_bucket.pop(COUNTS, ())))
        for pieces in by_bucket.values():
            whole.merge(self._joined(pieces), self.top)
        yield whole

    def _joined(self, pieces: Iterable[Piece]) -> Found:
        rows = [one.content for one in pieces if not one.is_trace]
        traces = [one.content for one in pieces if one.is_trace]
        grouped = Grouped(rows) if rows else None
        copies = find_copies(grouped, self.top) if grouped is not None else CopyFacts()
        return Found(copies=copies, trace=join_traces(grouped, traces, self.groups, self.top))
