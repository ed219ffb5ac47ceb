"""Batches: the columns asked for, bounded sizes, bodies unpacked, broken bodies told."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import lz4.frame
import numpy as np
import pytest
import zstandard
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType

from kernel_cases import make_log
from orbitmq.errors import ConfigError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BadPlace, Segment
from orbitmq.spark.source import batches
from orbitmq.spark.source.batches import (
    BATCH_BYTES,
    INFLATED_BYTES_MAX,
    Columns,
    LogChunk,
    RowMaker,
    error_batch,
)
from orbitmq.spark.source.in_place import AT
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.row_columns import pieces
from orbitmq.spark.source.schemas import MESSAGE_COLUMNS, MESSAGE_SCHEMA
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import MiB

PACKED = {
    0x001: zlib.compress,
    0x101: lz4.frame.compress,
    0x201: zstandard.ZstdCompressor().compress,
    0x301: zlib.compress,
}


def _options(**given: str) -> ReadOptions:
    return ReadOptions.parse({"path": "/store", **given})


def _chunk(*messages: dict[str, Any]) -> LogChunk:
    log = make_log(list(messages))
    rows = compiled().scan(log, 0, len(log), 0, ScanOptions()).rows
    return LogChunk(Segment(0, Path("/store/commitlog/0"), log), rows)


def _batches(
    chunk: LogChunk, options: ReadOptions, schema: StructType = MESSAGE_SCHEMA
) -> tuple[list[Any], list[BadPlace]]:
    bad: list[BadPlace] = []
    columns, selection = Columns.of(schema, options), RowSelection(options)
    maker = RowMaker(columns, selection, compiled(), ReadMetrics())
    maker.on_bad = bad.append  # type: ignore[method-assign]
    return list(maker.batches(chunk)), bad


def _bodies(found: list[Any]) -> list[bytes | None]:
    return [body for batch in found for body in batch.column("body").to_pylist()]


@pytest.mark.feature("P1")
@pytest.mark.parametrize("sys_flag", PACKED, ids=["zlib, as old", "lz4", "zstd", "zlib"])
def test_bodies_are_unpacked_unless_told_otherwise(sys_flag: int) -> None:
    stored = PACKED[sys_flag](b"text " * 100)
    chunk = _chunk({"body": b"plain"}, {"body": stored, "sys_flag": sys_flag}, {"body": b""})

    unpacked, bad = _batches(chunk, _options())
    as_stored, _ = _batches(chunk, _options(decompress="false"))

    assert _bodies(unpacked) == [b"plain", b"text " * 100, b""]
    assert _bodies(as_stored) == [b"plain", stored, b""]
    assert not bad


@pytest.mark.parametrize("length", [100, 0])
def test_bodies_of_a_segment_that_is_no_file_are_sent(length: int) -> None:
    chunk = _chunk({"body": b"first"}, {"body": b"second"})
    columns = Columns.of(MESSAGE_SCHEMA, _options(), in_place=True)

    def made(segment: Segment) -> Any:
        maker = RowMaker(columns, RowSelection(_options()), compiled(), ReadMetrics())
        (batch,) = maker.batches(LogChunk(segment, chunk.rows))
        return batch

    left = made(chunk.segment)
    sent = made(replace(chunk.segment, length=length, missing=length == 0))

    apart = int(np.diff(chunk.rows["body_at"])[0])
    assert (left.column(AT).to_pylist(), _bodies([left])) == ([0, apart], [b"", b""])
    assert (sent.column(AT).to_pylist(), _bodies([sent])) == ([-1, -1], [b"first", b"second"])


def test_a_body_that_cannot_be_unpacked_is_a_bad_record() -> None:
    broken = {"body": b"no zlib", "sys_flag": 1}
    chunk = _chunk({"body": b"a"}, broken, {"body": zlib.compress(b"c"), "sys_flag": 1}, broken)

    found, bad = _batches(chunk, _options())

    assert _bodies(found) == [b"a", b"c"]
    assert [place.log_offset for place in bad] == chunk.rows["log_offset"][[1, 3]].tolist()
    assert "cannot be unpacked" in bad[0].reason


def test_a_body_that_unpacks_to_too_much_is_a_bad_record() -> None:
    bomb = zlib.compress(b"\0" * (INFLATED_BYTES_MAX + 1))

    found, bad = _batches(_chunk({"body": bomb, "sys_flag": 1}), _options())

    assert not found
    assert "more than" in bad[0].reason


def test_unpacked_bodies_fill_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 1000)
    packed = {"body": zlib.compress(b"\0" * 400), "sys_flag": 1}
    broken = {"body": b"?", "sys_flag": 1}
    chunk = _chunk(
        {"body": b"first"}, packed, broken, packed, packed, {"body": b"x"}, packed, broken
    )

    found, bad = _batches(chunk, _options())

    zeros = b"\0" * 400
    assert _bodies(found) == [b"first", zeros, zeros, zeros, b"x", zeros]
    assert [batch.num_rows for batch in found] == [3, 3]
    assert len(bad) == 2


def test_a_wrong_checksum_is_told_where_bodies_are_read() -> None:
    chunk = _chunk({"body": b"good"}, {"body": b"damaged"}, {"body": b"good"})
    chunk.segment.data[int(chunk.rows["body_at"][1])] ^= 1
    topics = StructType([StructField("topic", StringType())])

    found, bad = _batches(chunk, _options())
    unchecked, _ = _batches(chunk, _options(checkCrc="false"))
    without_body, none = _batches(chunk, _options(), topics)
    _, told = _batches(chunk, _options(checkCrc="true"), topics)

    assert _bodies(found) == [b"good", b"good"]
    assert bad == told
    assert [place.log_offset for place in bad] == [int(chunk.rows["log_offset"][1])]
    assert len(_bodies(unchecked)) == without_body[0].num_rows == 3
    assert not none


@pytest.mark.feature("P3.options")
def test_without_bodies_the_column_is_null() -> None:
    chunk = _chunk({"body": b"damaged"})
    chunk.segment.data[int(chunk.rows["body_at"][0])] ^= 1

    found, bad = _batches(chunk, _options(includeBody="false"))

    assert _bodies(found) == [None]
    assert found[0].schema.equals(Columns.of(MESSAGE_SCHEMA, _options()).arrow_schema)
    assert not bad


def test_large_bodies_make_small_batches() -> None:
    chunk = _chunk(*[{"body": bytes([number]) * 3 * MiB} for number in range(7)])

    found, bad = _batches(chunk, _options())

    assert [batch.num_rows for batch in found] == [2, 2, 2, 1]
    assert [body[0] for body in _bodies(found) if body] == list(range(7))
    assert all(batch.nbytes < BATCH_BYTES + MiB for batch in found)
    assert not bad


def test_pieces_are_as_large_as_the_limit_allows() -> None:
    rows = np.arange(7)
    weights = np.array([5, 5, 5, 20, 1, 1, 9])

    found = [piece.tolist() for piece in pieces(rows, weights, limit=10)]

    assert found == [[0, 1], [2], [3], [4, 5], [6]]
    assert list(pieces(rows[:0], weights[:0], limit=10)) == []


@pytest.mark.feature("P1")
def test_a_narrow_schema_makes_only_its_columns_in_its_order() -> None:
    schema = StructType([StructField("tags", StringType()), StructField("queue_id", IntegerType())])

    found, _ = _batches(_chunk({"queue_id": 7}), _options(), schema)

    assert found[0].to_pylist() == [{"tags": None, "queue_id": 7}]


@pytest.mark.parametrize(
    ("field", "rule"),
    [
        (StructField("tag", StringType()), "there are topic, queue_id"),
        (StructField("topic", BinaryType()), "the column has the type string"),
        (StructField("topic", StringType(), nullable=False), "leave NOT NULL out"),
    ],
)
def test_a_schema_that_the_table_does_not_have_is_refused(field: StructField, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        Columns.of(StructType([field]), _options())


def test_a_schema_without_columns_is_refused() -> None:
    with pytest.raises(ConfigError, match="no column"):
        Columns.of(StructType([]), _options())


def test_a_bad_place_is_a_row_of_nulls_but_three() -> None:
    columns = Columns.of(MESSAGE_SCHEMA, _options())

    found = error_batch([BadPlace("/f", 100, 36, 3_000_000_000, "torn")], columns)

    found.validate(full=True)
    (row,) = found.to_pylist()
    told = {name: value for name, value in row.items() if value is not None}
    assert told == {
        "log_offset": 100,
        "size": 2**31 - 1,
        "error": "/f, position 36: torn (3000000000 bytes)",
    }
    assert list(row) == list(MESSAGE_COLUMNS)
