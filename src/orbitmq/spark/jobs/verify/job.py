"""`orbitmq spark verify`: every fault of a store, found by tasks side by side.

    report = verify(spark, Path("/data/store"))
    report.findings_frame(spark).filter("severity = 'error'").show()

The findings are those of `orbitmq store check`, in the same words and the same order.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark import StorageLevel
from pyspark.sql.types import LongType, StringType, StructField, StructType

from orbitmq.errors import ConfigError
from orbitmq.files.disk import Disk
from orbitmq.format.kernels import compiled
from orbitmq.log_read import SPLIT_BYTES, Split, open_log
from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.verify.runner import TaskRunner, compare_queues, partition_of
from orbitmq.spark.jobs.verify.scan import Scanned, Stretch, StretchRow, scan_split
from orbitmq.spark.progress import JobProgress, StageCounter
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.shared_paths import absolute_settings, require_seen, without_log_paths
from orbitmq.store.verify.facts import StoreFacts, look_at
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.index_chains import IndexFileResult, check_index_file
from orbitmq.store.verify.index_entries import used_bytes
from orbitmq.store.verify.queues import QueueOrderKey, QueueRow
from orbitmq.store.verify.verification import CheckReport, Verification
from orbitmq.units import GiB

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame, SparkSession

TASKS_PER_CORE: Final = 4
LOG_BYTES_PER_PARTITION: Final = 1 * GiB
"""Of the comparison per queue, to which the scan leaves some megabytes of a gigabyte at most."""

FINDING_SCHEMA: Final = StructType(
    [
        StructField("severity", StringType(), nullable=False),  # error or note
        StructField("kind", StringType(), nullable=False),  # what is damaged (`Kind`)
        StructField("file", StringType(), nullable=False),
        StructField("position", LongType(), nullable=False),  # byte in the file
        StructField("log_offset", LongType(), nullable=True),  # of the record that is meant
        StructField("cause", StringType(), nullable=False),
        StructField("advice", StringType(), nullable=False),  # what to do next
    ]
)


@dataclass(frozen=True, slots=True)
class VerifyReport(CheckReport):
    """The result of a verification: findings and counts, as a check reports them."""

    def findings_frame(self, spark: "SparkSession") -> "DataFrame":
        """Return the findings as a table (FINDING_SCHEMA)."""
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
    root: Path | str,
    settings: Mapping[str, str] | None = None,
    progress: JobProgress | None = None,
    *,
    split_bytes: int = SPLIT_BYTES,
) -> VerifyReport:
    """Verify a store directory; `settings` are RocketMQ's keys. Changes nothing.

    A store at a distance (s3://bucket/prefix) is copied to a temporary directory first.
    StoreError: this is no store, or one that cannot be read with these settings.
    """
    if is_remote(root):
        return _verify_copy(spark, Address.of(root), settings, progress, split_bytes)
    with clear_errors("verify"):
        facts, findings = look_at(Path(root).absolute(), absolute_settings(settings))
        runner = SparkRunner(spark, progress, split_bytes=split_bytes)
        try:
            with open_log(facts.layout, Disk(), missing_allowed=True) as log:
                report = Verification(facts, findings, log, runner).run()
        finally:
            runner.close()
    return VerifyReport(**{item.name: getattr(report, item.name) for item in fields(report)})


def _verify_copy(
    spark: Spark,
    address: Address,
    settings: Mapping[str, str] | None,
    progress: JobProgress | None,
    split_bytes: int,
) -> VerifyReport:
    """Verify a store at a distance: log, queues and index are all needed whole, the queues by many tasks."""
    from orbitmq.spark.remote.copies import copied

    master = str(getattr(context_of(spark), "master", "local"))
    if not master.startswith("local"):
        rule = "a store at s3:// is verified on one machine, on a copy of it: leave --master out"
        raise ConfigError("master", master, rule)
    shown = progress or JobProgress(spark)

    def show(total: int) -> Callable[[int], None]:
        stage = shown.stage("fetch", total)
        return lambda count: stage.add(count, 0)

    with copied(address, show) as names:
        given = without_log_paths(settings)
        report = verify(spark, names.root, given, shown, split_bytes=split_bytes)
    return replace(report, findings=tuple(names.finding(one) for one in report.findings))


class SparkRunner(TaskRunner):
    """Runs the tasks of a verification as Spark jobs. Not thread-safe.

    What the scan says of queues stays with the executors, on their disks, until queues are compared: only
    then does the driver know which of it counts.
    """

    def __init__(self, spark: Spark, progress: JobProgress | None, *, split_bytes: int) -> None:
        super().__init__(compiled(), split_bytes=split_bytes)
        self._context = context_of(spark)
        self._progress = progress or JobProgress(spark)
        self._scanned: list[RDD[Scanned]] = []
        self._log_bytes = 0

    def close(self) -> None:
        """Let go of what the executors keep."""
        for scanned in self._scanned:
            scanned.unpersist()
        self._scanned = []

    def check_index_files(
        self, paths: Sequence[Path], facts: StoreFacts
    ) -> Sequence[IndexFileResult]:
        layout = facts.layout
        total = sum(used_bytes(path, layout) for path in paths)
        stage = self._progress.stage("index", total)

        def check(path: Path) -> IndexFileResult:
            require_seen(layout.root)
            result = check_index_file(path, layout, compiled(), live=facts.live)
            stage.add(used_bytes(path, layout), 0)
            return result

        slices = self._slices(len(paths), total)
        return self._context.parallelize(paths, slices).map(check).collect()

    def scan(self, splits: Sequence[Split], facts: StoreFacts, *, exact: bool) -> Sequence[Stretch]:
        if not splits:
            return []
        shared = self._context.broadcast(facts)
        log_bytes = sum(split.end - split.start for split in splits)
        stage = self._progress.stage("rest of the log" if exact else "log", log_bytes)

        def scan(parts: Iterable[Split]) -> Iterator[Scanned]:
            require_seen(shared.value.layout.root)
            for split in parts:
                for item in scan_split(split, shared.value, exact=exact):
                    if isinstance(item, Stretch):
                        stage.add(0, item.records)
                    yield item
                stage.add(split.end - split.start, 0)

        slices = self._slices(len(splits), log_bytes)
        scanned = self._context.parallelize(splits, slices).mapPartitions(scan)
        if facts.has_queues:
            scanned = scanned.persist(StorageLevel.DISK_ONLY)
            self._scanned.append(scanned)
            self._log_bytes += log_bytes
        return scanned.mapPartitions(_stretches).collect()

    def compare_queues(
        self, accepted: frozenset[int], rows: Sequence[QueueRow], facts: StoreFacts, log_end: int
    ) -> Iterable[Findings]:
        shared, starts = self._context.broadcast(facts), self._context.broadcast(accepted)
        stage = self._progress.stage("queues")

        def counting(items: Iterable[Scanned]) -> Iterator[tuple[QueueOrderKey, QueueRow]]:
            for item in items:
                if isinstance(item, StretchRow) and item.start in starts.value:
                    yield item.row.order, item.row

        def compare(keyed: Iterable[tuple[QueueOrderKey, QueueRow]]) -> Iterator[Findings]:
            require_seen(shared.value.layout.root)
            yield compare_queues(_rows(keyed, stage), shared.value, log_end)

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


def _stretches(items: Iterable[Scanned]) -> Iterator[Stretch]:
    return (item for item in items if isinstance(item, Stretch))


def _rows(
    keyed: Iterable[tuple[QueueOrderKey, QueueRow]], stage: StageCounter
) -> Iterator[QueueRow]:
    for _, row in keyed:
        stage.add(0, row.unit_count)
        yield row
