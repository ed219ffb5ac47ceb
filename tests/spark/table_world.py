"""The message table without a Spark session: readers as Spark makes them, their tasks run one by one."""

import pickle
from typing import Any

from pyspark.sql.datasource import InputPartition

from orbitmq.spark.source.pushdown import TableReader
from orbitmq.spark.source.source import OrbitmqSource

Row = dict[str, Any]


def table_reader(**options: object) -> TableReader:
    """Return the reader of a query, as it is after its way to another process."""
    given = {name: str(value) for name, value in options.items()}
    source = OrbitmqSource(options=given)
    reader: TableReader = travelled(source.reader(source.schema()))
    return reader


def travelled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


def read_tasks(reader: TableReader, tasks: list[InputPartition]) -> list[Row]:
    """Return the rows of these tasks, in log order of each broker."""
    rows = [
        row for task in tasks for batch in reader.read(travelled(task)) for row in batch.to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["store_host"], row["log_offset"]))


def table_rows(**options: object) -> list[Row]:
    """Return all rows of the table with these options."""
    reader = table_reader(**options)
    return read_tasks(reader, reader.partitions())
