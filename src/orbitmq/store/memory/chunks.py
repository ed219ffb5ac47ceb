"""Where the records of topics in memory lie: chunks of bytes, each with log offsets of its own.

A chunk belongs to one topic, so that what a topic lets go of is memory that is given back. Log offsets of
chunks start at `MEMORY_LOG_OFFSET`, above everything that a log on disk can reach, and are never used twice.
"""

import struct
from bisect import bisect_right
from collections import deque
from typing import Final

import numpy as np

from orbitmq.format.columns import Bytes
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.record import QUEUE_ID_AT, store_ms_at
from orbitmq.units import KiB

CHUNK_BYTES_LEAST: Final = 4 * KiB
_SHARE: Final = 32
"""A new chunk is this part of what its topic holds: what lies idle in a topic's first and last is little."""
_SIZE_AND_QUEUE: Final = struct.Struct(f">i{QUEUE_ID_AT - 4}xi")


class Chunk:
    """Records of one topic, one after another: those at [first, used) are there."""

    __slots__ = ("base", "data", "first", "used", "view")

    def __init__(self, base: int, size: int) -> None:
        self.base = base
        self.data: Bytes = np.empty(size, dtype=np.uint8)
        self.view = self.data.data
        self.first = self.used = 0

    @property
    def room(self) -> int:
        return len(self.view) - self.used


class MemoryLog:
    """All chunks by their log offsets, to be read as a log is (`RecordReader`)."""

    def __init__(self, start: int) -> None:
        self.next_offset = start  # of the next chunk
        self._bases: list[int] = []
        self._chunks: list[Chunk] = []

    def add(self, size: int) -> Chunk:
        chunk = Chunk(self.next_offset, size)
        self._bases.append(chunk.base)
        self._chunks.append(chunk)
        self.next_offset += size
        return chunk

    def remove(self, chunk: Chunk) -> None:
        at = bisect_right(self._bases, chunk.base) - 1
        assert self._chunks[at] is chunk
        del self._bases[at], self._chunks[at]

    def find(self, log_offset: int) -> Chunk | None:
        """Return the chunk whose records may lie at this log offset."""
        at = bisect_right(self._bases, log_offset) - 1
        return self._chunks[at] if at >= 0 else None

    def visible_offset(self) -> int:
        return self.next_offset

    def read(self, log_offset: int, size: int) -> memoryview | None:
        """Return these bytes, None if they are not, or no longer, in one chunk."""
        chunk = self.find(log_offset)
        if chunk is None:
            return None
        start = log_offset - chunk.base
        if not chunk.first <= start <= start + size <= chunk.used:
            return None
        return chunk.view[start : start + size]

    @property
    def allocated_bytes(self) -> int:
        return sum(len(chunk.view) for chunk in self._chunks)


class TopicRecords:
    """The records of one topic, the oldest first, and what they count against the limit."""

    def __init__(self, log: MemoryLog, chunk_bytes_max: int) -> None:
        self._log, self._chunk_bytes_max = log, chunk_bytes_max
        self.chunks: deque[Chunk] = deque()
        self.held_bytes = 0
        """Records, their units, and the ends of full chunks, which no record fitted into."""

    def growth(self, size: int, count: int) -> int:
        """Return by how much `held_bytes` grows with so many records of this size together."""
        lost = self.chunks[-1].room if self.chunks and self.chunks[-1].room < size else 0
        return lost + size + count * UNIT_BYTES

    def next_log_offset(self, size: int) -> int:
        """Return where `take` will put so much."""
        if not self.chunks or self.chunks[-1].room < size:
            return self._log.next_offset
        return self.chunks[-1].base + self.chunks[-1].used

    def take(self, size: int, count: int) -> tuple[Chunk, int]:
        """Return a chunk and the position where records of this size are to be written now."""
        self.held_bytes += self.growth(size, count)
        if not self.chunks or self.chunks[-1].room < size:
            usual = max(self.held_bytes // _SHARE, CHUNK_BYTES_LEAST)
            self.chunks.append(self._log.add(max(min(usual, self._chunk_bytes_max), size)))
        chunk = self.chunks[-1]
        at = chunk.used
        chunk.used += size
        return chunk, at

    def oldest_ms(self) -> int:
        """Return when the oldest record was stored; there is one."""
        return store_ms_at(self.chunks[0].view, self.chunks[0].first)

    def drop(self, wanted: int) -> dict[int, int]:
        """Let the oldest records go until so many bytes are free; return how many of each queue."""
        counts: dict[int, int] = {}
        target = max(self.held_bytes - wanted, 0)
        while self.chunks and self.held_bytes > target:
            chunk = self.chunks[0]
            size, queue_id = _SIZE_AND_QUEUE.unpack_from(chunk.view, chunk.first)
            counts[queue_id] = counts.get(queue_id, 0) + 1
            chunk.first += size
            self.held_bytes -= size + UNIT_BYTES
            if chunk.first == chunk.used:
                self._retire()
        return counts

    def _retire(self) -> None:
        chunk = self.chunks.popleft()
        if self.chunks:  # the end of a chunk counts from when the next one is begun
            self.held_bytes -= chunk.room
        self._log.remove(chunk)

    def clear(self) -> None:
        while self.chunks:
            self._log.remove(self.chunks.popleft())
        self.held_bytes = 0
