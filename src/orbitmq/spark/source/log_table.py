"""The commit log of a store directory as a table: planned on the driver, read by tasks.

The plan is the log at one moment. A broker that appends meanwhile does not change what a query sees: the end
is where the last whole record ended when the query was planned.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, cast
from uuid import uuid4

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from orbitmq.errors import NotAStoreError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import (
    BACK_BYTES,
    SPLIT_BYTES,
    BadPlace,
    Gap,
    LogPlan,
    Segment,
    Split,
    cut,
    plan_log,
    read_windows,
    rows_at,
)
from orbitmq.spark.remote.fetched import fetched_bytes
from orbitmq.spark.remote.names import StoreNames, store_names
from orbitmq.spark.source.batches import NEXT_STEP, Columns, LogChunk, RowMaker
from orbitmq.spark.source.lookup import lookup
from orbitmq.spark.source.lookup.lookup import ScanRanges
from orbitmq.spark.source.metrics import (
    CountingKernels,
    ReadMetrics,
    noted,
    task_name,
    write_metrics,
)
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.spark.source.pushdown import TableReader
from orbitmq.spark.source.segment import open_segment, open_split
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import GiB, KiB, MiB

logger = logging.getLogger(__name__)

SPLIT_BYTES_MAX: Final = 256 * MiB
SPLITS_PER_CORE: Final = 4
SPLITS_MIN: Final = 32
"""A log is cut into so many before they become longer, where nobody has said how many cores there are."""
FIGURES_SPLIT_BYTES_MAX: Final = 1 * GiB
FIGURES_SPLITS_PER_CORE: Final = 2
FIGURES_SPLITS_MIN: Final = 8
"""Of a read that gives Spark figures instead of rows: to scan 64 MiB takes less than a task of Spark does."""
PLACE_BYTES: Final = 64 * KiB
"""What reading a single record is taken to cost, in bytes of a scan."""
HEADER_BYTES_MAX: Final = 128 * KiB
"""What a record may have beside its body: fields, topic and properties."""
_SINGLE: Final = ScanOptions(check_offset=True)
_MISSING: Final = "there is no file, or no bytes, for this stretch of the log"


@dataclass(frozen=True)
class LogTask(InputPartition):
    """What one task reads: stretches of the log, single records, places that are missing."""

    splits: tuple[Split, ...] = ()
    singles: tuple[Split, ...] = ()  # each one a record that starts at `start`
    gaps: tuple[Gap, ...] = ()
    back_bytes: int = BACK_BYTES


class LogTable(TableReader):
    """One query over a store directory.

    `cores`: so many tasks run at once, 0: nobody knows. `for_figures`: Spark gets a few figures of all
    rows of a task. `in_place`: who takes the batches can map files, so bodies may stay where they are.
    """

    def __init__(
        self,
        options: ReadOptions,
        schema: StructType,
        *,
        cores: int = 0,
        for_figures: bool = False,
        in_place: bool = False,
    ) -> None:
        super().__init__(options)
        self._columns = Columns.of(schema, options, in_place=in_place)
        self._cores, self._for_figures = cores, for_figures

    def partitions(self) -> list[InputPartition]:
        """Look at the store and cut it into tasks."""
        settings = self._options.settings
        back_bytes = search_back_bytes(settings)
        with store_names(self._options.path, settings) as names:
            tasks = [replace(task, back_bytes=back_bytes) for task in self._tasks(names)]
            return [_with_addresses(task, names) for task in tasks]

    def _tasks(self, names: StoreNames) -> list[LogTask]:
        options = self._options
        plan = plan_log(names.root, names.settings)
        if options.without is not None:
            held = options.without.stretches(options.topics)
            options.without.require_all_there((), plan.start, held, options.path)
        gaps = _gaps(plan, options, names)
        ranges = lookup.scan_ranges(plan, options, remote=names.is_remote)
        if ranges is None:
            tasks = [LogTask(splits=(split,)) for split in self._splits(plan, names)]
        else:
            tasks = _range_tasks(plan, ranges, options.split_bytes or SPLIT_BYTES)
            _note_lookup(ranges, options)
        return [*tasks, LogTask(gaps=tuple(gaps))] if gaps else tasks

    def _splits(self, plan: LogPlan, names: StoreNames) -> list[Split]:
        options = self._options
        start, end = options.start_offset, options.end_offset
        usual = usual_split_bytes(
            plan, start, end, cores=self._cores, for_figures=self._for_figures
        )
        if names.is_remote:
            usual = min(usual, SPLIT_BYTES)
        return cut(plan, options.split_bytes or usual, start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        if isinstance(partition, LogTask):  # else Spark's own, where a table has none
            name = task_name() if self._options.metrics_path else ""
            yield from self.batches(partition, name, ReadMetrics(tasks=1))

    def batches(self, task: LogTask, name: str, metrics: ReadMetrics) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task; fill in its figures, and keep them under its name if wanted."""
        selection = RowSelection(self._options, self._predicates)
        with noted(metrics, self._options.metrics_path, name):
            yield from _TaskRun(self._columns, selection, metrics).run(task)

    @property
    def arrow_schema(self) -> pa.Schema:
        return self._columns.arrow_schema


