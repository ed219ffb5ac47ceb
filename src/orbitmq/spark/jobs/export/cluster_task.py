"""A task of an export from a cluster: ranges of queues, pulled from brokers, into Parquet files."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.parts import Place
from orbitmq.spark.jobs.export.row_task import GROUP_BYTES, Offsets, RowTask
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.source.batches import LogChunk
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.streams.offsets import QueueRange
from orbitmq.spark.streams.pull import range_chunks


class ClusterWork(NamedTuple):
    """What one task reads."""

    number: int
    ranges: tuple[QueueRange, ...]


@dataclass(frozen=True, slots=True)
class ClusterExport:
    """Pulls ranges of queues and writes files of an attempt. Travels to executors."""

    options: ReadOptions
    lake_rows: LakeRows
    files: AttemptFiles
    counter: StageCounter | None
    dry_run: bool = False

    def __call__(self, _number: int, works: Iterator[ClusterWork]) -> Iterator[TaskFacts]:
        if not self.dry_run:
            self.files.require_seen()
        for work in works:
            yield _counted(work) if self.dry_run else _ClusterTask(self, work).run()


class _ClusterTask:
    """One task at work. Not thread-safe."""

    def __init__(self, export: ClusterExport, work: ClusterWork) -> None:
        self._export, self._work = export, work
        self._task = RowTask(work.number, export.options, export.lake_rows, export.files)
        self._waiting: dict[Place, list[pa.Table]] = {}
        self._waiting_bytes = 0

    def run(self) -> TaskFacts:
        kernels, options = self._task.kernels, self._export.options
        with closing(self._task) as task:
            for chunk in range_chunks(self._work.ranges, options, kernels):
                self._take(chunk)
                if self._waiting_bytes >= GROUP_BYTES:
                    self._write()
            self._write()
            return task.end()

    def _take(self, chunk: LogChunk) -> None:
        segment, task = chunk.segment, self._task
        for place, rows in task.sorted(segment, chunk.rows, _all):
            for to, table in task.tables(segment, place, rows):
                self._waiting.setdefault(to, []).append(table)
                self._waiting_bytes += table.nbytes
        if self._export.counter is not None:
            self._export.counter.add(int(chunk.rows["size"].sum(dtype=np.int64)), len(chunk.rows))

    def _write(self) -> None:
        for place, tables in self._waiting.items():
            self._task.write(place, pa.concat_tables(tables))
        self._waiting, self._waiting_bytes = {}, 0


def _counted(work: ClusterWork) -> TaskFacts:
    """Return how many messages there are, as their queues number them."""
    facts = TaskFacts(work.number)
    for one in work.ranges:
        facts.add_rows(one.topic, one.end - one.start)
    return facts


def _all(_topic: str, offsets: Offsets) -> npt.NDArray[np.bool_]:
    return np.ones(len(offsets), dtype=np.bool_)
