"""Which units the records of a log ask for, and whether their queue offsets follow one another."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orbitmq.format.columns import Bytes, Mark, Rows
from orbitmq.format.cq_unit import UNIT, UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import find_property
from orbitmq.message import LMQ_PREFIX, Property
from orbitmq.store.recovery.queue_counts import Queue, resolve_all


class UnitRun(NamedTuple):
    """Packed units of one queue with consecutive queue offsets from `first` on."""

    number: int  # of the queue
    first: int
    units: bytes


class ExpectedUnits:
    """Makes the units of records; `names` has the queues by number. Not thread-safe."""

    def __init__(self, kernels: Kernels, *, light_queues: bool) -> None:
        self.names: list[Queue] = []
        self._kernels = kernels
        self._table = kernels.queue_table()
        self._light_queues = light_queues

    def runs(self, buffer: Bytes, rows: Rows) -> Iterator[UnitRun]:
        """Yield the units of these records, each queue's in log order."""
        numbers = resolve_all(self._table, self.names, buffer, rows)
        packed = self._kernels.pack_units(rows, numbers)
        units = packed.units.tobytes()
        for number, count, first, first_unit, *_ in packed.runs.tolist():
            start = first_unit * UNIT_BYTES
            yield UnitRun(number, first, units[start : start + count * UNIT_BYTES])
        if self._light_queues:
            for row in rows[rows["marks"] & Mark.MULTI_DISPATCH != 0]:
                yield from self._light_runs(buffer, row)

    def _light_runs(self, buffer: Bytes, row: np.void) -> Iterator[UnitRun]:
        at, length = int(row["properties_at"]), int(row["properties_length"])
        raw = buffer[at : at + length].tobytes()
        names = (find_property(raw, Property.MULTI_DISPATCH) or "").split(",")
        offsets = (find_property(raw, Property.MULTI_QUEUE_OFFSET) or "").split(",")
        if len(names) != len(offsets):
            return
        unit = UNIT.pack(int(row["log_offset"]), int(row["size"]), int(row["tag_hash"]))
        for name, offset in zip(names, offsets, strict=True):
            if "/" in name or not offset.isdigit():
                continue
            queue_id = 0 if name.startswith(LMQ_PREFIX) else int(row["queue_id"])
            number = self._table.add(name.encode(), queue_id)
            if number == len(self.names):
                self.names.append((name.encode(), queue_id))
            yield UnitRun(number, int(offset), unit)

    def find(self, topic: str, queue_id: int) -> int:
        """Return the number of a queue, -1 if no record is in it."""
        return self._table.find(topic.encode(), queue_id)


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
