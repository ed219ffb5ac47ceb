"""Which units the records of a log ask for, and whether their queue offsets follow one another."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind
from orbitmq.format import batch_unit
from orbitmq.format.columns import Mark, Rows
from orbitmq.format.cq_unit import UNIT, UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk
from orbitmq.store.dispatch import light_queues
from orbitmq.store.recovery.queue_counts import Queue, resolve_all


class UnitRun(NamedTuple):
    """Packed units of one queue, those of a simple one with consecutive queue offsets from `first` on."""

    kind: QueueKind
    number: int  # of the queue
    units: bytes
    first: int = 0

    @property
    def log_offset(self) -> int:
        """Of the first unit's record."""
        return int.from_bytes(self.units[:8], "big")


class ExpectedUnits:
    """Makes the units of records; `names` has the queues by number. Not thread-safe."""

    def __init__(
        self, kernels: Kernels, *, batch_topics: Collection[bytes], light_queues: bool
    ) -> None:
        self.names: list[Queue] = []
        self._kernels = kernels
        self._table = kernels.queue_table()
        self._batch_topics = batch_topics
        self._is_batch: list[bool] = []  # by number
        self._light_queues = light_queues

    def runs(self, chunk: Chunk) -> Iterator[UnitRun]:
        """Yield the units of these records, each queue's in log order."""
        rows = chunk.rows
        numbers = resolve_all(self._table, self.names, chunk.buffer, rows)
        if self._batch_topics:
            is_batch = self._batch_flags()[numbers]
            wanted = is_batch & (rows["marks"] & Mark.NO_UNIT == 0)
            yield from _batch_runs(rows[wanted], numbers[wanted])
            numbers = np.where(is_batch, -1, numbers).astype(np.int32)
        packed = self._kernels.pack_units(rows, numbers)
        units = packed.units.tobytes()
        for number, count, first, first_unit, *_ in packed.runs.tolist():
            start = first_unit * UNIT_BYTES
            part = units[start : start + count * UNIT_BYTES]
            yield UnitRun(QueueKind.SIMPLE, number, part, first)
        if self._light_queues:
            for row in np.flatnonzero(rows["marks"] & Mark.MULTI_DISPATCH).tolist():
                yield from self._light_runs(chunk, row)

    def _batch_flags(self) -> npt.NDArray[np.bool_]:
        for topic, _ in self.names[len(self._is_batch) :]:
            self._is_batch.append(topic in self._batch_topics)
        return np.array(self._is_batch, dtype=bool)

    def _light_runs(self, chunk: Chunk, row: int) -> Iterator[UnitRun]:
        record = chunk.rows[row]
        unit = UNIT.pack(int(record["log_offset"]), int(record["size"]), int(record["tag_hash"]))
        for topic, queue_id, offset in light_queues(chunk, row) or ():
            if topic not in self._batch_topics:
                number = self._table.add(topic, queue_id)
                if number == len(self.names):
                    self.names.append((topic, queue_id))
                yield UnitRun(QueueKind.SIMPLE, number, unit, offset)


def _batch_runs(rows: Rows, numbers: npt.NDArray[np.int32]) -> Iterator[UnitRun]:
    units = np.zeros(len(rows), batch_unit.UNIT_DTYPE)
    for name in ("log_offset", "size", "tag_hash", "store_ms"):
        units[name] = rows[name]
    units["base_offset"] = rows["queue_offset"]
    units["message_count"] = rows["batch_count"]
    units["compacted_offset"] = batch_unit.NOT_COMPACTED
    for number in np.unique(numbers).tolist():
        yield UnitRun(QueueKind.BATCH, number, units[numbers == number].tobytes())


@dataclass(slots=True)
class QueueOrder:
    """How far the records of one queue have come, in log order. Not thread-safe."""

    first: int | None = None  # queue offset of the first record; None: there was none yet
    next: int = 0
    _run_end: int = -1

    def take(self, first: int, count: int) -> tuple[int, str | None]:
        """Count a run of units; return how many of them only repeat, and what is odd about the run.

        Where a long run was cut for reading makes no difference.
        """
        goes_on = first == self._run_end
        self._run_end = first + count
        repeated, odd = 0, None
        if self.first is None:
            self.first = first
        elif first > self.next:
            odd = f"queue offsets {self.next} to {first - 1} have no record"
        elif first < self.next:
            repeated = min(self.next - first, count)
            odd = f"queue offset {first} is that of an earlier record of its queue"
        if repeated < count:
            self.next = first + count
        return repeated, None if goes_on else odd

    def skip(self, first: int, count: int) -> None:
        """Pass over units that are not to be looked at."""
        if self.first is None:
            self.first = first
        self.next = self._run_end = first + count
