"""Verify a store with tasks: the same rules as `orbitmq store check`, and the same findings.

  index    per index file: chains, slots, header
  scan     per split of the log: every record with its CRC, its units and index entries looked up
  walk     on the driver, over what the scan gave: what counts of it, and what the bad places are
  rest     the parts of the log that only the driver could read are compared, too
  queues   per queue: order of its queue offsets, units that differ, units without a record

How the tasks run is not known here (`Tasks`); nothing of the size of the log comes to the driver.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, Protocol

from orbitmq.files.listing import SegmentFile
from orbitmq.format.kernels import Kernels
from orbitmq.spark.jobs.verify.context import IndexFileFacts, VerifyContext, context_of
from orbitmq.spark.jobs.verify.index import IndexFileResult
from orbitmq.spark.jobs.verify.queues import QueueResult, QueueRow, file_rows, skipped_rows
from orbitmq.spark.jobs.verify.scan import Stretch
from orbitmq.spark.jobs.verify.walk import ReadRanges, StretchChunk, StretchReader
from orbitmq.spark.source.splits import SPLIT_BYTES, Split, find_end, written_length
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.log_view import LogView, SegmentView
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.basis import CheckBasis
from orbitmq.store.verify.check import CheckReport
from orbitmq.store.verify.index import IndexTally, report_index
from orbitmq.store.verify.index_chains import check_order, list_index_files
from orbitmq.store.verify.log import LogCheck, record_facts
from orbitmq.store.verify.small_files import check_checkpoint, check_state_files

EVERYWHERE: Final = (-(2**63), 2**63)
_HEAD_BYTES: Final = 8


class Tasks(Protocol):
    """Runs the parts of a verification, somewhere."""

    def look_at_index(
        self, paths: Sequence[Path], context: VerifyContext
    ) -> Sequence[IndexFileResult]:
        """Look at each index file by itself; results in the order of the paths."""

    def scan(
        self, splits: Sequence[Split], context: VerifyContext, *, exact: bool
    ) -> Sequence[Stretch]:
        """Read splits of the log; what they say of queues is kept for `compare_queues`."""

    def compare_queues(
        self,
        accepted: frozenset[int],
        rows: Sequence[QueueRow],
        context: VerifyContext,
        log_end: int,
    ) -> Iterable[QueueResult]:
        """Compare all queues by what these stretches (their starts) and these rows say of them."""


class StoreVerification:
    """One verification. Not thread-safe."""

    def __init__(
        self,
        basis: CheckBasis,
        log: LogView,
        tasks: Tasks,
        kernels: Kernels,
        *,
        split_bytes: int = SPLIT_BYTES,
    ) -> None:
        self._basis = basis
        self._tasks = tasks
        self._kernels = kernels
        self._split_bytes = split_bytes
        self._log_check = LogCheck(basis.findings, live=basis.live)
        self._log_check.files(log)
        self._log_min = log.min_offset
        self._log = settled_view(log, basis, kernels) if basis.live else log
        self._context = context_of(basis, self._log_min)
        self._accepted: set[int] = set()
        self._ranges = ReadRanges(self._log, split_bytes)
        self._skipped: list[QueueRow] = []
        self._index = IndexTally()
        self._lagging = 0

    def run(self) -> CheckReport:
        """Do it all. StoreError: something cannot be read."""
        self._look_at_index()
        splits = cut_view(self._log, self._split_bytes)
        result = self._walk(self._tasks.scan(splits, self._context, exact=False))
        self._compare_ranges()
        log_end = self._basis.judged_end(result.end_offset)
        if self._basis.has_queues:
            self._compare_queues(log_end)
        self._report_index(result)
        self._finish(result)
        return self._report(result)

    def _look_at_index(self) -> None:
        paths = list_index_files(self._context.layout)
        files: list[IndexFileFacts] = []
        for facts, findings in self._tasks.look_at_index(paths, self._context) if paths else ():
            self._basis.findings.merge(findings)
            if facts is not None:
                files.append(facts)
        headers = [(file.path, file.header) for file in files]
        check_order(headers, self._context.layout, self._basis.findings)
        if self._basis.config.index_enabled:
            self._context = self._context.with_index(tuple(files))

    def _walk(self, stretches: Sequence[Stretch]) -> WalkResult:
        options = WalkOptions(
            kernels=self._kernels, scan=self._basis.scan, whole_from=self._context.whole_from
        )
        reader = StretchReader(self._log, stretches, self._kernels, self._basis.scan)
        result = WalkResult(self._log_min)
        mended_to = 0
        for item in walk(self._log, self._log_min, options, result, reader.read):
            if isinstance(item, Repair):
                self._log_check.repair(item)
                mended_to = item.resume
            elif item.rows["log_offset"][0] < mended_to:
                # Fillers that do not exist yet: the files know the record that was there.
                self._skipped += skipped_rows(item, self._context, self._kernels)
            else:
                self._take(item)
        return result

    def _take(self, chunk: Chunk) -> None:
        if isinstance(chunk, StretchChunk) and chunk.stretch is not None:
            stretch = chunk.stretch
            self._log_check.records(self._log, chunk.rows, stretch.facts)
            self._accepted.add(stretch.start)
            self._index.merge(stretch.tally)
        else:
            self._log_check.records(self._log, chunk.rows, record_facts(chunk))
            self._ranges.add(chunk.rows)

    def _compare_ranges(self) -> None:
        if self._ranges.splits:
            for stretch in self._tasks.scan(self._ranges.splits, self._context, exact=True):
                self._accepted.add(stretch.start)
                self._index.merge(stretch.tally)

    def _compare_queues(self, log_end: int) -> None:
        rows = [*self._skipped, *file_rows(self._context, self._basis.findings)]
        accepted = frozenset(self._accepted)
        for result in self._tasks.compare_queues(accepted, rows, self._context, log_end):
            self._basis.findings.merge(result.findings)
            self._lagging += result.lagging

    def _report_index(self, result: WalkResult) -> None:
        if not self._context.index_files:
            return
        log_end = None if self._basis.live else result.end_offset
        files = self._context.open_index(*EVERYWHERE)
        layout, findings = self._context.layout, self._basis.findings
        report_index(self._index, files, layout, findings, log_end=log_end)
        self._lagging += self._index.lagging

    def _finish(self, result: WalkResult) -> None:
        basis = self._basis
        basis.report_absent(
            self._log_check.facts,
            log_min=self._log_min,
            has_index=bool(self._context.index_files),
        )
        self._log_check.finish(self._log, result)
        check_checkpoint(
            basis.checkpoint,
            basis.layout,
            result,
            basis.findings,
            last_ms=self._log_check.last_ms,
            live=basis.live,
            abort=basis.abort,
        )
        check_state_files(basis.layout, basis.findings)

    def _report(self, result: WalkResult) -> CheckReport:
        return CheckReport(
            findings=tuple(self._basis.findings),
            left_out=self._basis.findings.left_out,
            records=result.records,
            fillers=self._log_check.facts.fillers,
            log_start=self._log_min,
            log_end=result.end_offset,
            live=self._basis.live,
            lagging=self._lagging,
        )


def cut_view(log: LogView, split_bytes: int) -> list[Split]:
    """Return splits of all that was ever written to the log."""
    splits: list[Split] = []
    for segment in log.segments:
        base, limit = (
            segment.base_offset,
            segment.base_offset + min(segment.length, len(segment.data)),
        )
        end = written_length(segment)
        count = max(1, round(end / split_bytes)) if end else 0
        cuts = [base + end * number // count for number in range(count + 1)] if count else []
        splits += [
            Split(str(segment.path), base, cuts[number], cuts[number + 1], limit)
            for number in range(count)
        ]
    return splits


def settled_view(log: LogView, basis: CheckBasis, kernels: Kernels) -> LogView:
    """Return the log of a store that is open up to where it ends now: what a writer adds is not seen."""
    used = [segment for segment in log.segments if segment.data[:_HEAD_BYTES].any()]
    if not used:
        return LogView([], log.segment_bytes)
    last = used[-1]
    file = SegmentFile(last.base_offset, last.path, last.length)
    length = find_end(file, basis.layout, kernels) - last.base_offset
    cut = SegmentView(last.base_offset, last.path, last.data[:length], min(last.length, length))
    before = [segment for segment in log.segments if segment.base_offset < last.base_offset]
    return LogView([*before, cut] if length else before, log.segment_bytes)
