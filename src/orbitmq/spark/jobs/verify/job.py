"""`orbitmq spark verify`: every fault of a store, found by tasks side by side.

    report = verify(spark, Path("/data/store"))
    report.findings_frame(spark).filter("severity = 'error'").show()

The findings are those of `orbitmq store check`, in the same words and the same order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel

from orbitmq.files.disk import Disk
from orbitmq.format.kernels import compiled
from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.verify.context import VerifyContext
from orbitmq.spark.jobs.verify.finding_schema import FINDING_SCHEMA
from orbitmq.spark.jobs.verify.index import IndexFileResult, look_at_index_file, used_bytes
from orbitmq.spark.jobs.verify.queues import (
    QueueOrderKey,
    QueueResult,
    QueueRow,
    compare_queues,
    partition_of,
)
from orbitmq.spark.jobs.verify.scan import Scanned, Stretch, StretchRow, scan_split
from orbitmq.spark.jobs.verify.store import StoreVerification
from orbitmq.spark.shared_paths import absolute_settings, require_seen
from orbitmq.spark.source.splits import SPLIT_BYTES, Split
from orbitmq.store.recovery.log_view import open_log
from orbitmq.store.verify.basis import look_at
from orbitmq.store.verify.check import CheckReport
from orbitmq.units import GiB

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.progress import JobProgress, StageCounter

TASKS_PER_CORE: Final = 4
LOG_BYTES_PER_PARTITION: Final = 1 * GiB
"""Of the comparison per queue, to which the scan leaves some megabytes of a gigabyte at most."""


@dataclass(frozen=True, slots=True)
class VerifyReport(CheckReport):
    """The result of a verification: findings and counts, as a check reports them."""

    def findings_frame(self, spark: "SparkSession") -> "DataFrame":
        """Return the findings as a table (`finding_schema`)."""
        rows = [
            (
                finding.severity.value,
                finding.kind.value,
                str(finding.path),
                finding.position,
                finding.log_offset,
                finding.cause,
                finding.advice,
            )
            for finding in self.findings
        ]
        return spark.createDataFrame(rows, FINDING_SCHEMA)


def verify(
    spark: Spark,
    root: Path,
    settings: Mapping[str, str] | None = None,
    progress: "JobProgress | None" = None,
    *,
    split_bytes: int = SPLIT_BYTES,
) -> VerifyReport:
    """Verify a store directory; `settings` are RocketMQ's keys. Changes nothing.

    StoreError: this is no store, or one that cannot be read with these settings.
    """
    with clear_errors("verify"):
        basis = look_at(root.absolute(), absolute_settings(settings))
        tasks = SparkTasks(spark, progress)
        try:
            with open_log(basis.layout, Disk(), missing_allowed=True) as log:
                verification = StoreVerification(
                    basis, log, tasks, compiled(), split_bytes=split_bytes
                )
                report = verification.run()
        finally:
            tasks.close()
    return VerifyReport(**{item.name: getattr(report, item.name) for item in fields(report)})


class SparkTasks:
    """Runs the parts of a verification as Spark jobs; see `verify_store.Tasks`. Not thread-safe.

    What the scan says of queues stays with the executors, on their disks, until queues are compared: only
    then does the driver know which of it counts.
    """

    def __init__(self, spark: Spark, progress: "JobProgress | None") -> None:
        self._context = context_of(spark)
        self._progress = progress
        self._scanned: list[RDD[Scanned]] = []
        self._log_bytes = 0

    def close(self) -> None:
        """Let go of what the executors keep."""
        for scanned in self._scanned:
            scanned.unpersist()
        self._scanned = []

    def look_at_index(
        self, paths: Sequence[Path], context: VerifyContext
    ) -> Sequence[IndexFileResult]:
        layout = context.layout
        total = sum(used_bytes(path, layout) for path in paths)
        count = self._counter("index", total)

        def look(path: Path) -> IndexFileResult:
            require_seen(layout.root)
            result = look_at_index_file(path, context)
            count(used_bytes(path, layout), 0)
            return result

        slices = self._slices(len(paths), total)
        return self._context.parallelize(paths, slices).map(look).collect()

    def scan(
        self, splits: Sequence[Split], context: VerifyContext, *, exact: bool
    ) -> Sequence[Stretch]:
        if not splits:
            return []
        shared = self._context.broadcast(context)
        log_bytes = sum(split.end - split.start for split in splits)
        count = self._counter("rest of the log" if exact else "log", log_bytes)

        def scan(parts: Iterable[Split]) -> Iterator[Scanned]:
            require_seen(shared.value.layout.root)
            for split in parts:
                for item in scan_split(split, shared.value, exact=exact):
                    if isinstance(item, Stretch):
                        count(0, item.records)
                    yield item
                count(split.end - split.start, 0)

        slices = self._slices(len(splits), log_bytes)
        scanned = self._context.parallelize(splits, slices).mapPartitions(scan)
        if context.has_queues:
            scanned = scanned.persist(StorageLevel.DISK_ONLY)
            self._scanned.append(scanned)
            self._log_bytes += log_bytes
        return scanned.mapPartitions(_stretches).collect()

    def compare_queues(
        self,
        accepted: frozenset[int],
        rows: Sequence[QueueRow],
        context: VerifyContext,
        log_end: int,
    ) -> Iterable[QueueResult]:
        shared, starts = self._context.broadcast(context), self._context.broadcast(accepted)
        count = self._counter("queues", 0)

        def counting(items: Iterable[Scanned]) -> Iterator[tuple[QueueOrderKey, QueueRow]]:
            for item in items:
                if isinstance(item, StretchRow) and item.start in starts.value:
                    yield item.row.order, item.row

        def compare(keyed: Iterable[tuple[QueueOrderKey, QueueRow]]) -> Iterator[QueueResult]:
            require_seen(shared.value.layout.root)
            yield compare_queues(_rows(keyed, count), shared.value, log_end)

        cores = self._context.defaultParallelism
        partitions = max(cores, self._log_bytes // LOG_BYTES_PER_PARTITION)
        given = self._context.parallelize(rows, partitions).map(lambda row: (row.order, row))
        read = [scanned.mapPartitions(counting) for scanned in self._scanned]
        return (
            self._context.union([given, *read])
            .repartitionAndSortWithinPartitions(partitions, partition_of)
            .mapPartitions(compare)
            .collect()
        )

    def _slices(self, count: int, total_bytes: int) -> int:
        """Return how many tasks so many pieces make: small ones share a task."""
        wanted = max(TASKS_PER_CORE * self._context.defaultParallelism, total_bytes // SPLIT_BYTES)
        return min(count, wanted)

    def _counter(self, name: str, total_bytes: int) -> "_Count":
        stage = self._progress.stage(name, total_bytes) if self._progress is not None else None
        return _Count(stage)


@dataclass(frozen=True, slots=True)
class _Count:
    """Counts the work of tasks where somebody wants to see it."""

    stage: "StageCounter | None"

    def __call__(self, byte_count: int, record_count: int) -> None:
        if self.stage is not None:
            self.stage.add(byte_count, record_count)


def _stretches(items: Iterable[Scanned]) -> Iterator[Stretch]:
    return (item for item in items if isinstance(item, Stretch))


def _rows(keyed: Iterable[tuple[QueueOrderKey, QueueRow]], count: _Count) -> Iterator[QueueRow]:
    for _, row in keyed:
        count(0, row.unit_count)
        yield row
