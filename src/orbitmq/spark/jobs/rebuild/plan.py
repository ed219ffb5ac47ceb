"""Which files a rebuild makes, out of which pieces of which splits, and which task makes them."""

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.format.batch_unit import UNIT_BYTES as BATCH_UNIT_BYTES
from orbitmq.format.columns import Ints
from orbitmq.format.cq_ext_unit import END_RESERVE_BYTES, HEAD_BYTES
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.index_file import ENTRY_BYTES
from orbitmq.format.segment_name import index_file_name
from orbitmq.spark.jobs.rebuild.attempt_files import Wanted
from orbitmq.spark.jobs.rebuild.pack import Part, SplitFacts
from orbitmq.spark.jobs.rebuild.queue_runs import NO_EXT, QueueRuns, Table
from orbitmq.store.offline.exchange import Scope

UNIT_SIZES: Final = {
    QueueKind.SIMPLE: UNIT_BYTES,
    QueueKind.EXT: HEAD_BYTES,
    QueueKind.BATCH: BATCH_UNIT_BYTES,
}


class QueueTarget(NamedTuple):
    """A queue file to be made. `pieces` are RUN_ROWs that lie in it; what they leave out is padding."""

    number: int
    kind: QueueKind
    first: int  # number of the unit at the start of the file
    end: int  # behind the last unit
    last_of_queue: bool
    pieces: Table

    @property
    def units(self) -> int:
        return self.end - self.first

    @property
    def byte_count(self) -> int:
        return self.units * UNIT_SIZES[self.kind]


class ItemPiece(NamedTuple):
    """Index items of one split."""

    split: int
    skip: int
    items: int


class IndexTarget(NamedTuple):
    """An index file to be made. `before` is the last item of the file before it, if there is one."""

    number: int
    units: int
    pieces: tuple[ItemPiece, ...]
    before: ItemPiece | None

    @property
    def byte_count(self) -> int:
        return self.units * ENTRY_BYTES


class BuildTask(NamedTuple):
    """Files that one task makes, and the parts that they are made of, by split."""

    targets: tuple[QueueTarget | IndexTarget, ...]
    parts: dict[int, Part]


class RebuildPlan(NamedTuple):
    """All files of a rebuild, and what each of them has to be, by its number."""

    targets: list[QueueTarget | IndexTarget]
    wanted: dict[int, Wanted]