def search_back_bytes(settings: Mapping[str, str] | None) -> int:
    """Return more than the longest record of the store."""
    text = (settings or {}).get("maxMessageSize", "")
    return max(BACK_BYTES, int(text) + HEADER_BYTES_MAX) if text.strip().isdecimal() else BACK_BYTES


def _with_addresses(task: LogTask, names: StoreNames) -> LogTask:
    """Return a task for a machine that has nothing but the address of a store."""
    if not names.is_remote:
        return task
    splits, singles = (tuple(map(names.split, found)) for found in (task.splits, task.singles))
    return replace(task, splits=splits, singles=singles)


def _gaps(plan: LogPlan, options: ReadOptions, names: StoreNames) -> list[Gap]:
    """Return the gaps to be shown. NotAStoreError: there are some and the read shall fail."""
    start, end = options.start_offset or 0, options.end_offset
    concerned = [
        names.gap(gap) for gap in plan.gaps if gap.end > start and (end is None or gap.start < end)
    ]
    if not concerned:
        return []
    first = concerned[0]
    what = f"the log from {first.start} to {first.end} is missing"
    if options.bad_records is BadRecords.FAIL:
        raise NotAStoreError(first.path, what, NEXT_STEP)
    for gap in concerned:
        logger.warning("%s: the log from %s to %s is missing", gap.path, gap.start, gap.end)
    return concerned


