"""The data source "orbitmq": a store directory, or the topics of a cluster, as a table of messages.

    spark.read.format("orbitmq").option("topics", "Orders").load("/var/lib/rocketmq/store")

Columns: `schemas`. Options: `options`. A store directory is cut into splits of about `splitBytes`, one task
each (`log_table`); look-ups by key, id, time and queue offset go through queue and index files (`lookup`); a
cluster is read by pull requests (`cluster_table`), a stream in batches (`orbitmq.spark.streams`).

Filters are pushed down where `spark.sql.python.filterPushdown.enabled` is true (Spark's default is false).
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.types import StructType

from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import KEY_SCHEMA, MESSAGE_SCHEMA

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

FORMAT: Final = "orbitmq"


def register(spark: "SparkSession") -> None:
    """Make the format "orbitmq" known to a session."""
    spark.dataSource.register(OrbitmqSource)


class OrbitmqSource(DataSource):
    """Messages of a store or of a cluster. Spark makes it and its readers in processes of their own."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return KEY_SCHEMA if ReadOptions.parse(self.options).row_per_key else MESSAGE_SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        return OrbitmqReader(_table(options, schema), pushdown=options.pushdown)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return stream_reader(ReadOptions.parse(self.options), schema)


class Table(Protocol):
    """What a batch query reads: planned in one process, read in others."""

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Take filters; return those that Spark must do."""

    def partitions(self) -> list[InputPartition]:
        """Return the tasks."""

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of one task."""


def _table(options: ReadOptions, schema: StructType) -> Table:
    if options.namesrv:
        from orbitmq.spark.source.cluster_table import ClusterTable

        return ClusterTable(options, schema)
    from orbitmq.spark.source.log_table import LogTable

    return LogTable(options, schema)


def stream_reader(options: ReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a store directory or of a cluster. Opens nothing: it is also sent to tasks."""
    if options.namesrv:
        from orbitmq.spark.streams.topics import TopicStreamReader

        return TopicStreamReader(options, schema)
    from orbitmq.spark.streams.store import StoreStreamReader

    return StoreStreamReader(options, schema)


class OrbitmqReader(DataSourceReader):
    """Reads a table for one query."""

    def __init__(self, table: Table, *, pushdown: bool) -> None:
        self._table = table
        if pushdown:
            self.pushFilters = _PushFilters(table)  # type: ignore[method-assign]

    def partitions(self) -> list[InputPartition]:
        return self._table.partitions()

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        return self._table.read(partition)


class _PushFilters:
    """The reader's `pushFilters`, which Spark takes for the one that every reader inherits.

    A reader that overrides the method fails where push-down is off, and the process that makes the reader
    is not told whether it is. With this one it works either way: Spark calls it if push-down is on, and
    finds nothing overridden if it is off.
    """

    __func__: Any = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, table: Table) -> None:
        self._table = table

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._table.push(filters)
