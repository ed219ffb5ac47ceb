"""Verify a store with tasks: what each of them does, and what the driver makes of it.

  index    per index file: chains, slots, header
  scan     per split of the log: every record with its CRC, its units and index entries looked up
  walk     on the driver, over what the scan gave: what counts of it, and what the bad places are
  rest     the parts of the log that only the driver could read are compared, too
  queues   per queue: order of its queue offsets, units that differ, units without a record

How the tasks run is not known here; nothing of the size of the log comes to the driver.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Final

from orbitmq.files.disk import Disk
from orbitmq.files.listing import SegmentFile
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import SPLIT_BYTES, Chunk, LogView, Segment, Split, cut_view, find_end
from orbitmq.spark.jobs.verify.scan import Stretch
from orbitmq.spark.jobs.verify.walk import ReadRanges, StretchChunk, StretchReader
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.index import IndexTally
from orbitmq.store.verify.index_chains import IndexFileResult
from orbitmq.store.verify.log import record_facts
from orbitmq.store.verify.log_part import LogPart, PartTally
from orbitmq.store.verify.queues import QueueComparison, QueueOrderKey, QueueRow, file_rows

_HEAD_BYTES: Final = 8


class TaskRunner(ABC):
    """The driver of tasks (`verification.Runner`); how they run is up to who inherits. Not thread-safe."""

    def __init__(self, kernels: Kernels, *, split_bytes: int = SPLIT_BYTES) -> None:
        self._kernels = kernels
        self._split_bytes = split_bytes
        self._accepted: set[int] = set()
        self._skipped: list[QueueRow] = []

    @abstractmethod
    def check_index_files(
        self, paths: Sequence[Path], facts: StoreFacts
    ) -> Sequence[IndexFileResult]:
        """Check each index file by itself; results in the order of the paths."""

    @abstractmethod
    def scan(self, splits: Sequence[Split], facts: StoreFacts, *, exact: bool) -> Sequence[Stretch]:
        """Read splits of the log; what they say of queues is kept for `compare_queues`."""

    @abstractmethod
    def compare_queues(
        self, accepted: frozenset[int], rows: Sequence[QueueRow], facts: StoreFacts, log_end: int
    ) -> Iterable[Findings]:
        """Compare all queues by what these stretches (their starts) and these rows say of them."""

    def walk(self, log: LogView, facts: StoreFacts, result: WalkResult) -> Iterator[Chunk | Repair]:
        log = settled_view(log, facts, self._kernels) if facts.live else log
        self._facts = facts
        self._ranges = ReadRanges(log, self._split_bytes)
        # For what is passed over only: the driver compares nothing itself.
        self._part = LogPart(facts, self._kernels, FileCache(Disk(), writable=False))
        stretches = self.scan(cut_view(log, self._split_bytes), facts, exact=False)
        options = WalkOptions(kernels=self._kernels, scan=facts.scan, whole_from=facts.whole_from)
        reader = StretchReader(log, stretches, self._kernels, facts.scan)
        return walk(log, facts.log_min, options, result, reader.read)

    def take(self, chunk: Chunk) -> PartTally:
        if isinstance(chunk, StretchChunk) and chunk.stretch is not None:
            self._accepted.add(chunk.stretch.start)
            return chunk.stretch.tally
        self._ranges.add(chunk.rows)
        return PartTally(record_facts(chunk, self._facts.due_end))

    def skip(self, chunk: Chunk) -> None:
        self._skipped += self._part.skip(chunk)

    def finish(self, log_end: int) -> tuple[Findings, IndexTally]:
        findings, index = Findings(), IndexTally()
        if self._ranges.splits:
            for stretch in self.scan(self._ranges.splits, self._facts, exact=True):
                self._accepted.add(stretch.start)
                index.merge(stretch.tally.index)
        if self._facts.has_queues:
            rows = [*self._skipped, *file_rows(self._facts, findings)]
            accepted = frozenset(self._accepted)
            for found in self.compare_queues(accepted, rows, self._facts, log_end):
                findings.merge(found)
        return findings, index


def partition_of(order: QueueOrderKey) -> int:
    """Return a number that is the same for all rows of a queue, in every process."""
    return zlib.crc32(order[1]) + order[2]


def compare_queues(rows: Iterable[QueueRow], facts: StoreFacts, log_end: int) -> Findings:
    """Compare whole queues; the rows come queue by queue, each in log order."""
    with FileCache(Disk(), writable=False) as files:
        comparison = QueueComparison(facts, compiled(), files)
        for _, queue in groupby(rows, key=attrgetter("queue")):
            for row in queue:
                comparison.take(row)
            comparison.finish(log_end)
    return comparison.findings


def settled_view(log: LogView, facts: StoreFacts, kernels: Kernels) -> LogView:
    """Return the log of a store that is open up to where it ends now: what a writer adds is not seen."""
    used = [segment for segment in log.segments if segment.data[:_HEAD_BYTES].any()]
    if not used:
        return LogView([], log.segment_bytes)
    last = used[-1]
    file = SegmentFile(last.base_offset, last.path, last.length)
    length = find_end(file, facts.layout, kernels) - last.base_offset
    cut = Segment(last.base_offset, last.path, last.data[:length], min(last.length, length))
    before = [segment for segment in log.segments if segment.base_offset < last.base_offset]
    return LogView([*before, cut] if length else before, log.segment_bytes)
