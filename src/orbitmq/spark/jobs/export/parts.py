"""The Parquet files of one attempt of a task.

One for each topic and day that it meets; more for a topic that was put aside, since few are open at once.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import io_error
from orbitmq.files.disk import Disk
from orbitmq.spark.decoders.worker import VALUE
from orbitmq.spark.jobs.export.lakes.attempts import RemoteAttempts
from orbitmq.spark.jobs.export.values import VARIANT, value_type
from orbitmq.spark.jobs.export.variant_mark import mark_variant
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles

OPEN_MAX: Final = 100
"""Files open at once; a task may meet thousands of topics."""
_CODED: Final = frozenset({"topic", "tags", "born_host", "store_host", "reason"})
_CODED_VARIANT: Final = (f"{VALUE}.metadata",)  # the names of fields, the same ones again and again
_WITHOUT_STATISTICS: Final = ("body", "properties")
_SETTINGS: Final[Mapping[str, Any]] = {
    "compression": "zstd",
    "compression_level": 1,
    "store_schema": False,  # what only Arrow reads; other readers find all types in Parquet's own schema
    "write_page_index": True,
}


class Place(NamedTuple):
    """Where rows go."""

    topic: str
    day: int | None  # since 1970-01-01
    dlq: bool = False


class Part(NamedTuple):
    """A file that a task has written whole and made durable."""

    place: Place
    path: str
    rows: int
    bytes: int
    first_log_offset: int
    last_log_offset: int
    first_ms: int | None
    last_ms: int | None


@dataclass(slots=True)
class _Open:
    path: str
    upload: IO[bytes] | None  # what it is written to, unless that is the path
    is_variant: bool  # its column `value`
    writer: pq.ParquetWriter
    rows: int
    offsets: tuple[int, int]
    times: tuple[int | None, int | None]


class PartFiles:
    """Writes the files of one attempt. Not thread-safe."""

    def __init__(self, names: AttemptFiles) -> None:
        self._names, self._disk = names, Disk()
        self._remote = names if isinstance(names, RemoteAttempts) else None
        self._open: dict[Place, _Open] = {}  # the one that was not used for longest comes first
        self._done: list[Part] = []

    def write(self, place: Place, rows: pa.Table) -> None:
        """Add rows, as one row group."""
        if not rows.num_rows:
            return
        file = self._open.pop(place, None) or self._new(rows.schema)
        self._open[place] = file
        try:
            file.writer.write_table(rows, row_group_size=rows.num_rows)
        except OSError as cause:
            raise io_error(file.path, "write", cause) from cause
        file.rows += rows.num_rows
        file.offsets = _wider(file.offsets, rows["log_offset"])
        file.times = _wider(file.times, _milliseconds(rows["store_time"]))

    def discard(self) -> None:
        """Let go of files that an attempt leaves unfinished because it fails."""
        for file in self._open.values():
            if file.upload is not None:
                with file.upload, suppress(OSError):
                    file.writer.close()
        self._open = {}

    def close(self) -> list[Part]:
        """Make all files durable; return them."""
        while self._open:
            self._close_first()
        return self._done

    def _new(self, schema: pa.Schema) -> _Open:
        while len(self._open) >= OPEN_MAX:
            self._close_first()
        path = self._names.new_path()
        upload = self._remote.temporary() if self._remote is not None else None
        try:
            writer = new_writer(upload or path, schema)
        except OSError as cause:
            raise io_error(path, "create", cause) from cause
        variant = has_variant(schema)
        return _Open(path, upload, variant, writer, 0, (2**63 - 1, -1), (None, None))

    def _close_first(self) -> None:
        place = next(iter(self._open))
        file = self._open.pop(place)
        try:
            file.writer.close()
        except OSError as cause:
            raise io_error(file.path, "write", cause) from cause
        if self._remote is not None and file.upload is not None:
            with file.upload:
                if file.is_variant:
                    mark_variant(file.upload, VALUE)
                length = self._remote.upload(file.path, file.upload)
        else:
            if file.is_variant:
                with Path(file.path).open("r+b") as opened:
                    mark_variant(opened, VALUE)
            length = self._sync(file.path)
        self._done.append(Part(place, file.path, file.rows, length, *file.offsets, *file.times))

    def _sync(self, path: str) -> int:
        """Make a file durable; return its length."""
        fd = self._disk.open(path)
        try:
            self._disk.sync_data(path, fd)
            return self._disk.length(path, fd)
        finally:
            self._disk.close(path, fd)


def has_variant(schema: pa.Schema) -> bool:
    """Tell whether the column `value` of a table is a variant."""
    return VALUE in schema.names and schema.field(VALUE).type == value_type(VARIANT)


def new_writer(to: str | IO[bytes], schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of a file of a table. A variant has to be marked when the file is whole."""
    variant = has_variant(schema)
    without = (*_WITHOUT_STATISTICS, VALUE) if variant else _WITHOUT_STATISTICS
    named = (one for one in schema if one.name not in without)
    counted = [path for one in named for path in _leaves(one.name, one.type)]
    coded = [name for name in schema.names if name in _CODED]
    coded += _CODED_VARIANT if variant else ()
    return pq.ParquetWriter(to, schema, use_dictionary=coded, write_statistics=counted, **_SETTINGS)


def _leaves(path: str, kind: pa.DataType) -> Iterator[str]:
    """Yield the columns of Parquet that a column of Arrow becomes."""
    if pa.types.is_struct(kind):
        for one in kind:
            yield from _leaves(f"{path}.{one.name}", one.type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    else:
        yield path


def _milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(times.cast(pa.int64()), 1000)


def _wider(range_: Any, values: pa.ChunkedArray) -> Any:
    found = pc.min_max(values).as_py()
    if found["min"] is None:
        return range_
    low, high = range_
    return (
        found["min"] if low is None else min(low, found["min"]),
        found["max"] if high is None else max(high, found["max"]),
    )
