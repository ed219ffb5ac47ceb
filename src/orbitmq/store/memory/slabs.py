"""Where the records of topics in memory lie: slabs of bytes, each with log offsets of its own.

A slab belongs to one topic, so that what a topic lets go of is memory that is given back. Log offsets of
slabs start at `MEMORY_LOG_OFFSET`, above everything that a log on disk can reach, and are never used twice.
"""

import mmap
import struct
import weakref
from bisect import bisect_right
from collections import deque
from typing import Final

import numpy as np

from orbitmq.files.mappings import private_memory
from orbitmq.format.columns import Bytes, ScanOptions
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import QUEUE_ID_AT, store_ms_at
from orbitmq.units import KiB, MiB

SLAB_BYTES_LEAST: Final = 4 * KiB
_MAPPED_FROM: Final = 1 * MiB
_SHARE: Final = 32
"""A new slab is this part of what its topic holds: what lies idle in a topic's first and last is little."""
_TOGETHER_BYTES: Final = 16 * KiB
"""From so many on records go together: a kernel looks at them."""
_SIZES: Final = ScanOptions()
_SIZE_AND_QUEUE: Final = struct.Struct(f">i{QUEUE_ID_AT - 4}xi")


def _allocate(size: int) -> mmap.mmap | None:
    """Return memory of its own, None for little. NumPy asks for huge pages: sends lose a third by them."""
    return None if size < _MAPPED_FROM else private_memory(size)


class Slab:
    """Records of one topic, one after another: those at [first, used) are there, the last without units."""

    __slots__ = ("base", "data", "first", "memory", "size", "used", "view", "with_units")

    def __init__(self, base: int, size: int, memory: mmap.mmap | None) -> None:
        self.base, self.size, self.memory = base, size, memory
        self.data: Bytes = (
            np.empty(size, dtype=np.uint8)
            if memory is None
            else np.frombuffer(memory, dtype=np.uint8)
        )
        self.view = self.data.data
        self.first = self.used = self.with_units = 0

    @property
    def room(self) -> int:
        return self.size - self.used


class MemoryLog:
    """All slabs by their log offsets, to be read as a log is (`RecordReader`)."""

    def __init__(self, start: int) -> None:
        self.next_offset = start  # of the next slab
        self._bases: list[int] = []
        self._slabs: list[Slab] = []
        # Of the last slab that went, with its array, which lives while an answer holds a part of it. To
        # use it again spares page faults.
        self._spare: tuple[mmap.mmap, weakref.ref[Bytes]] | None = None

    def add(self, size: int) -> Slab:
        slab = Slab(self.next_offset, size, self._memory(size))
        self._bases.append(slab.base)
        self._slabs.append(slab)
        self.next_offset += size
        return slab

    def remove(self, slab: Slab) -> None:
        at = bisect_right(self._bases, slab.base) - 1
        assert self._slabs[at] is slab
        del self._bases[at], self._slabs[at]
        if slab.memory is not None:
            self._spare = slab.memory, weakref.ref(slab.data)

    def _memory(self, size: int) -> mmap.mmap | None:
        """Return the memory of a slab that went if it fits and nobody holds a part of it, else new one."""
        spare, self._spare = self._spare, None
        if spare is not None and len(spare[0]) == size and spare[1]() is None:
            return spare[0]
        return _allocate(size)

    def find(self, log_offset: int) -> Slab | None:
        """Return the slab whose records may lie at this log offset."""
        at = bisect_right(self._bases, log_offset) - 1
        return self._slabs[at] if at >= 0 else None

    def visible_offset(self) -> int:
        return self.next_offset

    def read(self, log_offset: int, size: int) -> memoryview | None:
        """Return these bytes, None if they are not, or no longer, in one slab."""
        slab = self.find(log_offset)
        if slab is None:
            return None
        start = log_offset - slab.base
        if not slab.first <= start <= start + size <= slab.used:
            return None
        return slab.view[start : start + size]

    @property
    def allocated_bytes(self) -> int:
        spare = 0 if self._spare is None else len(self._spare[0])
        return spare + sum(slab.size for slab in self._slabs)


class TopicRecords:
    """The records of one topic, the oldest first, and what they count against the limit."""

    def __init__(self, log: MemoryLog, slab_bytes_max: int) -> None:
        self._log, self._slab_bytes_max = log, slab_bytes_max
        self.slabs: deque[Slab] = deque()
        self.held_bytes = 0
        """Records, their units, and the ends of full slabs, which no record fitted into."""

    def growth(self, size: int, count: int) -> int:
        """Return by how much `held_bytes` grows with so many records of this size together."""
        lost = self.slabs[-1].room if self.slabs and self.slabs[-1].room < size else 0
        return lost + size + count * UNIT_BYTES

    def next_log_offset(self, size: int) -> int:
        """Return where `take` will put so much."""
        if not self.slabs or self.slabs[-1].room < size:
            return self._log.next_offset
        return self.slabs[-1].base + self.slabs[-1].used

    def take(self, size: int, count: int) -> tuple[Slab, int]:
        """Return a slab and the position where records of this size are to be written now."""
        self.held_bytes += self.growth(size, count)
        if not self.slabs or self.slabs[-1].room < size:
            usual = max(self.held_bytes // _SHARE, SLAB_BYTES_LEAST)
            self.slabs.append(self._log.add(max(min(usual, self._slab_bytes_max), size)))
        slab = self.slabs[-1]
        at = slab.used
        slab.used += size
        return slab, at

    def oldest_ms(self) -> int:
        """Return when the oldest record was stored; there is one."""
        return store_ms_at(self.slabs[0].view, self.slabs[0].first)

    def drop(self, wanted: int, kernels: Kernels) -> dict[int, int]:
        """Let the oldest records go, for so many bytes or a whole slab; return how many of each queue."""
        target, slab = self.held_bytes - wanted, self.slabs[0]
        counts = self._drop_together(slab, wanted, kernels) if wanted >= _TOGETHER_BYTES else {}
        while self.held_bytes > target and slab.first < slab.used:
            size, queue_id = _SIZE_AND_QUEUE.unpack_from(slab.view, slab.first)
            counts[queue_id] = counts.get(queue_id, 0) + 1
            slab.first += size
            self.held_bytes -= size + UNIT_BYTES
        if slab.first == slab.used:
            self._retire()
        return counts

    def _drop_together(self, slab: Slab, wanted: int, kernels: Kernels) -> dict[int, int]:
        """Let go of about so many bytes, never of more records than it takes; the rest goes one by one."""
        end = min(slab.first + wanted, slab.used)
        rows = kernels.scan(slab.data, slab.first, end, slab.base, _SIZES).rows
        freed = np.cumsum(rows["size"] + np.int64(UNIT_BYTES))
        count = int(np.searchsorted(freed, wanted)) + 1
        rows, freed = rows[:count], freed[:count]
        if len(rows):
            slab.first += int(freed[-1]) - len(rows) * UNIT_BYTES
            self.held_bytes -= int(freed[-1])
        found = np.unique(rows["queue_id"], return_counts=True)
        return dict(zip(*(part.tolist() for part in found), strict=True))

    def _retire(self) -> None:
        slab = self.slabs.popleft()
        if self.slabs:  # the end of a slab counts from when the next one is begun
            self.held_bytes -= slab.room
        self._log.remove(slab)

    def clear(self) -> None:
        while self.slabs:
            self._log.remove(self.slabs.popleft())
        self.held_bytes = 0
