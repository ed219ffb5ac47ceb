"""The data source "orbitmq": a store directory, or the topics of a cluster, as a table of messages.

    spark.read.format("orbitmq").option("topics", "Orders").load("/var/lib/rocketmq/store")

Columns: `schemas`. Options: `options`. A store directory is cut into splits of about `splitBytes`, one task
each (`log_table`); look-ups by key, id, time and queue offset go through queue and index files (`lookup`); a
cluster is read by pull requests (`cluster_table`), a stream in batches (`orbitmq.spark.streams`). Rows are
sent to topics by `orbitmq.spark.sink`.

Filters are pushed down where `spark.sql.python.filterPushdown.enabled` is true (Spark's default is false).
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError
from orbitmq.spark.remote.address import is_remote
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import table_schema


class OrbitmqSource(DataSource):
    """Messages of a store or of a cluster. Spark makes it and its readers in processes of their own.

    A reader opens nothing when it is made: it is also sent to tasks.
    """

    @classmethod
    def name(cls) -> str:
        return "orbitmq"

    def schema(self) -> StructType:
        options = ReadOptions.parse(self.options)
        return table_schema(options.row_per_key, options.body_as)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ReadOptions.parse(self.options)
        if options.namesrv:
            from orbitmq.spark.source.cluster_table import ClusterTable

            return ClusterTable(options, schema)
        from orbitmq.spark.source.log_table import LogTable

        return LogTable(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = ReadOptions.parse(self.options)
        if is_remote(options.path):
            rule = "a stream follows a directory or a cluster; what lies at s3:// does not grow"
            raise ConfigError("path", options.path, rule)
        if options.namesrv:
            from orbitmq.spark.streams.topics import TopicStreamReader

            return TopicStreamReader(options, schema)
        from orbitmq.spark.streams.store import StoreStreamReader

        return StoreStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from orbitmq.spark.sink.options import WriteOptions
        from orbitmq.spark.sink.writers import BatchSink

        options = WriteOptions.parse(self.options, stream=False)
        return BatchSink(options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from orbitmq.spark.sink.options import WriteOptions
        from orbitmq.spark.sink.writers import StreamSink

        options = WriteOptions.parse(self.options, stream=True)
        return StreamSink(options, schema, overwrite=overwrite)
