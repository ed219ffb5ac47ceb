"""How much a batch of a stream may hold."""

from typing import Final

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

from orbitmq.spark.source.options import OFFSET_MAX, ReadOptions

UNLIMITED: Final = OFFSET_MAX


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
