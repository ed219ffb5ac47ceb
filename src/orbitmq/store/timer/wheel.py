"""The timer wheel: which units of the timer log wait for which time.

The slots are columns in memory, so that they can be searched as a whole; pages that were never used cost
nothing. What changes is written to the file in whole pages, when the owner says so: after the timer log
that it leads to.
"""

import logging
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk, exists
from orbitmq.files.mappings import private_memory
from orbitmq.format.timer_log import NO_POSITION
from orbitmq.format.timer_wheel import SLOT_BYTES, SLOT_DTYPE, WHEEL_BYTES, WHEEL_SLOTS
from orbitmq.units import MiB

_log = logging.getLogger(__name__)

PAGE_BYTES: Final = 4096
PAGE_SLOTS: Final = PAGE_BYTES // SLOT_BYTES
_STEPS_MAX: Final = 64
"""So many slots are looked at one by one; for more the whole column is searched."""


Column = npt.NDArray[np.int64]


class Pages(NamedTuple):
    """Changed pages as they were at one moment: their numbers, and a row of each column for each of them."""

    numbers: list[int]
    times: Column
    firsts: Column
    lasts: Column
    counts: npt.NDArray[np.int32]

    def encode(self) -> npt.NDArray[np.void]:
        """Return the slots of all pages as the file has them."""
        slots = np.zeros(self.times.shape, dtype=SLOT_DTYPE)
        slots["time"], slots["count"] = self.times, self.counts
        slots["first"], slots["last"] = self.firsts, self.lasts
        return slots


