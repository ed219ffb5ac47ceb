"""A task of an export from a log: records of its splits, straight from mapped bytes into Parquet files.

Rows are positions in the mapped segment, so sorting them by topic and day moves no message. They wait until a
topic has enough of them for a row group; then its columns are gathered from the segment, and written.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.client.admin.base import is_system_topic
from orbitmq.format.columns import Rows, ScanOptions
from orbitmq.log_read import Segment, Split, read_split
from orbitmq.spark.jobs.export.covered import Span
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import Anchor
from orbitmq.spark.jobs.export.parts import Place
from orbitmq.spark.jobs.export.row_task import GROUP_BYTES, Offsets, RowTask
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.segment import open_split

WAITING_ROWS_MAX: Final = 400_000
"""Rows of all topics together that wait; each takes about a hundred bytes."""


@dataclass(frozen=True, slots=True)
class LogReads:
    """Which records are wanted: ranges of log offsets by topic. Immutable; travels to tasks."""

    spans: Mapping[str, tuple[Span, ...]]
    others: tuple[Span, ...] = ()  # of topics that stand nowhere in `spans`

    def of(self, topic: str) -> tuple[Span, ...]:
        """Return the ranges of a topic."""
        found = self.spans.get(topic)
        if found is not None:
            return found
        return () if is_system_topic(topic) else self.others


class LogWork(NamedTuple):
    """What one task reads."""

    number: int
    splits: tuple[Split, ...]


@dataclass(frozen=True, slots=True)
class LogExport:
    """Reads splits and writes files of an attempt. Travels to executors."""

    options: ReadOptions
    reads: LogReads
    lake_rows: LakeRows
    files: AttemptFiles
    back_bytes: int
    counter: StageCounter | None
    dry_run: bool = False

    def __call__(self, _number: int, works: Iterator[LogWork]) -> Iterator[TaskFacts]:
        if not self.dry_run:
            self.files.require_seen()
        for work in works:
            yield _LogTask(self, work).run()


@dataclass(slots=True)
class _Waiting:
    """Rows of one topic and day that are not written yet."""

    pieces: list[Rows] = field(default_factory=list)
    rows: int = 0
    bytes: int = 0


class _LogTask:
    """One task at work. Not thread-safe."""

    def __init__(self, export: LogExport, work: LogWork) -> None:
        self._export, self._splits = export, work.splits
        self._task = RowTask(work.number, export.options, export.lake_rows, export.files)
        self._waiting: dict[Place, _Waiting] = {}
        self._waiting_rows = 0

    def run(self) -> TaskFacts:
        facts, counter = self._task.facts, self._export.counter
        with closing(self._task) as task:
            for split in self._splits:
                before = sum(facts.rows.values())
                self._read(split)
                if counter is not None:
                    counter.add(split.end - split.start, sum(facts.rows.values()) - before)
            return task.end()

    def _read(self, split: Split) -> None:
        segment, task = open_split(split, self._export.back_bytes), self._task
        for chunk in read_split(
            split,
            segment,
            task.kernels,
            ScanOptions(),
            task.on_bad_place,
            back_bytes=self._export.back_bytes,
        ):
            self._note_last(chunk.rows[-1])
            for place, found in task.sorted(segment, chunk.rows, self._wanted):
                self._take(segment, place, found)
        for place in list(self._waiting):  # rows point into this segment
            self._write(segment, place)

    def _note_last(self, row: np.void) -> None:
        numbers = (int(row[name]) for name in ("log_offset", "size", "store_ms", "queue_offset"))
        self._task.facts.anchor = Anchor(*numbers)

    def _wanted(self, topic: str, offsets: Offsets) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(offsets), dtype=np.bool_)
        for start, end in self._export.reads.of(topic):
            mask |= (offsets >= start) & (offsets < end)
        if is_system_topic(topic):
            self._task.facts.left_out += int(len(mask) - mask.sum())
        return mask

    def _take(self, segment: Segment, place: Place, rows: Rows) -> None:
        if self._export.dry_run:
            self._task.facts.add_rows(place.topic, len(rows))
            return
        waiting = self._waiting.setdefault(place, _Waiting())
        waiting.pieces.append(rows)
        waiting.rows += len(rows)
        waiting.bytes += int(rows["size"].sum(dtype=np.int64))
        self._waiting_rows += len(rows)
        if waiting.bytes >= GROUP_BYTES:
            self._write(segment, place)
        elif self._waiting_rows >= WAITING_ROWS_MAX:
            self._write(segment, max(self._waiting, key=lambda one: self._waiting[one].rows))

    def _write(self, segment: Segment, place: Place) -> None:
        waiting = self._waiting.pop(place)
        self._waiting_rows -= waiting.rows
        for to, table in self._task.tables(segment, place, np.concatenate(waiting.pieces)):
            self._task.write(to, table)
