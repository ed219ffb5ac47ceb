"""What the tests of reading share: logs made by hand, as files, and their rows without any JVM."""

from pathlib import Path
from typing import Any

from pyspark.sql.types import StructType

from log_builder import LogBuilder, Placed
from orbitmq.format.record import BLANK_BYTES, BODY_AT, encode_record
from orbitmq.format.segment_name import segment_name
from orbitmq.message import AppendRequest, Host
from orbitmq.spark.source.log_table import LogTable
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA

HOST = Host(b"\x7f\x00\x00\x01", 10911)
Row = dict[str, Any]


def write_log(builder: LogBuilder, root: Path) -> Path:
    """Write a log that was built in memory as a store directory; return its root."""
    directory = root / "commitlog"
    directory.mkdir(parents=True)
    for number, segment in enumerate(builder.segments):
        name = segment_name(builder.base_offset + number * builder.segment_bytes)
        (directory / name).write_bytes(bytes(segment))
    return root


def fake_record(log_offset: int, body: bytes = b"fake", topic: str = "Fake") -> bytes:
    """Return a whole record that names this place, to be hidden in a body."""
    request = AppendRequest(topic, 0, body)
    return encode_record(
        request, log_offset=log_offset, queue_offset=0, store_ms=1, store_host=HOST
    )


def append_with_fakes(builder: LogBuilder, count: int = 2, between: bytes = b"~") -> Placed:
    """Append a record whose body is full of records that name their own places."""
    filled = between.join([fake_record(0)] * count)
    size = len(builder._encode("T", 0, filled, 0, 0, 0, {}))
    start = builder.written
    if builder.position + size + BLANK_BYTES > builder.segment_bytes:
        start = builder.base_offset + len(builder.segments) * builder.segment_bytes
    step = len(fake_record(0)) + len(between)
    fakes = [fake_record(start + BODY_AT + number * step) for number in range(count)]
    placed = builder.append(body=between.join(fakes))
    assert (placed.start, len(placed.raw)) == (start, size)
    return placed


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
