"""The rows of some files of a lake in new ones, as they are or sorted, with a bound on memory.

Rows that are to be sorted and are too many for it are first shared out by ranges of their first column to
temporary files; then each range is sorted for itself, so the new files follow one another. Where many rows
have the same value, a range is sorted in pieces.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import JobFailedError
from orbitmq.spark.jobs.compact.plan import Group
from orbitmq.spark.jobs.export.lakes.files import open_parquet
from orbitmq.spark.jobs.export.parts import Part, PartFiles
from orbitmq.spark.jobs.export.row_task import GROUP_BYTES
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.remote.address import Address
from orbitmq.units import MiB

SORT_BYTES: Final = 256 * MiB
"""Of rows in memory, as Arrow has them, that are sorted at once; sorting takes as much again."""
SORTED_GROUP_BYTES: Final = 4 * MiB
"""Of a row group of sorted rows: the smaller, the less a search has to read."""
_LAST: Final = "log_offset"


class Rewrite:
    """Writes the rows of one group anew. Not thread-safe."""

    def __init__(
        self,
        root: Path | Address,
        group: Group,
        schema: pa.Schema,
        files: AttemptFiles,
        cluster_by: Sequence[str] = (),
    ) -> None:
        self._root, self._group, self._schema = root, group, schema
        self._files, self._cluster_by = files, tuple(cluster_by)
        self._rows = 0

    def run(self) -> list[Part]:
        """Return the new files, whole and durable. JobFailedError: they have not all rows."""
        pieces = self._sorted_files() if self._cluster_by else iter([self._tables()])
        size = SORTED_GROUP_BYTES if self._cluster_by else GROUP_BYTES
        parts = [part for tables in pieces for part in self._written(tables, size)]
        written = sum(part.rows for part in parts)
        if written != self._rows:
            what = f"{self._group.table}: {written} rows were written of {self._rows}"
            raise JobFailedError(what, "The lake is as before.")
        return parts

    def _written(self, tables: Iterator[pa.Table], group_bytes: int) -> list[Part]:
        writer = PartFiles(self._files)
        try:
            for table in _of_size(tables, group_bytes):
                writer.write(self._group.place, table)
            return writer.close()
        finally:
            writer.discard()

    def _tables(self) -> Iterator[pa.Table]:
        """Yield all rows, row group by row group."""
        for part in self._group.parts:
            with open_parquet(self._root, part.path) as file:
                self._rows += file.metadata.num_rows
                for number in range(file.num_row_groups):
                    rows = file.read_row_group(number, columns=self._schema.names)
                    yield rows.select(self._schema.names).cast(self._schema)

    # --- sorted ---

    def _sorted_files(self) -> Iterator[Iterator[pa.Table]]:
        """Yield the rows of each new file."""
        total = self._arrow_bytes()
        if total <= SORT_BYTES:
            yield iter([self._sorted(pa.concat_tables(self._tables()))])
            return
        with tempfile.TemporaryDirectory(prefix="orbitmq-compact-") as folder:
            for path in self._shared_out(Path(folder), math.ceil(total / SORT_BYTES)):
                with pq.ParquetFile(path) as file:
                    tables = (file.read_row_group(at) for at in range(file.num_row_groups))
                    for piece in _of_size(tables, SORT_BYTES):
                        yield iter([self._sorted(piece)])

    def _sorted(self, rows: pa.Table) -> pa.Table:
        keys = pa.table(
            [*(_comparable(rows[name]) for name in self._cluster_by), rows[_LAST]],
            names=[str(at) for at in range(len(self._cluster_by) + 1)],
        )
        ascending = [(name, "ascending") for name in keys.column_names]
        return rows.take(pc.sort_indices(keys, sort_keys=ascending))

    def _arrow_bytes(self) -> int:
        total = 0
        for part in self._group.parts:
            with open_parquet(self._root, part.path) as file:
                groups = (file.metadata.row_group(at) for at in range(file.num_row_groups))
                total += sum(group.total_byte_size for group in groups)
        return total

    def _shared_out(self, folder: Path, ranges: int) -> list[Path]:
        """Return a file for each range of the first column, in their order."""
        edges = self._edges(ranges)
        paths = [folder / str(number) for number in range(len(edges) + 1)]
        writers = [pq.ParquetWriter(path, self._schema, compression="lz4") for path in paths]
        try:
            for rows in self._tables():
                numbers = _range_of(_comparable(rows[self._cluster_by[0]]), edges)
                for number in np.unique(numbers).tolist():
                    writers[number].write_table(rows.filter(pa.array(numbers == number)))
        finally:
            for writer in writers:
                writer.close()
        return paths

    def _edges(self, ranges: int) -> list[object]:
        """Return values of the first column that part the rows into ranges of the same size."""
        column, found = self._cluster_by[0], []
        for part in self._group.parts:
            with open_parquet(self._root, part.path) as file:
                found.append(_comparable(file.read(columns=[column])[column]))
        values = pc.drop_null(pa.chunked_array([one for one in found if len(one)], found[0].type))
        if not len(values):
            return []
        order = pc.sort_indices(values)
        places = [order[len(order) * at // ranges].as_py() for at in range(1, ranges)]
        return list(dict.fromkeys(values[place].as_py() for place in places))


def _range_of(values: pa.Array, edges: Sequence[object]) -> np.ndarray:
    """Return the number of each value's range; what is null comes last."""
    numbers = np.zeros(len(values), dtype=np.int64)
    for edge in edges:
        numbers += pc.fill_null(pc.greater_equal(values, edge), True).to_numpy(zero_copy_only=False)
    return numbers


def _comparable(column: pa.ChunkedArray) -> pa.Array:
    """Return values that have an order: of a list its first one."""
    values = column.combine_chunks()
    if isinstance(values, pa.ChunkedArray):  # without chunks it stays one
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if not pa.types.is_list(values.type):
        return values
    has_one = pc.fill_null(pc.greater(pc.list_value_length(values), 0), False)
    firsts = pc.if_else(has_one, values.offsets[:-1], pa.scalar(None, pa.int32()))
    return values.values.take(firsts)


def _of_size(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    """Yield the same rows in tables of about this many bytes."""
    waiting: list[pa.Table] = []
    for table in _cut(tables, size):
        waiting.append(table)
        if sum(one.nbytes for one in waiting) >= size:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


def _cut(tables: Iterator[pa.Table], size: int) -> Iterator[pa.Table]:
    for table in tables:
        rows = max(1, table.num_rows * size // max(1, table.nbytes))
        for start in count(0, rows):
            if start >= table.num_rows:
                break
            yield table.slice(start, rows)