def ext_units_per_file(file_bytes: int) -> int:
    """Return how many ext units without a bitmap fit into a file."""
    return max(0, (file_bytes - END_RESERVE_BYTES) // HEAD_BYTES)


class Planner:
    """Plans the files of one rebuild. Not thread-safe."""

    def __init__(self, layout: StoreLayout, scope: Scope, now_ms: int) -> None:
        self._layout = layout
        self._scope = scope
        self._now_ms = now_ms
        self.plan = RebuildPlan([], {})

    def add_queues(self, runs: QueueRuns, kind: QueueKind) -> None:
        """Add the files of all queues of a kind."""
        layout, table = self._layout, runs.table
        per_file = layout.queue_file_bytes(kind) // UNIT_SIZES[kind]
        if kind is QueueKind.EXT:
            table = table[table["ext"] != NO_EXT].copy()
            table["offset"] = table["ext"]
            per_file = ext_units_per_file(layout.ext_file_bytes)
        if not per_file or not len(table):
            return
        for queue, first, last, pieces in _by_file(_cut(table, per_file), per_file):
            name = runs.queues[queue].queue
            if not self._scope.has_topic(name.topic):
                continue
            for file in range(first, last + 1):
                inside = pieces[pieces["offset"] // per_file == file]
                end = int(pieces["offset"][-1] + pieces["count"][-1])
                target = QueueTarget(
                    len(self.plan.targets),
                    kind,
                    file * per_file,
                    min((file + 1) * per_file, end),
                    file == last,
                    inside,
                )
                length = layout.queue_file_bytes(kind)
                path = layout.queue_file(kind, name.topic, name.queue_id, file * length)
                self._add(target, path, length)

    def add_index(self, splits: Sequence[SplitFacts]) -> None:
        """Add the index files: each takes the next items in log order until it is full."""
        counts = [facts.item_count for facts in splits]
        ends = np.cumsum([0, *counts])
        total = int(ends[-1])
        per_file = max(self._layout.index_items - 1, 1)
        for number, first in enumerate(range(0, total, per_file)):
            last = min(first + per_file, total)
            before = next(_pieces(ends, first - 1, first)) if first else None
            pieces = tuple(_pieces(ends, first, last))
            target = IndexTarget(len(self.plan.targets), last - first, pieces, before)
            name = index_file_name(self._now_ms + number)
            path = self._layout.index_directory / name
            self._add(target, path, self._layout.index_file_bytes)

    def _add(self, target: QueueTarget | IndexTarget, path: Path, length: int) -> None:
        self.plan.targets.append(target)
        self.plan.wanted[target.number] = Wanted(path, length, target.units)


def _cut(table: Table, per_file: int) -> Table:
    """Return the runs cut where files end."""
    first_files = table["offset"] // per_file
    file_counts = (table["offset"] + table["count"] - 1) // per_file - first_files + 1
    if (file_counts == 1).all():
        return table
    rows = np.repeat(np.arange(len(table)), file_counts)
    inside = np.arange(len(rows)) - np.repeat(np.cumsum(file_counts) - file_counts, file_counts)
    pieces = table[rows]
    files = first_files[rows] + inside
    low = np.maximum(pieces["offset"], files * per_file)
    high = np.minimum(pieces["offset"] + pieces["count"], (files + 1) * per_file)
    skipped = low - pieces["offset"]
    pieces["ext"] = np.where(pieces["ext"] == NO_EXT, NO_EXT, pieces["ext"] + skipped)
    pieces["first_unit"] += skipped
    pieces["offset"], pieces["count"] = low, high - low
    return pieces


def _by_file(table: Table, per_file: int) -> Iterator[tuple[int, int, int, Table]]:
    """Yield each queue with its first and last file and its runs."""
    starts = np.flatnonzero(np.concatenate(([True], table["queue"][1:] != table["queue"][:-1])))
    for runs in np.split(table, starts[1:]):
        first = int(runs["offset"][0]) // per_file
        last = int(runs["offset"][-1] + runs["count"][-1] - 1) // per_file
        yield int(runs["queue"][0]), first, last, runs


def _pieces(ends: Ints, first: int, last: int) -> Iterator[ItemPiece]:
    """Yield the parts of splits that hold items `first` to `last`."""
    split = int(np.searchsorted(ends, first, side="right")) - 1
    while first < last:
        end = min(int(ends[split + 1]), last)
        if end > first:
            yield ItemPiece(split, first - int(ends[split]), end - first)
        first, split = max(first, end), split + 1


def share(
    targets: Sequence[QueueTarget | IndexTarget], splits: Sequence[SplitFacts], task_count: int
) -> list[BuildTask]:
    """Share the files out to about so many tasks of the same size; the largest tasks come first."""
    loads = [(0, number) for number in range(task_count)]
    groups: list[list[QueueTarget | IndexTarget]] = [[] for _ in loads]
    for target in sorted(targets, key=lambda target: -target.byte_count):
        load, number = heapq.heappop(loads)
        groups[number].append(target)
        heapq.heappush(loads, (load + target.byte_count + 1, number))
    tasks = [BuildTask(tuple(group), _parts_of(group, splits)) for group in groups if group]
    return sorted(tasks, key=lambda task: -sum(target.byte_count for target in task.targets))


def _parts_of(
    targets: Sequence[QueueTarget | IndexTarget], splits: Sequence[SplitFacts]
) -> dict[int, Part]:
    used: set[int] = set()
    for target in targets:
        if isinstance(target, QueueTarget):
            used.update(np.unique(target.pieces["split"]).tolist())
        else:
            used.update(piece.split for piece in target.pieces)
            used.update({target.before.split} if target.before else ())
    found = {number: splits[number].part for number in used}
    return {number: part for number, part in found.items() if part is not None}
