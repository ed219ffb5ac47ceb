"""All runs of all queues, from the facts of all splits: which units count, and where each one goes.

The rules are those of `store.queues.consume_queue`: a unit lies where its queue offset says. What follows
without a gap, which is nearly everything, is done in columns; a queue with a gap or a number twice is
gone through run by run, as the live queues do it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Ints
from orbitmq.spark.jobs.rebuild.pack import PackedQueue, SplitFacts
from orbitmq.store.queues.consume_queue import GAP_UNITS_MAX
from orbitmq.store.queues.names import BATCH, SIMPLE

Table = npt.NDArray[np.void]  # of RUN_ROW

RUN_ROW: Final = np.dtype(
    [
        ("queue", "i4"),  # number over all splits
        ("split", "i4"),  # which part file has the units
        ("first_unit", "i8"),  # in that file
        ("count", "i8"),
        ("offset", "i8"),  # queue offset of the first unit; in a batch queue its number
        ("end_log", "i8"),
        ("ext", "i8"),  # how many ext units the queue has before; NO_EXT: these have none
    ]
)
NO_EXT: Final = -1


@dataclass(slots=True)
class QueueResult:
    """One queue as it will be."""

    queue: PackedQueue
    min_offset: int = 0
    next_offset: int = 0
    end_log: int = 0  # end of the last record; in a batch queue its start
    units: int = 0  # of a batch queue
    ext_units: int = 0


class QueueRuns(NamedTuple):
    """Runs that count, by queue and then in log order, and the queues themselves."""

    table: Table
    queues: list[QueueResult]
    conflicts: int  # records whose queue offset another one has


def simple_runs(splits: Sequence[SplitFacts], *, with_ext: bool) -> QueueRuns:
    """Return what goes into simple queues."""
    table, queues = _gathered(splits, SIMPLE, with_ext=with_ext)
    broken = _broken_queues(table)
    conflicts = 0
    if len(broken):
        mended = [_Taking(table[table["queue"] == number]) for number in broken.tolist()]
        sound = table[~np.isin(table["queue"], broken)]
        table = np.concatenate([sound, *(taking.run() for taking in mended)])
        table = table[np.argsort(table["queue"], kind="stable")]
        conflicts = sum(taking.conflicts for taking in mended)
    results = [QueueResult(queue) for queue in queues]
    if with_ext:
        _number_ext(table, results)
    for number, first, last in _ranges(table):
        result = results[number]
        result.min_offset = int(table["offset"][first])
        result.next_offset = int(table["offset"][last] + table["count"][last])
        result.end_log = int(table["end_log"][last])
    return QueueRuns(table, results, conflicts)


def batch_runs(splits: Sequence[SplitFacts]) -> QueueRuns:
    """Return what goes into batch queues; `offset` counts units."""
    table, queues = _gathered(splits, BATCH)
    results = [QueueResult(queue) for queue in queues]
    bounds = _batch_bounds(splits, queues)
    for number, first, last in _ranges(table):
        counts = table["count"][first : last + 1]
        table["offset"][first : last + 1] = np.cumsum(counts) - counts
        result = results[number]
        result.min_offset, result.next_offset, result.end_log = bounds[number]
        result.units = int(counts.sum())
    return QueueRuns(table, results, 0)


def _gathered(
    splits: Sequence[SplitFacts], kind: int, *, with_ext: bool = False
) -> tuple[Table, list[PackedQueue]]:
    """Return the runs of one kind of queue, sorted by queue, and those queues."""
    numbers: dict[PackedQueue, int] = {}
    tables = [np.zeros(0, dtype=RUN_ROW)]
    for place, facts in enumerate(splits):
        runs = facts.runs if kind == SIMPLE else facts.batch_runs
        used = np.unique(runs["queue_no"])
        names = np.zeros(len(facts.queues), dtype=np.int32)
        for local in used.tolist():
            names[local] = numbers.setdefault(facts.queues[local], len(numbers))
        table = np.zeros(len(runs), dtype=RUN_ROW)
        table["queue"], table["split"] = names[runs["queue_no"]], place
        for name in ("first_unit", "count"):
            table[name] = runs[name]
        table["ext"] = NO_EXT
        if kind == SIMPLE:
            table["offset"], table["end_log"] = runs["first_queue_offset"], runs["end_log_offset"]
            table["ext"] = np.where(facts.light | (not with_ext), NO_EXT, 0)
        tables.append(table)
    joined = np.concatenate(tables)
    return joined[np.argsort(joined["queue"], kind="stable")], list(numbers)


def _ranges(table: Table) -> list[tuple[int, int, int]]:
    """Return (queue, first row, last row) of each queue that has runs."""
    if not len(table):
        return []
    queues = table["queue"]
    first = np.flatnonzero(np.concatenate(([True], queues[1:] != queues[:-1])))
    last = np.append(first[1:], len(table)) - 1
    return list(zip(queues[first].tolist(), first.tolist(), last.tolist(), strict=True))


def _broken_queues(table: Table) -> Ints:
    """Return the queues whose runs do not simply follow one another."""
    ends = table["offset"] + table["count"]
    same = table["queue"][1:] == table["queue"][:-1]
    broken = same & (table["offset"][1:] != ends[:-1])
    found: Ints = np.unique(
        np.concatenate((table["queue"][1:][broken], table["queue"][table["offset"] < 0]))
    )
    return found


class _Taking:
    """Takes the runs of one queue one by one. The live counterpart is ConsumeQueues._take_run."""

    def __init__(self, rows: Table) -> None:
        self._rows = rows
        self._next = 0
        self._is_new = True
        self.conflicts = 0

    def run(self) -> Table:
        kept = [row for row in self._rows.copy() if self._takes(row)]
        return np.array(kept, dtype=RUN_ROW)

    def _takes(self, row: np.void) -> bool:
        first, count = int(row["offset"]), int(row["count"])
        if first < self._next:
            skipped = min(self._next - first, count)
            self.conflicts += skipped
            if skipped == count:
                return False
            row["offset"] += skipped
            row["first_unit"] += skipped
            row["count"] -= skipped
        elif not self._is_new and first - self._next > GAP_UNITS_MAX:
            return False  # an absurd queue offset
        self._is_new = False
        self._next = int(row["offset"] + row["count"])
        return True


def _number_ext(table: Table, results: list[QueueResult]) -> None:
    """Count the ext units before each run."""
    for number, first, last in _ranges(table):
        part = table[first : last + 1]
        counts = np.where(part["ext"] == NO_EXT, 0, part["count"])
        before = np.cumsum(counts) - counts
        part["ext"] = np.where(part["ext"] == NO_EXT, NO_EXT, before)
        results[number].ext_units = int(counts.sum())


def _batch_bounds(
    splits: Sequence[SplitFacts], queues: list[PackedQueue]
) -> list[tuple[int, int, int]]:
    """Return first and next queue offset and the last record's start of each batch queue."""
    found: dict[PackedQueue, tuple[int, int, int]] = {}
    for facts in splits:
        for run in facts.batch_runs:
            queue = facts.queues[int(run["queue_no"])]
            low = found[queue][0] if queue in found else int(run["first_queue_offset"])
            found[queue] = low, int(run["next_queue_offset"]), int(run["last_log_offset"])
    return [found[queue] for queue in queues]
