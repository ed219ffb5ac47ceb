"""Find records by the units of all consume queues, without reading the log between them.

The units of all queues together say how the log is cut into records. Where they cut it without a gap or
an overlap, each record is in exactly one queue, and only those of the wanted queues have to be read. A
stretch that no unit covers (not dispatched yet, half messages, a deleted topic, a missing queue file) is
read as the log itself; so is one whose units contradict each other.

Believed without a look at the record: that it is of the unit's topic and has a tag of the unit's hash.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError, WrongFileError
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.format import batch_unit, cq_unit
from orbitmq.format.columns import Ints, ScanOptions
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.java_hash import java_hash
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import LogPlan, ReadState, Segment, Split, chunks, cut, is_closed_at, rows_at
from orbitmq.message import LMQ_PREFIX, SCHEDULE_TOPIC
from orbitmq.spark.source.lookup.index import OnRead
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.segment import open_segment
from orbitmq.units import KiB, MiB

QUEUES_MAX: Final = 2048
"""With more queues than this the log is read instead: each costs some reads per window."""
UNIT_BYTES_MAX: Final = 256 * MiB
WINDOW_BYTES: Final = 256 * MiB
SINGLE_BYTES = 16 * KiB
"""What reading a single record is taken to cost, in bytes of a scan."""
GAPS_MAX: Final = 16
"""A window with more stretches than this is read whole: to find the first record of each has its cost."""

SHORT_BYTES: Final = 64 * KiB

_BEHIND_ALL: Final = 2**63 - 1
_CHAIN: Final = ScanOptions(check_offset=True, max_rows=1024)
_DTYPES: Final = {QueueKind.SIMPLE: cq_unit.UNIT_DTYPE, QueueKind.BATCH: batch_unit.UNIT_DTYPE}

Units = npt.NDArray[np.void]  # of cq_unit.UNIT_DTYPE or batch_unit.UNIT_DTYPE
Flags = npt.NDArray[np.bool_]
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class UnitQuery:
    """Which queues and units are wanted."""

    options: ReadOptions
    only_gaps: bool = False  # nothing but what no unit covers

    def wants_queue(self, topic: str, queue_id: int) -> bool:
        topics, wanted_id = self.options.topics, self.options.queue_id
        if self.only_gaps or (topics and topic not in topics):
            return False
        return wanted_id is None or wanted_id == queue_id

    @property
    def queue_range(self) -> tuple[int, int]:
        """The first queue offset that is wanted, and the first behind it that is not."""
        start, end = self.options.start_queue_offset, self.options.end_queue_offset
        return max(start or 0, 0), _BEHIND_ALL if end is None else min(end, _BEHIND_ALL)

    @property
    def has_queue_range(self) -> bool:
        return self.queue_range != (0, _BEHIND_ALL)


class Queue:
    """One consume queue and its files, oldest first, mapped when they are needed. Not thread-safe."""

    def __init__(
        self, kind: QueueKind, topic: str, queue_id: int, files: Sequence[SegmentFile]
    ) -> None:
        self.kind, self.topic, self.queue_id = kind, topic, queue_id
        self.files = files
        self._first_offsets: list[int] = []
        self._mapped: dict[int, Units] = {}

    def units_from(self, log_offset: int) -> Iterator[tuple[int, Units]]:
        """Yield the files' units from the last file that starts at or before this log offset on.

        With each comes the number of its first unit. _Contradiction: a file cannot be read.
        """
        if not self._first_offsets:
            self._first_offsets = [_offset_of(self._units(n)[0]) for n in range(len(self.files))]
        first = max(bisect_right(self._first_offsets, log_offset) - 1, 0)
        for number in range(first, len(self.files)):
            units = self._units(number)
            yield self.files[number].base_offset // units.itemsize, units

    def _units(self, number: int) -> Units:
        if number not in self._mapped:
            self._mapped[number] = _map_units(self.files[number], _DTYPES[self.kind])
        return self._mapped[number]


class UnitRanges(NamedTuple):
    """Log offsets of records that may be wanted, and stretches of the log to be read as they are."""

    log_offsets: list[int]
    record_bytes: int
    stretches: list[Range]

    @property
    def cost_bytes(self) -> int:
        """As much of a scan costs about as much as reading this."""
        stretches = sum(end - start for start, end in self.stretches)
        return self.record_bytes + SINGLE_BYTES * len(self.log_offsets) + stretches


class _Contradiction(Exception):  # noqa: N818
    """Units that cannot all be right; never leaves this module."""


class _Cover(NamedTuple):
    """What units say of a stretch of the log, in log order."""

    starts: Ints
    ends: Ints
    wanted: Flags


def list_queues(layout: StoreLayout, count_max: int = QUEUES_MAX) -> list[Queue] | None:
    """Return all queues whose units cut the log; None: there are too many.

    A light queue is none of them: its units repeat those of other queues.
    """
    found = list(islice(_iter_queues(layout), count_max + 1))
    return found if len(found) <= count_max else None


def _iter_queues(layout: StoreLayout) -> Iterator[Queue]:
    for kind in _DTYPES:
        for queue in layout.list_queues(kind, on_problem=_ignore):
            if queue.topic.startswith(LMQ_PREFIX) or not queue.file_count:
                continue
            directory = layout.queue_directory(kind, queue.topic, queue.queue_id)
            files = list_segments(directory, on_problem=_ignore)
            usable = tuple(file for file in files if file.length >= _DTYPES[kind].itemsize)
            yield Queue(kind, queue.topic, queue.queue_id, usable)


def find_units(
    plan: LogPlan,
    queues: list[Queue],
    query: UnitQuery,
    start: int,
    end: int,
    kernels: Kernels,
    on_read: OnRead,
) -> UnitRanges | None:
    """Return where the wanted records of [start, end) lie; None: to read the log is cheaper."""
    total = UnitRanges([], 0, [])
    unit_bytes = done = 0
    for split in cut(plan, WINDOW_BYTES, start, end):
        window = _Window(split, queues, query, kernels)
        found = window.find()
        on_read(window.read_bytes)
        unit_bytes += window.read_bytes
        # Where a unit's record ends and a gap begins, another one starts.
        offsets, stretches = resolved(plan, found.stretches, split.start, kernels, on_read)
        total = UnitRanges(
            total.log_offsets + found.log_offsets + offsets,
            total.record_bytes + found.record_bytes,
            total.stretches + stretches,
        )
        done += split.end - split.start
        if unit_bytes > UNIT_BYTES_MAX or total.cost_bytes > done // 2:
            return None
    return total


def resolved(
    plan: LogPlan, stretches: Iterable[Range], unsure: int, kernels: Kernels, on_read: OnRead
) -> tuple[list[int], list[Range]]:
    """Return where the records of short stretches start, and the other stretches as they are.

    A record starts where each of them does, but for one that starts at `unsure`.
    """
    offsets: list[int] = []
    left: list[Range] = []
    for start, end in stretches:
        is_known = start != unsure
        records = _record_starts(plan, start, end, kernels, on_read) if is_known else None
        if records is None:
            left.append((start, end))
        else:
            offsets += records
    return offsets, left


def _record_starts(
    plan: LogPlan, start: int, end: int, kernels: Kernels, on_read: OnRead
) -> list[int] | None:
    """Return the log offsets of all records that start in [start, end), where a record starts at `start`.

    A task that is given a stretch reads some megabytes before it to find its first record. For a few
    records it is better to be given those. None: it is not short, or something else than records is there.
    """
    file = next((file for file in reversed(plan.files) if file.base_offset <= start), None)
    if end - start > SHORT_BYTES or file is None:
        return None
    segment, state = open_segment(str(file.path), file.base_offset), ReadState(start)
    starts: list[int] = []
    for chunk in chunks(
        segment, start, end, kernels=kernels, options=_CHAIN, limit=plan.end, state=state
    ):
        starts += chunk.rows["log_offset"].tolist()
        on_read(int(chunk.rows["size"].sum() - chunk.rows["body_length"].sum()))
    return starts if starts and state.is_whole else None


class _Window:
    """The units of a stretch of one segment. Not thread-safe."""

    def __init__(
        self, split: Split, queues: list[Queue], query: UnitQuery, kernels: Kernels
    ) -> None:
        self._split, self._queues, self._query = split, queues, query
        self._kernels = kernels
        self._segment: Segment = open_segment(split.path, split.base_offset)
        self.read_bytes = 0

    def find(self) -> UnitRanges:
        """Return what to read of the window."""
        split = self._split
        whole = UnitRanges([], 0, [(split.start, split.end)])
        try:
            cover = self._cover()
        except _Contradiction:
            return whole
        gaps = self._gaps(cover)
        if len(gaps) > GAPS_MAX:
            return whole
        wanted = cover.wanted & (cover.starts >= split.start)
        starts = cover.starts[wanted]
        return UnitRanges(starts.tolist(), int((cover.ends[wanted] - starts).sum()), gaps)

    def _cover(self) -> _Cover:
        """Return all units of the window in log order. _Contradiction: two of them overlap."""
        parts = []
        for queue in self._queues:
            first, units = self._units(queue)
            if len(units):
                wanted = self._wanted(queue, first, units)
                parts.append((units["log_offset"], units["size"], wanted))
        if not parts:
            raise _Contradiction
        starts = np.concatenate([part[0] for part in parts]).astype(np.int64)
        ends = starts + np.concatenate([part[1] for part in parts])
        wanted = np.concatenate([part[2] for part in parts])
        order = np.argsort(starts, kind="stable")
        starts, ends, wanted = starts[order], ends[order], wanted[order]
        if (ends[:-1] > starts[1:]).any() or ends[-1] > self._split.limit:
            raise _Contradiction
        return _Cover(starts, ends, wanted)

    # --- units of one queue ---

    def _units(self, queue: Queue) -> tuple[int, Units]:
        """Return the units of records that lie in the window, and the number of the first one."""
        start, end = self._split.start, self._split.end
        found: list[Units] = []
        number = 0
        for file_first, units in queue.units_from(start):
            # One unit back: its record may reach into the window.
            low = max(bisect_left(units, start, key=_offset_of) - 1, 0)
            high = bisect_left(units, end, low, key=_offset_of)
            if high == low:
                break
            if not found:
                number = file_first + low
            found.append(units[low:high])
            self.read_bytes += found[-1].nbytes
        units = np.concatenate(found) if found else np.zeros(0, _DTYPES[queue.kind])
        return self._inside(number, units)

    def _inside(self, number: int, units: Units) -> tuple[int, Units]:
        starts, sizes = units["log_offset"].astype(np.int64), units["size"].astype(np.int64)
        real = (sizes > 0) & (sizes != cq_unit.PADDING_SIZE) & (starts >= 0)
        inside = real & (starts < self._split.end) & (starts + sizes > self._split.start)
        places = np.flatnonzero(inside)
        if not len(places):
            return 0, units[:0]
        first, last = int(places[0]), int(places[-1]) + 1
        if len(places) != last - first or (np.diff(starts[first:last]) <= 0).any():
            raise _Contradiction  # a unit between them is none, or they are not in log order
        return number + first, units[first:last]

    def _wanted(self, queue: Queue, first: int, units: Units) -> Flags:
        query = self._query
        if not query.wants_queue(queue.topic, queue.queue_id):
            return np.zeros(len(units), dtype=np.bool_)
        wanted: Flags = np.ones(len(units), dtype=np.bool_)
        if query.options.tags and queue.topic != SCHEDULE_TOPIC:
            wanted &= _has_tag(units["tag_hash"].astype(np.int64), query.options.tags)
        if query.has_queue_range and self._numbers_are_right(queue.kind, first, units):
            numbers, (start, end) = first + np.arange(len(units)), query.queue_range
            wanted &= (numbers >= start) & (numbers < end)
        return wanted

    def _numbers_are_right(self, kind: QueueKind, first: int, units: Units) -> bool:
        """Tell whether each unit stands at its record's queue offset: looks at the two ends.

        Queue offsets grow with the log, so what is right at both ends is right between them.
        """
        if kind is not QueueKind.SIMPLE:
            return False
        return all(
            self._queue_offset_at(int(units[end]["log_offset"])) == first + end
            for end in (0, len(units) - 1)
        )

    def _queue_offset_at(self, log_offset: int) -> int:
        rows = rows_at(self._segment, log_offset, kernels=self._kernels, limit=self._split.limit)
        if (
            not len(rows) or rows["batch_count"][0] != 1
        ):  # of several messages: more than one offset
            return -1
        self.read_bytes += int(rows["size"][0])
        return int(rows["queue_offset"][0])

    # --- what no unit covers ---

    def _gaps(self, cover: _Cover) -> list[Range]:
        split = self._split
        starts = np.concatenate([[split.start], cover.ends])
        ends = np.concatenate([cover.starts, [split.end]])
        gaps = [(int(starts[place]), int(ends[place])) for place in np.flatnonzero(ends > starts)]
        # A segment ends with a blank record, which is in no queue. A record ends before it: only
        # there it is known to be one.
        ends_it = gaps and gaps[-1][0] > split.start and gaps[-1][1] == split.end
        if ends_it and is_closed_at(
            self._segment, gaps[-1][0], kernels=self._kernels, limit=split.limit
        ):
            gaps.pop()
        return gaps


def _has_tag(tag_hashes: Ints, wanted: Sequence[str]) -> Flags:
    low_half = tag_hashes.astype(np.int32)  # Java compares the low 32 bits
    hashes = np.array([java_hash(tag) for tag in wanted], dtype=np.int64)
    found: Flags = np.isin(low_half, hashes.astype(np.int32))
    return found | (tag_hashes <= ADDRESS_MAX)  # an ext address: the hash lies elsewhere


def _map_units(file: SegmentFile, dtype: np.dtype[np.void]) -> Units:
    try:
        data = open_segment(str(file.path), file.base_offset).bring()
    except StoreError as error:
        raise _Contradiction from error
    units: Units = data[: len(data) // dtype.itemsize * dtype.itemsize].view(dtype)
    if not len(units):
        raise _Contradiction
    return units


def _offset_of(unit: np.void) -> int:
    """Return a unit's log offset for halving: padding stands before, unused units behind all others."""
    size = int(unit["size"])
    if size == cq_unit.PADDING_SIZE:
        return -1
    return int(unit["log_offset"]) if size > 0 else _BEHIND_ALL


def _ignore(_problem: WrongFileError) -> None:
    """What a wrong file leaves out is not covered, and is read from the log."""