class TimerWheel:
    """The slots of one store. Belongs to one thread, but for `count` and `write`, which any may call."""

    def __init__(self, path: Path, disk: Disk, precision_ms: int) -> None:
        self._path, self._disk, self.precision_ms = path, disk, precision_ms
        self._changed: set[int] = set()
        self.clear()

    def clear(self) -> None:
        """Forget everything; the file is written anew."""
        self._times, self._firsts, self._lasts = (
            np.frombuffer(private_memory(8 * WHEEL_SLOTS), dtype=np.int64) for _ in range(3)
        )
        self._counts = np.frombuffer(private_memory(4 * WHEEL_SLOTS), dtype=np.int32)
        # A view gives plain numbers, four times as fast as an array does.
        self._time, self._first = self._times.data, self._firsts.data
        self._last, self._count = self._lasts.data, self._counts.data
        self._changed = set(range(WHEEL_SLOTS // PAGE_SLOTS)) if exists(self._path) else set()

    # One slot

    def last(self, slot_ms: int) -> int:
        """Return the timer log offset of the slot's last unit, -1: it has none."""
        time = slot_ms // self.precision_ms
        at = time % WHEEL_SLOTS
        return self._last[at] if self._time[at] == time else NO_POSITION

    def count(self, slot_ms: int) -> int:
        """Return how many messages wait for this time."""
        time = slot_ms // self.precision_ms
        at = time % WHEEL_SLOTS
        return self._count[at] if self._time[at] == time else 0

    def most(self, slot_ms: Column) -> int:
        """Return how many messages wait for that of these times for which the most do. Any thread may ask."""
        times = slot_ms // self.precision_ms
        at = times % WHEEL_SLOTS
        return int(np.where(self._times[at] == times, self._counts[at], 0).max(initial=0))

    def add(self, slot_ms: int, position: int, change: int) -> None:
        """Make this unit the last of its slot; `change` is 1, or -1 for one that cancels another."""
        time = slot_ms // self.precision_ms
        at = time % WHEEL_SLOTS
        if self._time[at] != time:
            self._time[at], self._first[at], self._count[at] = time, position, 0
        self._last[at] = position
        self._count[at] += change
        self._changed.add(at // PAGE_SLOTS)

    def lasts(self, slot_ms: Column) -> Column:
        """Return `last` of each of these slots."""
        times = slot_ms // self.precision_ms
        at = times % WHEEL_SLOTS
        return np.where(self._times[at] == times, self._lasts[at], NO_POSITION)

    def add_many(self, slot_ms: Column, firsts: Column, lasts: Column, changes: Column) -> None:
        """Add several units to each of these slots, all different: its first new one, its last, the count."""
        times = slot_ms // self.precision_ms
        at = times % WHEEL_SLOTS
        fresh = self._times[at] != times
        anew = at[fresh]
        self._times[anew], self._firsts[anew], self._counts[anew] = times[fresh], firsts[fresh], 0
        self._lasts[at] = lasts
        self._counts[at] += changes.astype(np.int32)
        self._changed.update((at // PAGE_SLOTS).tolist())

    def revise(self, slot_ms: int, position: int, change: int) -> None:
        """Add a unit that the timer log has, unless the slot knows it, or belongs to a later time."""
        time = slot_ms // self.precision_ms
        at = time % WHEEL_SLOTS
        stored = self._time[at]
        if stored < time or (stored == time and self._last[at] < position):
            self.add(slot_ms, position, change)

    def lacks(
        self, slot_ms: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.bool_]:
        """Tell of each unit whether `revise` would add it."""
        times = slot_ms // self.precision_ms
        at = times % WHEEL_SLOTS
        stored = self._times[at]
        found: npt.NDArray[np.bool_]
        found = (stored < times) | ((stored == times) & (self._lasts[at] < positions))
        return found

    # All slots

    def next_slot(self, start_ms: int, end_ms: int) -> int | None:
        """Return the time of the first slot in [start, end) for which something waits."""
        start, end = start_ms // self.precision_ms, end_ms // self.precision_ms
        for time in range(start, min(end, start + _STEPS_MAX)):
            if self._time[time % WHEEL_SLOTS] == time:
                return time * self.precision_ms
        if end - start <= _STEPS_MAX:
            return None
        found = self._times[(self._times >= start) & (self._times < end)]
        return int(found.min()) * self.precision_ms if found.size else None

    def waiting(self, start_ms: int) -> int:
        """Return how many messages wait for this time and later."""
        later = self._times >= start_ms // self.precision_ms
        return max(0, int(self._counts[later].sum(dtype=np.int64)))

    def first_position(self, start_ms: int) -> int | None:
        """Return the timer log offset of the oldest unit that waits for this time or later."""
        later = self._firsts[self._times >= max(1, start_ms // self.precision_ms)]
        return int(later.min()) if later.size else None

    def is_within(self, timer_log_end: int) -> bool:
        """Tell whether no slot leads behind the end of the timer log."""
        return bool((self._lasts[self._times > 0] < timer_log_end).all())

    def is_of(self, latest_ms: int) -> bool:
        """Tell whether all slots have times up to this one: else they were made with another precision."""
        return int(self._times.max()) * self.precision_ms <= latest_ms

    # The file

    def load(self) -> bool:
        """Read the file; False: there is no whole one, and nothing was read."""
        if not exists(self._path):
            return False
        fd = self._disk.open(self._path, writable=False)
        try:
            length = self._disk.length(self._path, fd)
            if length != WHEEL_BYTES:
                _log.warning("%s: has %d bytes, it is made anew", self._path, length)
                return False
            for start in range(0, WHEEL_BYTES, MiB):
                self._take(start, self._disk.read_at(self._path, fd, start, MiB))
        finally:
            self._disk.close(self._path, fd)
        self._changed = set()
        return True

    def _take(self, start: int, data: bytes) -> None:
        slots = np.frombuffer(data, dtype=SLOT_DTYPE)
        for page in range(0, len(slots), PAGE_SLOTS):
            part = slots[page : page + PAGE_SLOTS]
            if not part["time"].any():
                continue
            at = start // SLOT_BYTES + page
            here = slice(at, at + len(part))
            self._times[here], self._counts[here] = part["time"], part["count"]
            self._firsts[here], self._lasts[here] = part["first"], part["last"]

    def changed(self) -> Pages:
        """Return the pages that changed since the last time; see `write`."""
        numbers, self._changed = sorted(self._changed), set()
        columns = self._times, self._firsts, self._lasts
        times, firsts, lasts = (column.reshape(-1, PAGE_SLOTS)[numbers] for column in columns)
        counts = self._counts.reshape(-1, PAGE_SLOTS)[numbers]
        return Pages(numbers, times, firsts, lasts, counts)

    def keep(self, pages: Pages) -> None:
        """Say that these pages could not be written."""
        self._changed.update(pages.numbers)

    def write(self, pages: Pages) -> None:
        """Write pages to the file and sync it. StoreError: some may not be there; see `keep`."""
        if not pages.numbers:
            return
        slots = pages.encode()
        path, disk = self._path, self._disk
        is_new = not exists(path)
        fd = disk.open(path, create=is_new)
        try:
            if disk.length(path, fd) != WHEEL_BYTES:
                disk.truncate(path, fd, WHEEL_BYTES)
            for start, end in _runs(pages.numbers):
                position = pages.numbers[start] * PAGE_BYTES
                disk.write_at(path, fd, position, slots[start:end].tobytes())
            disk.sync_data(path, fd)
        finally:
            disk.close(path, fd)
        if is_new:
            disk.sync_directory(path.parent)


def _runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return where in these sorted numbers each run of neighbours starts and ends."""
    starts = [at for at, number in enumerate(numbers) if at == 0 or numbers[at - 1] + 1 != number]
    return list(pairwise([*starts, len(numbers)]))
