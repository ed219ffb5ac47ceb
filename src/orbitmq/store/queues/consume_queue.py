"""All simple consume queues of a store: queue offset -> where the record lies in the commit log.

Units are gathered in memory per queue and written by positioned writes, many at a time: neither 80 000
mappings nor 80 000 open files. What was not written when the process dies is dispatched again from the
log; `orbitmq.store.snapshot` tells from where.

Invariants:
  unit n of a queue lies at byte 20 * n of its files, so entry index = queue offset, always
  a queue's files are full of units (or padding) from the start of its first file up to `written`
  a unit that was handed over once (its record ends at or before the queue's end) is never added again

Where a record's queue offset does not follow, the Java store logs it and appends the unit at the current
place, which shifts every later unit of that queue by one for ever. Here a unit goes where its queue offset
says: a gap is filled with padding units and logged, an offset that is taken keeps its first unit.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Ints, PackedUnits
from orbitmq.format.cq_unit import PADDING, UNIT, UNIT_BYTES
from orbitmq.store.queues.arrays import QueueArrays
from orbitmq.store.queues.names import SIMPLE, QueueNames
from orbitmq.store.queues.unit_files import UnitFiles
from orbitmq.units import PAGE_BYTES, KiB, MiB

log = logging.getLogger(__name__)

PENDING_BYTES: Final = 4 * KiB
"""So much of one queue is worth a write."""
PENDING_BYTES_ALL: Final = 16 * MiB
"""So much of all queues together is written, however little each has."""
PENDING_QUEUES_FEW: Final = 1000
"""Up to so many queues every flush round writes all that is pending, so that other processes see it."""
GAP_UNITS_MAX: Final = 1_000_000
"""A larger jump of the queue offset is not a lost part of a queue but a wrong number."""
VERIFY_BYTES: Final = 256 * KiB
VERIFY_BYTES_ALL: Final = 64 * MiB
"""The same two while a store is adopted: each piece is first compared with what the file holds."""

_SMALL_BATCH: Final = 8  # below this many runs a plain loop is faster than whole columns

Replace = Callable[[int, int, int, bytes], bytes]
"""(queue number, index of the first unit in the batch, count, units) -> the units to write instead."""
Compare = Callable[[int, int, bytearray], bytearray | None]
"""(queue number, first queue offset, units) -> what to write, None if the files hold it already."""


@dataclass(slots=True)
class QueueCounts:
    """What dispatch met that should not be; for statistics and reports."""

    gaps: int = 0  # queue offsets that no record had: padding units
    conflicts: int = 0  # records whose queue offset was taken by another one
    refused: int = 0  # records with an absurd queue offset


@dataclass(frozen=True, slots=True)
class QueueCapture:
    """All queues at one moment, for a snapshot."""

    numbers: Ints
    min: Ints
    next: Ints
    end_log: Ints


class ConsumeQueues(UnitFiles):
    """The simple queues. Any thread may read; only one at a time dispatches (`apply`, `put_unit`)."""

    def __init__(self, layout: StoreLayout, files: FileCache, names: QueueNames) -> None:
        super().__init__(layout, files, names)
        self.counts = QueueCounts()
        self.state = QueueArrays()  # guarded by the lock, as is everything below
        self._pending: dict[int, bytearray] = {}  # by queue number: units [written, next)
        self._pending_bytes = 0
        self._large: list[int] = []  # queues with much pending
        self._large_bytes = PENDING_BYTES
        self._all_bytes = PENDING_BYTES_ALL
        self._compare: Compare | None = None  # set while a store is adopted
        self._first_seen: Callable[[int, int], None] | None = None

    # --- names ---

    def add(self, topic: str, queue_id: int) -> int:
        """Return the number of this queue, a new one if it was not known."""
        number = self.names.add(topic, queue_id, SIMPLE)
        with self.lock:
            self.state.grow(number + 1)
        return number

    def find(self, topic: str, queue_id: int) -> int:
        """Return the number of this queue, or -1."""
        number = self.names.find(topic, queue_id)
        return number if number >= 0 and self.names.kind(number) == SIMPLE else -1

    def numbers(self) -> list[int]:
        """Return the numbers of all simple queues."""
        return list(self.names.of_kind(SIMPLE))

    # --- dispatch ---

    def apply(
        self, packed: PackedUnits, *, verify: bool = False, replace: Replace | None = None
    ) -> None:
        """Take the units of a batch of records. Only memory changes: this cannot fail half-way.

        `verify` is for a store that is being adopted (`verify/adopt_queues.py`). With `replace` the units are
        passed through it after repeats were left out, once each.
        """
        assert verify == (self._compare is not None)
        runs = packed.runs
        if not len(runs):
            return
        units = packed.units.tobytes()
        with self.lock:
            self.state.grow(len(self.names))
            if replace is None and len(runs) >= _SMALL_BATCH and self._all_follow(runs):
                self._take_followers(runs, units)
            else:
                self._take_one_by_one(runs, units, replace)

    def put_unit(
        self, number: int, queue_offset: int, log_offset: int, size: int, tag_hash: int
    ) -> None:
        """Take one unit, by the same rules."""
        with self.lock:
            self.state.grow(len(self.names))
            unit = UNIT.pack(log_offset, size, tag_hash)
            self._take_run(number, queue_offset, unit, log_offset + size)

    def _all_follow(self, runs: npt.NDArray[np.void]) -> bool:
        """Tell whether each run is the only one of its queue and continues it: the normal case."""
        numbers, state = runs["queue_no"], self.state
        if (numbers[1:] == numbers[:-1]).any():
            return False
        follows = runs["first_queue_offset"] == state.next[numbers]
        # A queue that this adoption has not seen yet must be looked at one by one.
        known = self._compare is None or bool((state.end_log[numbers] > 0).all())
        return (
            known
            and bool(follows.all())
            and bool((runs["end_log_offset"] > state.end_log[numbers]).all())
        )

    def _take_followers(self, runs: npt.NDArray[np.void], units: bytes) -> None:
        numbers, counts = runs["queue_no"], runs["count"]
        starts = runs["first_unit"] * UNIT_BYTES
        ends = starts + counts * UNIT_BYTES
        pending = self._pending
        find = pending.get
        for number, start, end in zip(
            numbers.tolist(), starts.tolist(), ends.tolist(), strict=True
        ):
            held = find(number)
            if held is None:
                pending[number] = bytearray(units[start:end])
            else:
                held += units[start:end]
        self.state.next[numbers] += counts
        self.state.end_log[numbers] = runs["end_log_offset"]
        self._pending_bytes += len(units)
        held_units = self.state.next[numbers] - self.state.written[numbers]
        self._large += numbers[held_units >= self._large_bytes // UNIT_BYTES].tolist()

    def _take_one_by_one(
        self, runs: npt.NDArray[np.void], units: bytes, replace: Replace | None
    ) -> None:
        for number, count, first, first_unit, end_log, _ in runs.tolist():
            start = first_unit * UNIT_BYTES
            data = units[start : start + count * UNIT_BYTES]
            self._take_run(number, first, data, end_log, first_unit, replace)

    def _take_run(
        self,
        number: int,
        first: int,
        data: bytes,
        end_log: int,
        first_unit: int = 0,
        replace: Replace | None = None,
    ) -> None:
        state = self.state
        if end_log <= state.end_log[number]:
            return  # handed over before: a replay of the log changes nothing
        if self._first_seen is not None and self._is_new(number):
            # What lies before the first live unit of a store that is adopted is judged at its end.
            self._first_seen(number, first)
        following = int(state.next[number])
        if first < following:
            skipped = self._skip_repeats(number, following - first, data)
            first, first_unit = first + skipped, first_unit + skipped
            data = data[skipped * UNIT_BYTES :]
            if not data:
                return
        elif first > following and not self._fill_up_to(number, first, following):
            return
        count = len(data) // UNIT_BYTES
        if replace is not None:
            data = replace(number, first_unit, count, data)
        self._hold(number, data)
        state.next[number] = first + count
        state.end_log[number] = end_log

    def _skip_repeats(self, number: int, overlap: int, data: bytes) -> int:
        """Return how many units at the start of a run have queue offsets that are taken."""
        skipped = min(overlap, len(data) // UNIT_BYTES)
        known_end = self.state.end_log[number]
        fresh = 0
        for index in range(skipped - 1, -1, -1):
            log_offset, size, _ = UNIT.unpack_from(data, index * UNIT_BYTES)
            if log_offset + size <= known_end:
                break
            fresh += 1
        if fresh:
            self.counts.conflicts += fresh
            log.error(
                "queue %s/%d: %d record(s) have a queue offset below %d that another record has",
                *self.names.name(number),
                fresh,
                int(self.state.next[number]),
            )
        return skipped

    def _fill_up_to(self, number: int, first: int, following: int) -> bool:
        """Bridge the way from the end of a queue to `first`; return False if that makes no sense."""
        state = self.state
        if self._is_new(number):
            file_first = first // self.file_units * self.file_units
            state.written[number] = state.flushed[number] = file_first
            state.min[number] = first
            self._hold(number, PADDING * (first - file_first))
            return True
        if first - following > GAP_UNITS_MAX:
            self.counts.refused += 1
            log.error(
                "queue %s/%d: a record has queue offset %d where %d comes next; it is left out",
                *self.names.name(number),
                first,
                following,
            )
            return False
        self.counts.gaps += first - following
        log.warning(
            "queue %s/%d: queue offsets %d to %d are missing in the log; filled with padding",
            *self.names.name(number),
            following,
            first - 1,
        )
        self._hold(number, PADDING * (first - following))
        return True

    def _is_new(self, number: int) -> bool:
        return not self.state.next[number] and not self.state.end_log[number]

    def _hold(self, number: int, data: bytes) -> None:
        held = self._pending.setdefault(number, bytearray())
        held += data
        self._pending_bytes += len(data)
        if len(held) >= self._large_bytes:
            self._large.append(number)

    # --- reading ---

    def min_offset(self, number: int) -> int:
        """Return the queue offset of the first live unit."""
        return _value(self.state.min, number)

    def next_offset(self, number: int) -> int:
        """Return the queue offset that the next message gets (RocketMQ: max offset)."""
        return _value(self.state.next, number)

    def end_log_offset(self, number: int) -> int:
        """Return where the last unit's record ends (RocketMQ: max physic offset)."""
        return _value(self.state.end_log, number)

    def read_units(self, number: int, first: int, count: int) -> bytes:
        """Return up to `count` units from queue offset `first` on, to the end of one file at most.

        Empty: there is nothing to read at this offset.
        """
        with self.lock:
            if not self.min_offset(number) <= first < self.next_offset(number):
                return b""
            return self.read_raw(number, first, count)

    def read_raw(self, number: int, first: int, count: int) -> bytes:
        """Read like `read_units`, without looking at the min offset."""
        file_end = (first // self.file_units + 1) * self.file_units
        with self.lock:
            written = int(self.state.written[number])
            last = min(first + count, int(self.state.next[number]), file_end)
            held = self._pending.get(number)
            tail = b""
            if held is not None and last > written:
                skip = max(first - written, 0) * UNIT_BYTES
                tail = bytes(held[skip : (last - written) * UNIT_BYTES])
        if first >= written:
            return tail
        wanted = (min(last, written) - first) * UNIT_BYTES
        head = self.read_file(number, first, wanted)
        return head + tail if len(head) == wanted else head[: len(head) // UNIT_BYTES * UNIT_BYTES]

    # --- writing ---

    def spill(self) -> None:
        """Write what has become too much to hold. After an error everything is still held."""
        if self._pending_bytes > self._all_bytes:
            self.write_out(thorough=True)
        elif self._large:
            self._write_queues(set(self._large))
        self._large = []

    def write_out(self, thorough: bool) -> None:
        """Hand pending units to the operating system: all, or those of queues with many.

        Where few queues have any, all are written in both cases.
        """
        with self.lock:
            numbers = list(self._pending)
            if not thorough and len(numbers) > PENDING_QUEUES_FEW:
                numbers = [no for no in numbers if len(self._pending[no]) >= PENDING_BYTES]
        self._write_queues(numbers)

    def _write_queues(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.write_queue(number)

    def write_queue(self, number: int) -> None:
        """Hand the pending units of one queue to the operating system."""
        with self.lock:  # one queue at a time: readers and dispatch get in between
            held = self._pending.get(number)
            if held is None:
                return
            first = int(self.state.written[number])
            data = held if self._compare is None else self._compare(number, first, held)
            if data is not None:
                self.write_units(number, first, data)
            del self._pending[number]
            self._pending_bytes -= len(held)
            self.state.written[number] = first + len(held) // UNIT_BYTES

    # --- durability ---

    def sync(self) -> None:
        """Make everything durable that was written out."""
        with self.lock:
            written = self.state.written.copy()
        super().sync()
        with self.lock:
            flushed = self.state.flushed
            # A queue may have been cut while the disk was busy.
            np.minimum(written, self.state.written[: len(written)], out=flushed[: len(written)])

    def flush(self, least_pages: int) -> int:
        """Flush the queues that are due by RocketMQ's rule; return how many.

        A queue is due when the file that its flushed position lies in is full, or has so many pages
        more than are flushed. `least_pages` 0: everything.
        """
        if least_pages == 0:
            self.write_out(thorough=True)
            self.sync()
            return len(self.names)
        with self.lock:
            due, ends = self._due(least_pages)
            numbers = due.tolist()
        if not numbers:
            return 0
        paths = [self.place(no, int(self.state.flushed[no]))[0] for no in numbers]
        self._write_queues(numbers)
        self.files.sync(paths)
        with self.lock:
            self.state.flushed[due] = np.minimum(ends, self.state.written[due])
        return len(numbers)

    def _due(self, least_pages: int) -> tuple[Ints, Ints]:
        """Return the numbers of due queues and the queue offset up to which each is to be flushed."""
        flushed, following = self.state.flushed, self.state.next
        file_first = flushed // self.file_units * self.file_units
        ends = np.minimum(following, file_first + self.file_units)
        pages = (ends - file_first) * UNIT_BYTES // PAGE_BYTES
        pages -= (flushed - file_first) * UNIT_BYTES // PAGE_BYTES
        full = ends == file_first + self.file_units
        due = np.flatnonzero((ends > flushed) & (full | (pages >= least_pages)))
        return due, ends[due]

    # --- for the acts on whole queues: load, trim, verify, snapshot ---

    def capture(self) -> QueueCapture:
        """Copy the state of all queues; a moment's work."""
        with self.lock:
            self.state.grow(len(self.names))
            numbers = np.array(self.numbers(), dtype=np.int64)
            state = self.state
            return QueueCapture(
                numbers, state.min[numbers], state.next[numbers], state.end_log[numbers]
            )

    def drop_pending_after(self, number: int, queue_offset: int) -> None:
        """Forget pending units from this queue offset on. The caller holds the lock."""
        held = self._pending.get(number)
        if held is None:
            return
        kept = max(queue_offset - int(self.state.written[number]), 0) * UNIT_BYTES
        if kept < len(held):
            self._pending_bytes -= len(held) - kept
            del held[kept:]
        if not held:
            del self._pending[number]

    def reset(self) -> None:
        """Forget all queues and whatever is pending; the numbers stay."""
        with self.lock:
            self.state.grow(len(self.names))
            self.state.clear()
            self._pending.clear()
            self._pending_bytes = 0
            self._large = []

    def gather(self, *, large: bool) -> None:
        """Hold more units in memory before they are written: for who dispatches a whole log."""
        self._large_bytes = VERIFY_BYTES if large else PENDING_BYTES
        self._all_bytes = VERIFY_BYTES_ALL if large else PENDING_BYTES_ALL

    def set_verifier(
        self,
        compare: Compare | None,
        first_seen: Callable[[int, int], None] | None,
    ) -> None:
        """Compare with the files instead of writing blindly, until called with None."""
        self._compare, self._first_seen = compare, first_seen
        self.gather(large=compare is not None)


def _value(column: Ints, number: int) -> int:
    # A queue has its number a moment before it has its row.
    return int(column[number]) if number < len(column) else 0
