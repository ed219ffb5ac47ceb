"""Record batches of the message table: exactly the schema that Spark asked for, bounded in bytes.

A batch holds about `BATCH_BYTES` of bodies and as much of everything else at most, so that neither a worker
nor the JVM needs more memory for large messages. Half messages and rollbacks are rows like all others
(`sys_flag` tells); an inner batch is one row, with the queue offset of its first message; fillers, which
stand where a damaged record was, are no rows (`RowSelection`).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError, FormatError
from orbitmq.format.columns import Ints, Rows
from orbitmq.format.compression import decompress
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import BadPlace, OnBad, Segment
from orbitmq.message import SysFlag
from orbitmq.spark.source.bad_places import BadPlaces, describe
from orbitmq.spark.source.key_rows import key_rows
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.pushdown import Predicate
from orbitmq.spark.source.row_columns import (
    ARROW_SCHEMA,
    Gathered,
    RowColumns,
    arrow_schema,
    number_array,
    pieces,
)
from orbitmq.spark.source.schemas import ALL_COLUMNS, KEY, MESSAGE_COLUMNS
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import MiB

BATCH_BYTES: Final = 8 * MiB
INFLATED_BYTES_MAX: Final = 64 * MiB
"""A compressed body that is longer than this counts as a bad record: a few KiB can unpack to any length."""
_SIZE_MAX: Final = 2**31 - 1
_COMPRESSED: Final = SysFlag.COMPRESSED.value


class LogChunk(NamedTuple):
    """Rows of consecutive good records; positions count in `segment.data`."""

    segment: Segment
    rows: Rows


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a read makes. Immutable; travels to tasks."""

    arrow_schema: pa.Schema
    include_body: bool
    row_per_key: bool
    check_crc: bool | None  # None: where bodies are read

    @classmethod
    def of(cls, schema: StructType, options: ReadOptions) -> "Columns":
        """Return the columns of a schema. ConfigError: the message table has no such column."""
        if not schema.fields:
            raise ConfigError("schema", "", "names no column")
        for field in schema.fields:
            _require_column(
                field.name, field.dataType.simpleString(), field.nullable, options.row_per_key
            )
        given = options.include_body, options.row_per_key, options.check_crc
        return cls(arrow_schema(schema), *given)

    @property
    def names(self) -> list[str]:
        names: list[str] = self.arrow_schema.names
        return names

    @property
    def message_schema(self) -> pa.Schema:
        """The columns that are made of messages, before there is a row for each key."""
        if not self.row_per_key:
            return self.arrow_schema
        fields = {field.name: field for field in self.arrow_schema if field.name != KEY}
        return pa.schema({"keys": ARROW_SCHEMA.field("keys"), **fields}.values())

    @property
    def reads_body(self) -> bool:
        return self.include_body and "body" in self.names

    @property
    def checks_body(self) -> bool:
        return self.reads_body if self.check_crc is None else self.check_crc


def _require_column(name: str, kind: str, nullable: bool, row_per_key: bool) -> None:
    if name == KEY and not row_per_key:
        raise ConfigError("schema", name, "set the option rowPerKey to true for this column")
    if name not in ALL_COLUMNS:
        rule = f"no such column; there are {', '.join(MESSAGE_COLUMNS)}"
        raise ConfigError("schema", name, rule)
    expected = ALL_COLUMNS[name].simpleString()
    if kind != expected:
        raise ConfigError("schema", f"{name} {kind}", f"the column has the type {expected}")
    if not nullable:
        rule = "may be null (badRecords=keep); leave NOT NULL out"
        raise ConfigError("schema", f"{name} {kind} NOT NULL", rule)


