"""Record batches of the message table: exactly the schema that Spark asked for, bounded in bytes.

A batch holds about `BATCH_BYTES` of bodies and as much of everything else at most, so that neither a worker
nor the JVM needs more memory for large messages. Half messages and rollbacks are rows like all others
(`sys_flag` tells); an inner batch is one row, with the queue offset of its first message; fillers, which
stand where a damaged record was, are no rows (`RowSelection`).
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.types import StructType

from orbitmq.errors import ConfigError, CorruptRecordError, FormatError
from orbitmq.format.columns import Bytes, Ints, Rows
from orbitmq.format.compression import decompress
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import BadPlace, OnBad, Segment
from orbitmq.message import SysFlag
from orbitmq.spark.source.body_text import as_json, as_text, as_variant
from orbitmq.spark.source.in_place import FIELDS, Stretch, all_sent, in_stretch, marked, stretch_of
from orbitmq.spark.source.key_rows import key_rows
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import BadRecords, BodyAs, ReadOptions
from orbitmq.spark.source.row_columns import (
    ARROW_SCHEMA,
    Gathered,
    RowColumns,
    arrow_schema,
    number_array,
    pieces,
)
from orbitmq.spark.source.schemas import BODY, ERROR, KEY, MESSAGE_COLUMNS, table_columns
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import MiB

logger = logging.getLogger(__name__)

BATCH_BYTES: Final = 8 * MiB
INFLATED_BYTES_MAX: Final = 64 * MiB
"""A compressed body that is longer than this counts as a bad record: a few KiB can unpack to any length."""
NEXT_STEP: Final = (
    "Read with badRecords=skip or badRecords=keep to go on without it;"
    " `orbitmq store check` lists everything that is wrong with the store."
)
WRONG_CHECKSUM: Final = "the body does not match its checksum"
_LOGGED_MAX: Final = 5  # bad places per task: a broken disk has millions
_SIZE_MAX: Final = 2**31 - 1
_COMPRESSED: Final = SysFlag.COMPRESSED.value

_Unpacked = tuple[Rows, dict[int, bytes]]
"""Rows, and by their index the bodies that had to be unpacked."""


class LogChunk(NamedTuple):
    """Rows of consecutive good records of a segment.

    Positions count in `segment.data`, or in a window on it that begins at position `start` and is soon
    written over.
    """

    segment: Segment
    rows: Rows
    window: Bytes | None = None
    start: int = 0

    @property
    def data(self) -> Bytes:
        return self.segment.data if self.window is None else self.window


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns that a read makes. Immutable; travels to tasks."""

    arrow_schema: pa.Schema
    options: ReadOptions
    in_place: bool = False  # bodies may stay in the file, for a reader that can map it

    @classmethod
    def of(cls, schema: StructType, options: ReadOptions, *, in_place: bool = False) -> "Columns":
        """Return the columns of a schema. ConfigError: the message table has no such column.

        With `in_place` bodies as they are stored stay in the file, where there are any.
        """
        if not schema.fields:
            raise ConfigError("schema", "", "names no column")
        for field in schema.fields:
            _require_column(field.name, field.dataType.simpleString(), field.nullable, options)
        columns = cls(arrow_schema(schema), options)
        if not in_place or not columns.can_leave_bodies:
            return columns
        return cls(pa.schema([*columns.arrow_schema, *FIELDS]), options, in_place=True)

    @property
    def names(self) -> list[str]:
        names: list[str] = self.arrow_schema.names
        return names

    @property
    def message_schema(self) -> pa.Schema:
        """The columns that are made of messages, before there is a row for each key."""
        if not self.options.row_per_key:
            return self.arrow_schema
        fields = {field.name: field for field in self.arrow_schema if field.name != KEY}
        return pa.schema({"keys": ARROW_SCHEMA.field("keys"), **fields}.values())

    @property
    def reads_body(self) -> bool:
        # What `error` says of a body may not depend on what else a query selects.
        needs = {BODY, ERROR} if self.options.reads_text else {BODY}
        return self.options.include_body and not needs.isdisjoint(self.names)

    @property
    def can_leave_bodies(self) -> bool:
        stored = self.options.body_as is BodyAs.BINARY and not self.options.row_per_key
        return stored and self.options.include_body and BODY in self.names

    @property
    def checks_body(self) -> bool:
        given = self.options.check_crc
        return self.reads_body if given is None else given


