"""What all tasks of an export do: rows of the kernels sorted by topic and day, and made columns of a lake."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.format.columns import Rows
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BadPlace, Segment
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import MESSAGES, LakeRows, with_reasons
from orbitmq.spark.jobs.export.parts import PartFiles, Place
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.source.batches import WRONG_CHECKSUM, Columns, LogChunk, RowMaker
from orbitmq.spark.source.metrics import ReadMetrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.row_columns import RowColumns, is_time
from orbitmq.spark.source.selection import RowSelection
from orbitmq.units import HOUR_MS, MiB

GROUP_BYTES: Final = 32 * MiB
"""Of a row group, before it is packed."""
Maker = TypeVar("Maker", bound=RowMaker)
Offsets = npt.NDArray[np.int64]
Wanted = Callable[[str, Offsets], npt.NDArray[np.bool_]]
_DAY_MS: Final = 24 * HOUR_MS
_NO_DAY: Final = -(2**40)


class RowTask:
    """The rows of one task on their way into files. Not thread-safe."""

    def __init__(
        self, number: int, options: ReadOptions, lake_rows: LakeRows, files: AttemptFiles
    ) -> None:
        self.kernels, self.selection = compiled(), RowSelection(options)
        self.facts = TaskFacts(number)
        self._options, self._lake_rows = options, lake_rows
        self._metrics = ReadMetrics()
        self._maker = self._rows_maker(_LakeMaker, options)
        self._files = PartFiles(files)

    def on_bad_place(self, place: BadPlace) -> None:
        """Note bytes of the log that are no record. CorruptRecordError: the export shall fail."""
        self._maker.on_bad_place(place)

    def sorted(self, segment: Segment, found: Rows, wanted: Wanted) -> Iterator[tuple[Place, Rows]]:
        """Yield the wanted rows of each topic and day, in log order."""
        rows = self.selection.select(self.kernels, segment.data, found)
        if not len(rows):
            return
        topics = RowColumns(self.kernels, segment.data, rows).column("topic").dictionary_encode()
        codes, days = topics.indices.to_numpy(), _days(rows["store_ms"])
        order, end = np.argsort(codes, kind="stable"), 0
        for topic, count in zip(topics.dictionary.to_pylist(), np.bincount(codes), strict=True):
            start, end = end, end + int(count)
            mine = order[start:end]
            mine = mine[wanted(topic, rows["log_offset"][mine])]
            for day in np.unique(days[mine]).tolist():
                place = Place(topic, None if day == _NO_DAY else day)
                yield place, rows[mine[days[mine] == day]]

    def tables(self, segment: Segment, place: Place, rows: Rows) -> list[tuple[Place, pa.Table]]:
        """Return the columns of rows of one topic and day, and where they go."""
        table = self._table(self._maker, segment, rows)
        misfits = self._packed_misfits(segment, rows)
        # A body with a wrong checksum counts as a bad place, and is skipped if that was asked for.
        self.facts.add_rows(place.topic, table.num_rows + misfits.num_rows)
        return list(self._lake_rows.parts(place, table, misfits))

    def write(self, place: Place, table: pa.Table) -> None:
        """Write rows as a row group of the place's file."""
        self._files.write(place, table)

    def close(self) -> None:
        """Let go of what the task leaves unfinished, if it fails."""
        self._files.discard()

    def end(self) -> TaskFacts:
        """Make all files durable; return what was done."""
        self.facts.parts = self._files.close()
        self.facts.bad_places = self._metrics.bad_places
        return self.facts

    def _table(self, maker: RowMaker, segment: Segment, rows: Rows) -> pa.Table:
        return pa.Table.from_batches(maker.batches(LogChunk(segment, rows)), MESSAGES)

    def _packed_misfits(self, segment: Segment, rows: Rows) -> pa.Table:
        """Return the messages whose bodies could not be unpacked, with bodies as they are stored."""
        reasons, self._maker.reasons = self._maker.reasons, {}
        left = rows[np.isin(rows["log_offset"], np.array(list(reasons), dtype=np.int64))]
        stored = replace(self._options, decompress=False)
        table = self._table(self._rows_maker(RowMaker, stored), segment, left)
        return with_reasons(table, [reasons[offset.as_py()] for offset in table["log_offset"]])

    def _rows_maker(self, kind: type[Maker], options: ReadOptions) -> Maker:
        return kind(Columns(MESSAGES, options), self.selection, self.kernels, self._metrics)


class _LakeMaker(RowMaker):
    """Tells bodies that cannot be unpacked, which their producers are to blame for, from a damaged log."""

    reasons: dict[int, str]  # by log offset

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.reasons = {}

    def on_bad_place(self, place: BadPlace) -> None:
        """Note bytes of the log that are no record."""
        super().on_bad(place)

    def on_bad(self, place: BadPlace) -> None:
        if place.reason == WRONG_CHECKSUM:
            super().on_bad(place)
        else:
            self.reasons[place.log_offset] = place.reason


def _days(store_ms: Offsets) -> Offsets:
    days: Offsets = np.where(is_time(store_ms), store_ms // _DAY_MS, _NO_DAY)
    return days
