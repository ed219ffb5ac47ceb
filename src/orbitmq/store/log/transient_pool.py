"""Buffers for appends that do not touch the page cache at once (RocketMQ: TransientStorePool).

An append goes to a buffer in private memory; the commit thread writes it to the segment's file later.
Faster under a slow disk, and everything that is not yet committed dies with the process.
"""

import mmap
import threading


class TransientPool:
    """A fixed number of buffers of one segment each. Any thread may use it."""

    def __init__(self, count: int, segment_bytes: int) -> None:
        self._segment_bytes = segment_bytes
        self._unmade = (
            count  # buffers are made when first wanted: five gigabytes are not always used
        )
        self._free: list[mmap.mmap] = []
        self._lock = threading.Lock()  # guards the two above

    @property
    def free_count(self) -> int:
        return self._unmade + len(self._free)

    def borrow(self) -> mmap.mmap | None:
        """Return a buffer, with whatever bytes its last user left, or None if all are in use."""
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._unmade == 0:
                return None
            self._unmade -= 1
        return mmap.mmap(-1, self._segment_bytes)

    def give_back(self, buffer: mmap.mmap) -> None:
        with self._lock:
            self._free.append(buffer)

    def close(self) -> None:
        with self._lock:
            for buffer in self._free:
                buffer.close()
            self._free.clear()
