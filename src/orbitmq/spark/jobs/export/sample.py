"""A look at the first messages of topics, for the fields that their bodies have, before any is written."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import ScanOptions
from orbitmq.log_read import read_split
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.log_task import LogExport, LogWork
from orbitmq.spark.jobs.export.row_task import Offsets, RowTask
from orbitmq.spark.jobs.export.values import found_fields, merged
from orbitmq.spark.source.schemas import BODY
from orbitmq.spark.source.segment import open_split

Found = Mapping[str, Any]
"""Fields with their types (`values.Fields`)."""
SAMPLE: Final = 1_000
"""Messages of each topic that a task looks at."""


@dataclass(frozen=True, slots=True)
class LogSample:
    """Finds the fields of topics in what tasks will export. Travels to executors."""

    export: LogExport
    known: frozenset[str]  # topics whose fields need not be found

    def __call__(
        self, _number: int, works: Iterator[LogWork]
    ) -> Iterator[tuple[int, dict[str, Found]]]:
        for work in works:
            yield work.number, _Sampling(self, work).run()


class _Sampling:
    """One task at work. Not thread-safe."""

    def __init__(self, sample: LogSample, work: LogWork) -> None:
        export = sample.export
        self._export, self._known, self._work = export, sample.known, work
        self._task = RowTask(work.number, export.options, LakeRows(), export.files)
        self._fields: dict[str, Found] = {}
        self._counts: dict[str, int] = {}

    def run(self) -> dict[str, Found]:
        task = self._task
        for split in self._work.splits:
            segment = open_split(split)
            for chunk in read_split(
                split,
                segment,
                task.kernels,
                ScanOptions(),
                task.on_bad_place,
                back_bytes=self._export.back_bytes,
            ):
                for place, rows in task.sorted(segment, chunk.rows, self._wanted):
                    some = rows[: SAMPLE - self._counts.get(place.topic, 0)]
                    self._counts[place.topic] = self._counts.get(place.topic, 0) + len(some)
                    table = task.tables(segment, place, some)[0][1]
                    self._add(place.topic, table[BODY].to_pylist())
        return self._fields

    def _wanted(self, topic: str, offsets: Offsets) -> npt.NDArray[np.bool_]:
        mask = np.zeros(len(offsets), dtype=np.bool_)
        if topic not in self._known and self._counts.get(topic, 0) < SAMPLE:
            for start, end in self._export.reads.of(topic):
                mask |= (offsets >= start) & (offsets < end)
        return mask

    def _add(self, topic: str, bodies: Iterable[bytes]) -> None:
        self._fields[topic] = merged(self._fields.get(topic, {}), found_fields(bodies))


def joined_fields(found: Iterable[tuple[int, dict[str, Found]]]) -> dict[str, Found]:
    """Return the fields of all tasks, those of the oldest messages first."""
    made: dict[str, Found] = {}
    for _, topics in sorted(found, key=lambda one: one[0]):
        for topic, fields in topics.items():
            made[topic] = merged(made.get(topic, {}), fields)
    return made
