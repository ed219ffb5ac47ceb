"""A stream over a store directory: the commit log is tailed, with or without a broker that writes it.

An offset is {"log": n}: the records that start before log offset n were read. The offset of a batch that
does not begin where the one before it ended has also {"from": m}, where it begins: the first batch (Spark
asks for the initial offset again when it repeats that batch, and "latest" is elsewhere then), and one
before which segments were deleted.
"""

import errno
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError, PipelineError, StoreIOError
from orbitmq.log_read import SPLIT_BYTES, LogPlan, LogTail, Split, cut, missing
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.streams.offsets import foreign_checkpoint
from orbitmq.spark.streams.stream_options import (
    UNLIMITED,
    Start,
    StartKind,
    default_limit,
    limits,
    pass_over,
)

if TYPE_CHECKING:
    import pyarrow as pa

NOT_STARTED: Final = -1
SKIP_STEP: Final = "Set the option badRecords to skip to go on behind it, or start the query anew."


class StoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a growing log. One lives in the process beside the driver, a copy of it in each task."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._start = Start.parse(options.starting_offsets)
        if self._start.kind is StartKind.QUEUES:
            rule = (
                "queue offsets are for a cluster; a store starts at earliest, latest or a timestamp"
            )
            raise ConfigError("startingOffsets", options.starting_offsets, rule)
        self._target: int | None = None

    # --- beside the driver ---

    @cached_property
    def _tail(self) -> LogTail:
        return LogTail(self._options.store_path, self._options.settings)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"log": NOT_STARTED}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return default_limit(self._options)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._tail.look().end

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"log": self._tail.look().end}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        log_end = self._tail.look().end
        end = log_end if self._target is None else self._target
        before = _log_offset(start)
        begin = self._first_offset(end) if before == NOT_STARTED else before
        if begin > log_end:
            raise self._shorter(begin, log_end)
        if begin >= end and before != NOT_STARTED:
            return start
        begin = max(begin, self._oldest_kept(begin, end))
        rows_max, bytes_max = limits(self._options, limit)
        if (rows_max, bytes_max) != (UNLIMITED, UNLIMITED):
            end = self._tail.limited(begin, end, rows_max, bytes_max)
        return {"log": end} if begin == before else {"log": max(begin, end), "from": begin}

    def partitions(
        self, start: Mapping[str, int], end: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        first, last = max(_log_offset(start), end.get("from", NOT_STARTED)), _log_offset(end)
        if first == NOT_STARTED:
            raise foreign_checkpoint(dict(end))
        plan = self._tail.relist()
        if last > plan.end:
            raise self._shorter(last, plan.end)
        self._require_there(plan, first, last)
        split_bytes = self._options.split_bytes or SPLIT_BYTES
        return [InputPartition(split) for split in cut(plan, split_bytes, first, last)]

    def _first_offset(self, end: int) -> int:
        match self._start.kind:
            case StartKind.LATEST:
                return end
            case StartKind.TIME:
                return min(self._tail.offset_at(self._start.time_ms), end)
            case _:
                return self._tail.relist().start

    def _oldest_kept(self, begin: int, end: int) -> int:
        """Return where the log starts, if it may be passed over that it starts behind `begin`."""
        plan = self._tail.relist()
        if plan.start > begin:
            self._require_there(plan, begin, min(plan.start, end))
        return plan.start

    def _require_there(self, plan: LogPlan, first: int, last: int) -> None:
        """Look whether all of this is there."""
        for gap in missing(plan, first, last):
            where = f"{plan.layout.commit_log}: the log from {gap.start} to {gap.end} is not there"
            pass_over(
                self._options, f"{where}: it was deleted before the stream read it", SKIP_STEP
            )

    def _shorter(self, offset: int, log_end: int) -> PipelineError:
        return PipelineError(
            f"{self._options.path}: the log ends at {log_end}, but the stream has read it up to"
            f" {offset}: it is another store, or it lost its end in a crash",
            "Give the store that the checkpoint belongs to, or start the query with a new one.",
        )

    # --- in a task ---

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        from orbitmq.spark.source.log_table import LogTable, LogTask

        split: Split = partition.value
        try:
            yield from LogTable(self._options, self._schema).read(LogTask(splits=(split,)))
        except StoreIOError as failure:
            if failure.errno != errno.ENOENT:
                raise
            what = f"{split.path}: the segment was deleted before the stream read it"
            pass_over(self._options, what, SKIP_STEP, failure)


def _log_offset(offset: Mapping[str, Any]) -> int:
    value = offset.get("log")
    if isinstance(value, bool) or not isinstance(value, int) or value < NOT_STARTED:
        raise foreign_checkpoint(dict(offset))
    return value
