"""Which files of a lake can hold the wanted messages, and where in them: before any body is read.

  topics, times       manifests know them of each file
  offset ids          so do they know the range of log offsets
  keys, unique ids    tasks look at the statistics of row groups, and read one small column of those that may
                      hold a word (`look`)

A hit promises nothing: its row is read and compared with all that is wanted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from orbitmq.errors import StaleQueryError
from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.jobs.export.lakes.files import open_parquet
from orbitmq.spark.jobs.query.lake import LakePart
from orbitmq.spark.remote.address import Address
from orbitmq.spark.shared_paths import require_seen
from orbitmq.spark.source.options import ReadOptions

FILES_PER_TASK: Final = 64
TAIL_BYTES: Final = 8  # of a Parquet file: the length of its footer, and a magic word
_KEYS: Final = "keys"
_ID: Final = "message_id"
_OFFSET: Final = "log_offset"


class FileHits(NamedTuple):
    """What a task found in one file."""

    part: LakePart
    log_offsets: list[int]
    read_bytes: int
    groups: list[int]  # row groups with hits


class LakeHits(NamedTuple):
    """The files that have to be read, the rows in them (None: all), and what it cost to know that."""

    parts: list[LakePart]
    log_offsets: list[int] | None
    read_bytes: int = 0
    groups: Mapping[str, list[int]] = {}  # by path: the row groups that hold them


def candidates(files: Sequence[LakePart], wanted: ReadOptions) -> list[LakePart]:
    """Return the files that can hold something, as far as manifests tell."""
    found = [file for file in files if not wanted.topics or file.topic in wanted.topics]
    start, end = wanted.start_ms, wanted.end_ms
    if start is not None:
        found = [file for file in found if file.last_ms is not None and file.last_ms >= start]
    if end is not None:
        found = [file for file in found if file.first_ms is not None and file.first_ms < end]
    return found


def find(
    spark: Spark, root: Path | Address, files: Sequence[LakePart], wanted: ReadOptions
) -> LakeHits:
    """Return where the wanted messages are; for keys and ids tasks look into the files."""
    left = candidates(files, wanted)
    if not (wanted.keys or wanted.ids) or not left:
        return LakeHits(left, None)
    context = context_of(spark)
    pieces = [left[at : at + FILES_PER_TASK] for at in range(0, len(left), FILES_PER_TASK)]
    spread = context.parallelize(pieces, len(pieces))
    hits: list[FileHits] = spread.mapPartitionsWithIndex(Words.of(root, wanted)).collect()
    offsets = sorted({offset for one in hits for offset in one.log_offsets})
    parts = [one.part for one in hits if one.log_offsets]
    groups = {one.part.path: one.groups for one in hits}
    return LakeHits(parts, offsets, sum(one.read_bytes for one in hits), groups)


@dataclass(frozen=True, slots=True)
class Words:
    """What is looked for in one column: ids, or else keys. Immutable; travels to tasks."""

    root: Path | Address
    column: str
    texts: tuple[str, ...]
    offsets: tuple[int, ...]  # that ids name

    @classmethod
    def of(cls, root: Path | Address, wanted: ReadOptions) -> "Words":
        column = _ID if wanted.ids else _KEYS
        texts, offsets = sorted(wanted.index_words), sorted(wanted.named_offsets)
        return cls(root, column, tuple(texts), tuple(offsets))

    def __call__(self, _number: int, pieces: Iterable[list[LakePart]]) -> Iterator[FileHits]:
        """Yield what is in each file. StaleQueryError: it is gone."""
        if isinstance(self.root, Path):
            require_seen(str(self.root))
        for part in (part for piece in pieces for part in piece):
            try:
                yield self.look(part)
            except FileNotFoundError as error:
                raise removed(part.path) from error

    def look(self, part: LakePart) -> FileHits:
        """Return where in a file the words are, by its statistics and one column."""
        with open_parquet(self.root, part.path) as file:
            footer, hits, groups = file.metadata, list[int](), list[int]()
            read_bytes = footer.serialized_size + TAIL_BYTES
            for number in range(footer.num_row_groups):
                columns = _columns(footer.row_group(number))
                if not self._may_hold(columns):
                    continue
                read_bytes += _bytes_of(columns, self.column) + _bytes_of(columns, _OFFSET)
                rows = file.read_row_group(number, columns=[self.column, _OFFSET])
                found = self._matching(rows)
                hits += found
                groups += [number] if found else []
        return FileHits(part, hits, read_bytes, groups)

    def _may_hold(self, columns: dict[str, pq.ColumnChunkMetaData]) -> bool:
        words = [text.encode("utf-8", "replace") for text in self.texts]
        texts = next(one for path, one in columns.items() if path.split(".")[0] == self.column)
        return _within(texts, words) or _within(columns[_OFFSET], self.offsets)

    def _matching(self, rows: pa.Table) -> list[int]:
        """Return the log offsets of the rows that have one of the words."""
        texts, offsets = rows[self.column].combine_chunks(), rows[_OFFSET].combine_chunks()
        if self.column == _KEYS:
            found = pc.is_in(pc.list_flatten(texts), value_set=pa.array(self.texts, pa.string()))
            hit = pc.unique(pc.list_parent_indices(texts).filter(found))
            matching: list[int] = offsets.take(hit).to_pylist()
        else:
            found = pc.is_in(texts, value_set=pa.array(self.texts, pa.string()))
            named = pc.is_in(offsets, value_set=pa.array(self.offsets, pa.int64()))
            matching = offsets.filter(pc.or_(found, named)).to_pylist()
        return matching


def removed(path: str) -> StaleQueryError:
    """Return the error for a file that is no longer there."""
    return StaleQueryError(f"{path} was removed since the query began", "Make the query again.")


def _columns(group: pq.RowGroupMetaData) -> dict[str, pq.ColumnChunkMetaData]:
    found = (group.column(at) for at in range(group.num_columns))
    return {one.path_in_schema: one for one in found}


def _bytes_of(columns: dict[str, pq.ColumnChunkMetaData], name: str) -> int:
    mine = (one for path, one in columns.items() if path.split(".")[0] == name)
    return sum(one.total_compressed_size for one in mine)


def _within(column: pq.ColumnChunkMetaData, values: Sequence[bytes] | Sequence[int]) -> bool:
    """Return whether the column may hold one of the values; where nothing is known of it, it may."""
    known = column.statistics
    if known is None or not known.has_min_max:
        # A column of nulls has no least value: what is null is none of the values.
        return bool(values) and not (known is not None and known.null_count == column.num_values)
    return any(known.min_raw <= value <= known.max_raw for value in values)
