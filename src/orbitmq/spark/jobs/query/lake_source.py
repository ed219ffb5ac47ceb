"""Rows of a lake as tasks in Python read them: row groups that hold hits, or files that Spark cannot reach.

Spark's own reader takes a whole file, unless statistics of a column tell which row groups it needs; where
rows are sorted by key, log offsets tell nothing. And it has no way to s3:// without further packages.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from orbitmq.spark.jobs.export.lake_rows import MESSAGES
from orbitmq.spark.jobs.export.lakes.files import open_parquet
from orbitmq.spark.jobs.query.lake_search import TAIL_BYTES, removed
from orbitmq.spark.remote.address import Address, is_remote
from orbitmq.spark.shared_paths import require_seen
from orbitmq.spark.source.metrics import ReadMetrics, noted, task_name
from orbitmq.spark.source.row_columns import ARROW_SCHEMA
from orbitmq.spark.source.schemas import KEY, MESSAGE_SCHEMA

PLAN: Final = "plan"
_COLUMNS: Final = pa.schema([one for one in ARROW_SCHEMA if one.name != KEY])
_OFFSET: Final = "log_offset"


class PartPlan(msgspec.Struct, frozen=True):
    """A file, and which of its row groups are read; None: all."""

    path: str
    groups: list[int] | None = None


class LakePlan(msgspec.Struct, frozen=True):
    """What is read of a lake."""

    root: str  # a directory, or s3://bucket/prefix with how to reach it
    parts: list[PartPlan]
    log_offsets: list[int] | None = None  # of the rows that are wanted; None: all
    metrics: str = ""  # a directory for figures

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


class LakeSource(DataSource):
    """The format `orbitmq-lake`, with an option `plan`."""

    @classmethod
    def name(cls) -> str:
        return "orbitmq-lake"

    def schema(self) -> StructType:
        return MESSAGE_SCHEMA

    def reader(self, schema: StructType) -> "LakeReader":
        options: Mapping[str, str] = self.options
        return LakeReader(msgspec.json.decode(options[PLAN], type=LakePlan))


@dataclass
class _Partition(InputPartition):
    part: PartPlan


class LakeReader(DataSourceReader):
    """Reads the files of a plan, a task for each."""

    def __init__(self, plan: LakePlan) -> None:
        self._plan = plan

    def partitions(self) -> list[InputPartition]:
        return [_Partition(part) for part in self._plan.parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Partition)
        plan, part, found = self._plan, partition.part, ReadMetrics(tasks=1)
        root = Address.of(plan.root) if is_remote(plan.root) else Path(plan.root)
        if isinstance(root, Path):
            require_seen(str(root))
        with noted(found, plan.metrics, task_name()):
            try:
                yield from self._batches(root, part, found)
            except FileNotFoundError as error:
                raise removed(part.path) from error

    def _batches(
        self, root: Path | Address, part: PartPlan, found: ReadMetrics
    ) -> Iterator[pa.RecordBatch]:
        wanted = self._plan.log_offsets
        with open_parquet(root, part.path) as file:
            footer = file.metadata
            found.fetched_bytes += footer.serialized_size + TAIL_BYTES
            groups = range(footer.num_row_groups) if part.groups is None else part.groups
            for number in groups:
                group = footer.row_group(number)
                columns = (group.column(at) for at in range(group.num_columns))
                found.fetched_bytes += sum(
                    one.total_compressed_size
                    for one in columns
                    if one.path_in_schema.partition(".")[0] in MESSAGES.names
                )
                rows = file.read_row_group(number, columns=MESSAGES.names)
                if wanted is not None:
                    rows = rows.filter(pc.is_in(rows[_OFFSET], pa.array(wanted, pa.int64())))
                found.rows += rows.num_rows
                yield from _with_error(rows).to_batches()


def _with_error(rows: pa.Table) -> pa.Table:
    """Return rows as a read of a log gives them: a message that a lake holds is a good one."""
    missing = _COLUMNS.names[-1]
    nothing = pa.nulls(rows.num_rows, _COLUMNS.field(missing).type)
    return rows.append_column(missing, nothing).select(_COLUMNS.names).cast(_COLUMNS)
