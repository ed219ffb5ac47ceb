"""What the tests of reading share: logs made by hand, as files, and their rows without any JVM."""

from pathlib import Path
from typing import Any

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
    rows: list[Row] = []
    for partition in found.partitions():
        for batch in found.read(partition):
            assert batch.num_rows
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


def read_rows(root: Path | str, **options: object) -> list[Row]:
    return rows_of(table(root, **options))