def usual_split_bytes(
    plan: LogPlan,
    start: int | None = None,
    end: int | None = None,
    *,
    cores: int = 0,
    for_figures: bool = False,
) -> int:
    """Return a split's length for a read of [start, end).

    Spark itself takes tens of milliseconds of processor time for each task; reading the headers of 64 MiB
    takes about 20. So a long log has longer splits.
    """
    first = plan.start if start is None else max(start, plan.start)
    last = plan.end if end is None else min(end, plan.end)
    least, longest = SPLITS_PER_CORE * cores or SPLITS_MIN, SPLIT_BYTES_MAX
    if for_figures:
        least = FIGURES_SPLITS_PER_CORE * cores or FIGURES_SPLITS_MIN
        longest = FIGURES_SPLIT_BYTES_MAX
    return min(max((last - first) // least, SPLIT_BYTES), longest)


def _range_tasks(plan: LogPlan, ranges: ScanRanges, split_bytes: int) -> list[LogTask]:
    """Put stretches and single records together into tasks of about `split_bytes` of work."""
    tasks: list[LogTask] = []
    splits: list[Split] = []
    singles: list[Split] = []
    work = 0
    for is_single, split in _range_splits(plan, ranges, split_bytes):
        (singles if is_single else splits).append(split)
        work += PLACE_BYTES if is_single else split.end - split.start + BACK_BYTES
        if work >= split_bytes:
            tasks.append(LogTask(splits=tuple(splits), singles=tuple(singles)))
            splits, singles, work = [], [], 0
    if work:
        tasks.append(LogTask(splits=tuple(splits), singles=tuple(singles)))
    return tasks


def _range_splits(
    plan: LogPlan, ranges: ScanRanges, split_bytes: int
) -> Iterator[tuple[bool, Split]]:
    for start, end in ranges.ranges:
        for split in cut(plan, split_bytes, start, end):
            yield False, split
    for offset in ranges.offsets:
        for split in cut(plan, split_bytes, offset, offset + 1):
            yield True, split


def _note_lookup(ranges: ScanRanges, options: ReadOptions) -> None:
    logger.info("looked up %s records, %s stretches", len(ranges.offsets), len(ranges.ranges))
    if options.metrics_path:
        found = ReadMetrics(lookup_bytes=ranges.read_bytes, found_by=list(ranges.found_by))
        # One for each plan: a query may be planned more than once, and each looked.
        write_metrics(options.metrics_path, found, f"lookup-{uuid4().hex}")


class _TaskRun:
    """One task at work. Not thread-safe."""

    def __init__(self, columns: Columns, selection: RowSelection, metrics: ReadMetrics) -> None:
        self._metrics = metrics
        self._skips = selection.options.bad_records is BadRecords.SKIP
        self._opened: tuple[str, Segment] | None = None
        self._kernels = cast(Kernels, CountingKernels(compiled(), metrics))
        self._maker = RowMaker(columns, selection, self._kernels, metrics)

    def run(self, task: LogTask) -> Iterator[pa.RecordBatch]:
        metrics, before = self._metrics, fetched_bytes()
        try:
            for batch in self._batches(task):
                metrics.rows += batch.num_rows
                yield batch
        finally:
            metrics.fetched_bytes = fetched_bytes() - before
            if metrics.bad_places and self._skips:
                counts = metrics.bad_places, metrics.bad_bytes
                logger.warning("skipped %s bad places of %s bytes", *counts)

    def _batches(self, task: LogTask) -> Iterator[pa.RecordBatch]:
        for gap in task.gaps:
            self._maker.on_bad(BadPlace(gap.path, gap.start, 0, gap.end - gap.start, _MISSING))
        for chunk in self._chunks(task):
            yield from self._maker.rows(chunk)
        yield from self._maker.bad_rows()

    def _chunks(self, task: LogTask) -> Iterator[LogChunk]:
        for split in task.splits:
            yield from self._split(split, task.back_bytes)
        for split in task.singles:
            segment = self._of_single(split)
            rows = rows_at(
                segment, split.start, kernels=self._kernels, limit=split.limit, options=_SINGLE
            )
            if len(rows):
                yield LogChunk(segment, rows)
            else:
                # Whether this is the middle of a record or a damaged one only its neighbours tell.
                yield from self._split(split, task.back_bytes)

    def _of_single(self, split: Split) -> Segment:
        """Return the segment of a record; mostly the last one's, of which some bytes may be here already."""
        if self._opened is None or self._opened[0] != split.path:
            self._opened = split.path, open_segment(split.path, split.base_offset)
        return self._opened[1]

    def _split(self, split: Split, back_bytes: int) -> Iterator[LogChunk]:
        segment, on_bad = open_split(split, back_bytes), self._maker.on_bad
        options = ScanOptions()  # Bodies are checked later, those of wanted records only.
        for found in read_windows(
            split, segment, self._kernels, options, on_bad, back_bytes=back_bytes
        ):
            window = None if found.buffer is segment.data else found.buffer
            start = found.log_offset - segment.base_offset
            yield LogChunk(segment, found.rows, window, start)