class RowMaker:
    """Makes rows of chunks of records: those that are wanted, and bad places. Not thread-safe."""

    def __init__(
        self, columns: Columns, selection: RowSelection, kernels: Kernels, metrics: ReadMetrics
    ) -> None:
        self._columns, self._selection, self._kernels = columns, selection, kernels
        self._metrics = metrics
        self.bad = BadPlaces(selection.options.bad_records)

    def rows(self, chunk: LogChunk) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of a chunk, and what was bad up to its end."""
        columns, selection = self._columns, self._selection
        for rows in pieces(chunk.rows, other_bytes(chunk.rows), BATCH_BYTES):
            wanted = selection.select(self._kernels, chunk.segment.data, rows)
            if columns.checks_body or columns.reads_body:
                self._metrics.log_bytes += int(wanted["body_length"].sum(dtype="i8"))
            yield from iter_batches(
                LogChunk(chunk.segment, wanted),
                columns,
                selection.options,
                self._kernels,
                self.on_bad,
                selection.key_predicates,
            )
        yield from self.bad_rows()

    def on_bad(self, place: BadPlace) -> None:
        """Take note of a bad place, if it concerns the read. CorruptRecordError: the read shall fail."""
        if self._selection.covers(place.log_offset):
            self.bad(place)

    def bad_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the bad places that are to be shown, since the last call."""
        shows = self._selection.shows_bad_place
        places = [place for place in self.bad.take() if shows(place.log_offset, place.length)]
        if places:
            yield error_batch(places, self._columns)