def _require_column(name: str, kind: str, nullable: bool, options: ReadOptions) -> None:
    if name == KEY and not options.row_per_key:
        raise ConfigError("schema", name, "set the option rowPerKey to true for this column")
    known = table_columns(options.row_per_key, options.body_as)
    if name not in known:
        rule = f"no such column; there are {', '.join(MESSAGE_COLUMNS)}"
        raise ConfigError("schema", name, rule)
    expected = known[name].simpleString()
    if kind != expected:
        hint = "; the option bodyAs can change it" if name == BODY else ""
        raise ConfigError("schema", f"{name} {kind}", f"the column has the type {expected}{hint}")
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
        self._kept: list[BadPlace] = []

    def rows(self, chunk: LogChunk) -> Iterator[pa.RecordBatch]:
        """Yield the wanted records of a chunk, and what was bad up to its end."""
        columns, selection = self._columns, self._selection
        for rows in pieces(chunk.rows, other_bytes(chunk.rows), BATCH_BYTES):
            wanted = selection.select(self._kernels, chunk.data, rows)
            if columns.checks_body or columns.reads_body:
                self._metrics.log_bytes += int(wanted["body_length"].sum(dtype="i8"))
            yield from self.batches(chunk._replace(rows=wanted))
        yield from self.bad_rows()

    def batches(self, chunk: LogChunk) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a chunk as batches of bounded size; bodies that are broken are bad places.

        Broken is a body that cannot be unpacked and, if checksums are to be compared, one with a wrong one.
        """
        for batch in self._message_batches(chunk):
            if self._columns.options.row_per_key:
                keys = self._selection.key_predicates
                yield from key_rows(batch, self._columns.arrow_schema, keys)
            else:
                yield batch

    def _message_batches(self, chunk: LogChunk) -> Iterator[pa.RecordBatch]:
        columns = self._columns
        for rows in pieces(chunk.rows, _row_bytes(chunk.rows, columns), BATCH_BYTES):
            piece = chunk._replace(rows=rows)
            if columns.checks_body:
                piece = self._with_right_bodies(piece)
            unpacks = columns.reads_body and columns.options.decompress
            whole: Iterable[_Unpacked] = [(piece.rows, {})]
            parts = _unpacked_pieces(piece, self.on_bad) if unpacks else whole
            for good, bodies in parts:
                if len(good):
                    yield _batch(self._kernels, piece._replace(rows=good), columns, bodies)

    def _with_right_bodies(self, chunk: LogChunk) -> LogChunk:
        matches = self._kernels.bodies_match(chunk.data, chunk.rows)
        for row in chunk.rows[~matches]:
            self.on_bad(bad_record(chunk.segment, row, WRONG_CHECKSUM))
        return chunk if matches.all() else chunk._replace(rows=chunk.rows[matches])

    def on_bad(self, place: BadPlace) -> None:
        """Count a bad place, if it concerns the read. CorruptRecordError: the read shall fail."""
        selection, metrics = self._selection, self._metrics
        if not selection.covers(place.log_offset):
            return
        mode = selection.options.bad_records
        if mode is BadRecords.FAIL:
            raise CorruptRecordError(place.path, place.position, place.reason, NEXT_STEP)
        metrics.bad_places += 1
        metrics.bad_bytes += place.length
        if mode is BadRecords.KEEP and selection.shows_bad_place(place.log_offset, place.length):
            self._kept.append(place)
        elif mode is BadRecords.SKIP and metrics.bad_places <= _LOGGED_MAX:
            logger.warning("%s: skipped", _describe(place))

    def bad_rows(self) -> Iterator[pa.RecordBatch]:
        """Yield the bad places that are to be shown, since the last call."""
        kept, self._kept = self._kept, []
        if kept:
            yield error_batch(kept, self._columns)


def other_bytes(rows: Rows) -> Ints:
    """Return the bytes of each record without its body."""
    weights: Ints = rows["size"].astype(np.int64) - rows["body_length"]
    return weights


def error_batch(places: Sequence[BadPlace], columns: Columns) -> pa.RecordBatch:
    """Return a row for each bad place: where it starts, its length and what is wrong."""
    offsets = np.array([place.log_offset for place in places], dtype=np.int64)
    sizes = np.array([min(place.length, _SIZE_MAX) for place in places], dtype=np.int64)
    known = {
        "log_offset": number_array("log_offset", offsets),
        "size": number_array("size", sizes),
        "error": pa.array([_describe(place) for place in places], type=pa.string()),
        **all_sent(len(places)),
    }
    arrays = [
        known[field.name] if field.name in known else pa.nulls(len(places), field.type)
        for field in columns.arrow_schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns.arrow_schema)


def _describe(place: BadPlace) -> str:
    return f"{place.path}, position {place.position}: {place.reason} ({place.length} bytes)"


def bad_record(segment: Segment, row: np.void, reason: str) -> BadPlace:
    """Return the place of a record whose lengths are sound but whose body is not."""
    log_offset, size = int(row["log_offset"]), int(row["size"])
    position = log_offset - segment.base_offset
    return BadPlace(segment.path, log_offset, position, size, reason)


def _row_bytes(rows: Rows, columns: Columns) -> Ints:
    sizes = rows["size"].astype(np.int64)
    return sizes if columns.reads_body else sizes - rows["body_length"]


def _compressed(rows: Rows) -> list[int]:
    found: list[int] = np.flatnonzero(rows["sys_flag"] & _COMPRESSED).tolist()
    return found


def _inflated(chunk: LogChunk, index: int) -> bytes:
    row = chunk.rows[index]
    at, length = int(row["body_at"]), int(row["body_length"])
    stored = chunk.data[at : at + length].tobytes()
    return decompress(stored, int(row["sys_flag"]), INFLATED_BYTES_MAX)


def _unpacked_pieces(chunk: LogChunk, on_bad: OnBad) -> Iterator[_Unpacked]:
    """Yield the good rows; a piece ends where its unpacked bodies become too many bytes."""
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


def _without_bad(rows: Rows, good: npt.NDArray[np.bool_], bodies: dict[int, bytes]) -> _Unpacked:
    if good.all():
        return rows, bodies
    places = np.cumsum(good) - 1
    return rows[good], {int(places[index]): body for index, body in bodies.items()}


def _batch(
    kernels: Kernels, chunk: LogChunk, columns: Columns, bodies: dict[int, bytes]
) -> pa.RecordBatch:
    """Return all columns; `bodies` replaces those of some rows."""
    made = RowColumns(kernels, chunk.data, chunk.rows, keeps_buffer=chunk.window is None)
    schema = columns.message_schema
    stretch = None
    if columns.in_place:
        at, lengths = made.bodies
        at = at + chunk.start
        stretch = stretch_of(chunk.segment, at, lengths)
    if stretch is not None:
        known = _bodies_in_place(stretch, at, lengths, bodies)
        schema = marked(schema, stretch)
    else:
        known = _body_columns(made, columns, bodies) if columns.reads_body else {}
        known |= all_sent(len(made.rows)) if columns.in_place else {}
    if not columns.options.include_body and BODY in schema.names:
        known = {BODY: pa.nulls(len(made.rows), schema.field(BODY).type)}
    arrays = [known[name] if name in known else made.column(name) for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bodies_in_place(
    stretch: Stretch, at: Ints, lengths: Ints, bodies: dict[int, bytes]
) -> dict[str, pa.Array]:
    """Return where bodies are; those that had to be unpacked stand in their column."""
    sent = np.zeros(len(at), dtype=np.int64)
    for index, body in bodies.items():
        sent[index] = len(body)
    data = np.frombuffer(b"".join(bodies[index] for index in sorted(bodies)), dtype=np.uint8)
    ends = np.concatenate(([0], np.cumsum(sent)))
    unpacked = Gathered(ends, data).array(pa.binary())
    return {BODY: unpacked, **in_stretch(stretch, at, lengths, list(bodies))}


def _body_columns(
    rows: RowColumns, columns: Columns, bodies: dict[int, bytes]
) -> dict[str, pa.Array]:
    """Return the bodies in the form that was asked for, and what is wrong with those that have none."""
    stored = _replaced_bodies(rows, bodies) if bodies else rows.column(BODY)
    match columns.options.body_as:
        case BodyAs.BINARY:
            return {BODY: stored}
        case BodyAs.TEXT:
            made, errors = as_text(stored)
        case BodyAs.JSON:
            made, errors = as_json(stored)
        case BodyAs.VARIANT:
            made, errors = as_variant(stored)
    return {BODY: made, ERROR: errors}


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
