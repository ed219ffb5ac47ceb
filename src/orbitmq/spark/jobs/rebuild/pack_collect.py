"""Dispatch into memory: the live dispatcher's own rules, with collectors in place of queues and index.

So there is one place that decides what of a record goes where (`store.dispatch`), and what a task packs
cannot differ from what a broker writes.
"""

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.clock import SystemClock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.batch_unit import UNIT_BYTES as BATCH_UNIT_BYTES
from orbitmq.format.batch_unit import BatchUnit
from orbitmq.format.columns import RUN, Bytes, Ints, PackedUnits, Rows
from orbitmq.format.cq_unit import UNIT_DTYPE
from orbitmq.format.kernels import Kernels
from orbitmq.store.index.files import IndexFiles, Items
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues, Replace
from orbitmq.store.queues.names import QueueNames

Runs = npt.NDArray[np.void]  # of RUN, or of BATCH_RUN
Flags = npt.NDArray[np.bool_]

BATCH_RUN: Final = np.dtype(
    [
        ("queue_no", "i4"),
        ("count", "i4"),
        ("first_unit", "i8"),  # index of the run's first unit in the packed ones
        ("first_queue_offset", "i8"),
        ("next_queue_offset", "i8"),
        ("last_log_offset", "i8"),  # where the last record starts
    ],
    align=True,
)


class UnitRuns(NamedTuple):
    """Units of simple queues, grouped by queue, in log order inside each."""

    runs: Runs
    light: Flags  # per run: from a record that names further queues; such units have no ext unit
    units: Bytes
    times: Ints  # per unit: store time; empty unless asked for


class BatchRuns(NamedTuple):
    """Units of batch queues, one run per queue, in log order."""

    runs: Runs
    units: bytes


class UnitCollector(ConsumeQueues):
    """Takes units like the queues of a store and keeps them as they come. Not thread-safe."""

    def __init__(
        self, layout: StoreLayout, files: FileCache, names: QueueNames, *, with_times: bool
    ) -> None:
        super().__init__(layout, files, names)
        self.rows: Rows | None = None  # of the chunk that is being dispatched
        self._with_times = with_times
        self._parts: list[UnitRuns] = []
        self._light: list[tuple[int, int, int, int, int]] = []

    def apply(
        self, packed: PackedUnits, *, verify: bool = False, replace: Replace | None = None
    ) -> None:
        self._close_light()
        if len(packed.runs):
            times = np.zeros(0, dtype=np.int64)
            if self._with_times:
                assert self.rows is not None
                times = self.rows["store_ms"][packed.row_index]
            light = np.zeros(len(packed.runs), dtype=np.bool_)
            self._parts.append(UnitRuns(packed.runs, light, packed.units, times))

    def put_unit(
        self, number: int, queue_offset: int, log_offset: int, size: int, tag_hash: int
    ) -> None:
        self._light.append((number, queue_offset, log_offset, size, tag_hash))

    def spill(self) -> None:
        """Nothing is written here."""

    def collected(self) -> UnitRuns:
        """Return everything, each queue's units together."""
        self._close_light()
        runs, light, units, times = _joined(self._parts)
        order = np.argsort(runs["queue_no"], kind="stable")
        runs, light = runs[order], light[order]
        places = unit_places(runs["first_unit"], runs["count"])
        packed = units.view("V20")[places].view(np.uint8)
        runs, light = _merged(runs, light)
        return UnitRuns(runs, light, packed, times[places] if self._with_times else times)

    def _close_light(self) -> None:
        """Make a part of the units that came one by one."""
        if not self._light:
            return
        columns = np.array(self._light, dtype=np.int64).T
        self._light = []
        count = columns.shape[1]
        units = np.empty(count, dtype=UNIT_DTYPE)
        runs = np.zeros(count, dtype=RUN)
        units["log_offset"], units["size"], units["tag_hash"] = columns[2:]
        runs["queue_no"], runs["first_queue_offset"] = columns[:2]
        runs["count"], runs["first_unit"] = 1, np.arange(count)
        runs["end_log_offset"] = columns[2] + columns[3]
        times = np.zeros(count if self._with_times else 0, dtype=np.int64)
        self._parts.append(UnitRuns(runs, np.ones(count, np.bool_), units.view(np.uint8), times))


