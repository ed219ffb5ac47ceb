"""The stream side of the data source: which reader the options ask for."""

from typing import Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType

from orbitmq.spark.source.options import OFFSET_MAX, ReadOptions

UNLIMITED: Final = OFFSET_MAX


def stream_reader(options: ReadOptions, schema: StructType) -> DataSourceStreamReader:
    """Return the reader of a store directory or of a cluster. Opens nothing: it is also sent to tasks."""
    if options.namesrv:
        from orbitmq.spark.streams.topics import TopicStreamReader

        return TopicStreamReader(options, schema)
    from orbitmq.spark.streams.store import StoreStreamReader

    return StoreStreamReader(options, schema)


def default_limit(options: ReadOptions) -> ReadLimit:
    """Return the limit that the options set. Spark knows one kind at a time: see `limits`."""
    if options.max_rows_per_trigger is not None:
        return ReadMaxRows(options.max_rows_per_trigger)
    if options.max_bytes_per_trigger is not None:
        return ReadMaxBytes(options.max_bytes_per_trigger)
    return ReadAllAvailable()


def limits(options: ReadOptions, limit: ReadLimit) -> tuple[int, int]:
    """Return the most rows and the most bytes of a batch for which Spark gives this limit.

    A trigger that wants everything at once (Trigger.Once) says ReadAllAvailable, whatever the options are.
    """
    if isinstance(limit, ReadAllAvailable):
        return UNLIMITED, UNLIMITED
    rows = options.max_rows_per_trigger or UNLIMITED
    bytes_max = options.max_bytes_per_trigger or UNLIMITED
    if isinstance(limit, ReadMaxRows):
        rows = limit.max_rows
    if isinstance(limit, ReadMaxBytes):
        bytes_max = limit.max_bytes
    return rows, bytes_max