def iter_batches(
    chunk: LogChunk,
    columns: Columns,
    options: ReadOptions,
    kernels: Kernels,
    on_bad: OnBad,
    key_predicates: Sequence[Predicate] = (),
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a chunk as batches of bounded size; `on_bad` is told of bodies that are broken.

    Broken is a body that cannot be unpacked and, if checksums are to be compared, one with a wrong one.
    """
    for batch in _message_batches(chunk, columns, options, kernels, on_bad):
        if columns.row_per_key:
            yield from key_rows(batch, columns.arrow_schema, key_predicates)
        else:
            yield batch


def _message_batches(
    chunk: LogChunk, columns: Columns, options: ReadOptions, kernels: Kernels, on_bad: OnBad
) -> Iterator[pa.RecordBatch]:
    for rows in pieces(chunk.rows, _row_bytes(chunk.rows, columns), BATCH_BYTES):
        piece = LogChunk(chunk.segment, rows)
        if columns.checks_body:
            piece = _with_right_bodies(piece, kernels, on_bad)
        if columns.reads_body and options.decompress:
            yield from _unpacked_batches(piece, columns, kernels, on_bad)
        elif len(piece.rows):
            yield _batch(RowColumns(kernels, piece.segment.data, piece.rows), columns)


def other_bytes(rows: Rows) -> Ints:
    """Return the bytes of each record without its body."""
    weights: Ints = rows["size"].astype(np.int64) - rows["body_length"]
    return weights


def error_batch(places: Sequence[BadPlace], columns: Columns) -> pa.RecordBatch:
    """Return a row for each bad place: where it starts, its length and what is wrong."""
    offsets = np.array([place.log_offset for place in places], dtype=np.int64)
    sizes = np.array([min(place.length, _SIZE_MAX) for place in places], dtype=np.int64)
    known: dict[str, Callable[[], pa.Array]] = {
        "log_offset": lambda: number_array("log_offset", offsets),
        "size": lambda: number_array("size", sizes),
        "error": lambda: pa.array([describe(place) for place in places], type=pa.string()),
    }
    arrays = [
        known[field.name]() if field.name in known else pa.nulls(len(places), field.type)
        for field in columns.arrow_schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow_schema)


def bad_record(segment: Segment, row: np.void, reason: str) -> BadPlace:
    """Return the place of a record whose lengths are sound but whose body is not."""
    log_offset, size = int(row["log_offset"]), int(row["size"])
    position = log_offset - segment.base_offset
    return BadPlace(segment.path, log_offset, position, size, reason)


def _row_bytes(rows: Rows, columns: Columns) -> Ints:
    sizes = rows["size"].astype(np.int64)
    return sizes if columns.reads_body else sizes - rows["body_length"]


def _with_right_bodies(chunk: LogChunk, kernels: Kernels, on_bad: OnBad) -> LogChunk:
    matches = kernels.bodies_match(chunk.segment.data, chunk.rows)
    for row in chunk.rows[~matches]:
        on_bad(bad_record(chunk.segment, row, "the body does not match its checksum"))
    return chunk if matches.all() else LogChunk(chunk.segment, chunk.rows[matches])


def _compressed(rows: Rows) -> list[int]:
    found: list[int] = np.flatnonzero(rows["sys_flag"] & _COMPRESSED).tolist()
    return found


def _inflated(chunk: LogChunk, index: int) -> bytes:
    row = chunk.rows[index]
    at, length = int(row["body_at"]), int(row["body_length"])
    stored = chunk.segment.data[at : at + length].tobytes()
    return decompress(stored, int(row["sys_flag"]), INFLATED_BYTES_MAX)


def _unpacked_batches(
    chunk: LogChunk, columns: Columns, kernels: Kernels, on_bad: OnBad
) -> Iterator[pa.RecordBatch]:
    """Yield batches whose bodies are unpacked; a batch ends where they become too many bytes."""
    for rows, bodies in _unpacked_pieces(chunk, on_bad):
        if len(rows):
            yield _batch(RowColumns(kernels, chunk.segment.data, rows), columns, bodies)


def _unpacked_pieces(chunk: LogChunk, on_bad: OnBad) -> Iterator[tuple[Rows, dict[int, bytes]]]:
    """Yield good rows, and by their index the bodies that had to be unpacked."""
    good = np.ones(len(chunk.rows), dtype=np.bool_)
    bodies: dict[int, bytes] = {}
    start = total = 0
    for index in _compressed(chunk.rows):
        try:
            body = _inflated(chunk, index)
        except FormatError as error:
            good[index] = False
            on_bad(bad_record(chunk.segment, chunk.rows[index], error.reason))
            continue
        if bodies and total + len(body) > BATCH_BYTES:
            yield _without_bad(chunk.rows[start:index], good[start:index], bodies)
            bodies, start, total = {}, index, 0
        bodies[index - start] = body
        total += len(body)
    yield _without_bad(chunk.rows[start:], good[start:], bodies)


def _without_bad(
    rows: Rows, good: npt.NDArray[np.bool_], bodies: dict[int, bytes]
) -> tuple[Rows, dict[int, bytes]]:
    if good.all():
        return rows, bodies
    places = np.cumsum(good) - 1
    return rows[good], {int(places[index]): body for index, body in bodies.items()}


def _batch(
    made: RowColumns, columns: Columns, bodies: dict[int, bytes] | None = None
) -> pa.RecordBatch:
    """Return all columns; `bodies` replaces those of some rows."""
    arrays = []
    schema = columns.message_schema
    for name in schema.names:
        if name == "body" and not columns.include_body:
            arrays.append(pa.nulls(len(made.rows), pa.binary()))
        elif name == "body" and bodies:
            arrays.append(_replaced_bodies(made, bodies))
        else:
            arrays.append(made.column(name))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _replaced_bodies(made: RowColumns, bodies: dict[int, bytes]) -> pa.Array:
    rows = made.rows
    lengths, stored = rows["body_length"].astype(np.int64), np.ones(len(rows), dtype=np.bool_)
    for index, body in bodies.items():
        lengths[index], stored[index] = len(body), False
    ends = np.concatenate(([0], np.cumsum(lengths)))
    data = np.empty(int(ends[-1]), dtype=np.uint8)
    at = rows["body_at"].astype(np.int64)
    made.kernels.gather(made.buffer, at[stored], lengths[stored], data, ends[:-1][stored])
    for index, body in bodies.items():
        data[ends[index] : ends[index + 1]] = np.frombuffer(body, dtype=np.uint8)
    return Gathered(ends, data).array(pa.binary())