def unit_places(first: Ints, counts: npt.NDArray[np.integer]) -> Ints:
    """Return the indexes of all units of runs, one run behind the other."""
    ends = np.cumsum(counts, dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    places: Ints = np.repeat(first - (ends - counts), counts) + np.arange(total, dtype=np.int64)
    return places


def _joined(parts: list[UnitRuns]) -> UnitRuns:
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return UnitRuns(np.zeros(0, RUN), np.zeros(0, np.bool_), np.zeros(0, np.uint8), empty)
    before = 0
    moved = []
    for part in parts:
        runs = part.runs.copy()
        runs["first_unit"] += before
        before += len(part.units) // UNIT_DTYPE.itemsize
        moved.append(runs)
    return UnitRuns(
        np.concatenate(moved),
        np.concatenate([part.light for part in parts]),
        np.concatenate([part.units for part in parts]),
        np.concatenate([part.times for part in parts]),
    )


def _merged(runs: Runs, light: Flags) -> tuple[Runs, Flags]:
    """Return runs whose units stand in this order, those that continue one another as one."""
    if not len(runs):
        return runs, light
    ends = runs["first_queue_offset"] + runs["count"]
    follows = (runs["queue_no"][1:] == runs["queue_no"][:-1]) & (light[1:] == light[:-1])
    follows &= runs["first_queue_offset"][1:] == ends[:-1]
    first = np.flatnonzero(np.concatenate(([True], ~follows)))
    last = np.append(first[1:], len(runs)) - 1
    merged = runs[first]
    merged["count"] = np.add.reduceat(runs["count"], first)
    merged["first_unit"] = np.cumsum(merged["count"]) - merged["count"]
    merged["end_log_offset"] = runs["end_log_offset"][last]
    merged["last_store_ms"] = runs["last_store_ms"][last]
    return merged, light[first]


class BatchCollector(BatchQueues):
    """Takes units like the batch queues of a store and keeps them. Not thread-safe."""

    def __init__(self, layout: StoreLayout, files: FileCache, names: QueueNames) -> None:
        super().__init__(layout, files, names)
        self._units: dict[int, bytearray] = {}
        self._ends: dict[int, tuple[BatchUnit, BatchUnit]] = {}

    def put(self, number: int, unit: BatchUnit) -> None:
        data = unit.encode()
        self._units.setdefault(number, bytearray()).extend(data)
        self._ends[number] = self._ends.get(number, (unit, unit))[0], unit

    def spill(self) -> None:
        """Nothing is written here."""

    def collected(self) -> BatchRuns:
        """Return everything, each queue's units together."""
        runs = np.zeros(len(self._units), dtype=BATCH_RUN)
        before = 0
        for row, (number, units) in zip(runs, sorted(self._units.items()), strict=True):
            first, last = self._ends[number]
            row["queue_no"], row["count"] = number, len(units) // BATCH_UNIT_BYTES
            row["first_unit"] = before
            row["first_queue_offset"] = first.base_offset
            row["next_queue_offset"] = last.end_offset
            row["last_log_offset"] = last.log_offset
            before += len(units) // BATCH_UNIT_BYTES
        return BatchRuns(runs, b"".join(self._units[number] for number in sorted(self._units)))


class ItemCollector(IndexFiles):
    """Takes index items like the index of a store and keeps them. Not thread-safe."""

    def __init__(
        self, layout: StoreLayout, files: FileCache, kernels: Kernels, *, enabled: bool
    ) -> None:
        super().__init__(layout, files, Disk(), kernels, SystemClock(), enabled=enabled)
        self.parts: list[Items] = []

    def insert(self, items: Items, *, unseen: bool = False) -> None:
        self.parts.append(items)
