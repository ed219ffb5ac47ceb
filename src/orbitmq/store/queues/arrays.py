"""What is known of each simple queue, as columns: 80 000 queues cost a few megabytes, not 80 000 objects."""

from typing import Final

import numpy as np

from orbitmq.format.columns import Ints

UNKNOWN: Final = -1

_FIRST_CAPACITY: Final = 64


class QueueArrays:
    """One row per queue number. Not thread-safe; `ConsumeQueues` guards it.

    Invariants of a row:
      min <= next;  written <= next;  flushed <= written
      units [written, next) are pending in memory, those before lie in the files
      end_log is the end of the last unit's record, 0 when there never was one
    """

    __slots__ = ("capacity", "end_log", "flushed", "min", "min_log", "next", "written")

    def __init__(self) -> None:
        self.capacity = 0
        empty = np.zeros(0, dtype=np.int64)
        self.min: Ints = empty  # queue offset of the first live unit
        self.next: Ints = empty  # queue offset of the next unit
        self.written: Ints = empty  # queue offset up to which units are in files
        self.flushed: Ints = empty  # queue offset up to which files are synced
        self.end_log: Ints = empty  # log offset where the last unit's record ends
        self.min_log: Ints = (
            empty  # log offset of the unit at `min`, UNKNOWN until it was asked for
        )
        self.grow(_FIRST_CAPACITY)

    def grow(self, count: int) -> None:
        """Make room for so many queues."""
        if count <= self.capacity:
            return
        more = max(count, 2 * self.capacity) - self.capacity
        for name in ("min", "next", "written", "flushed", "end_log"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))
        self.min_log = np.concatenate([self.min_log, np.full(more, UNKNOWN, np.int64)])
        self.capacity += more

    def set(self, number: int, *, low: int, high: int, end_log: int) -> None:
        """Set a queue whose units are all in its files."""
        self.min[number] = low
        self.next[number] = self.written[number] = self.flushed[number] = high
        self.end_log[number] = end_log
        self.min_log[number] = UNKNOWN

    def clear(self) -> None:
        """Forget everything; the capacity stays."""
        for name in ("min", "next", "written", "flushed", "end_log"):
            getattr(self, name)[:] = 0
        self.min_log[:] = UNKNOWN
