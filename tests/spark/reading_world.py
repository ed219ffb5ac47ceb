"""What the tests of reading share: logs made by hand, as files, and their rows without any JVM."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.spark.source.log_table import LogTable
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA

Row = dict[str, Any]


def table(root: Path | str, schema: StructType = MESSAGE_SCHEMA, **options: object) -> LogTable:
    """Return the table of a store with options by name."""
    texts = {name: str(value) for name, value in options.items()}
    return LogTable(ReadOptions.parse({"path": str(root), **texts}), schema)


def rows_of(found: LogTable) -> list[Row]:
    """Return all rows, as Spark's tasks would read them."""
    return [row for batch in batches_of(found) for row in batch.to_pylist()]


def batches_of(found: LogTable) -> Iterator[pa.RecordBatch]:
    """Yield what Spark's tasks would read, whole and valid."""
    for partition in found.partitions():
        for batch in found.read(partition):
            assert batch.num_rows
            batch.validate(full=True)
            yield batch


def read_table(root: Path | str, **options: object) -> pa.Table:
    """Return all rows as Arrow has them: to make Python's values of them takes longer than to read them."""
    return pa.Table.from_batches(batches_of(table(root, **options)))


def read_rows(root: Path | str, **options: object) -> list[Row]:
    return rows_of(table(root, **options))
