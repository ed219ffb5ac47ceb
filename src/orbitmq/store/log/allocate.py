"""The next segments, preallocated (RocketMQ: AllocateMappedFileService).

Reserving a gigabyte takes milliseconds, syncing the directory more. When a segment comes into use its
two successors are asked for, and a background thread makes them; the appender finds the next one
ready. Those that were never used are removed when the store is closed.

The same thread prefaults the pages just ahead of the appender: the first write to a page of a file
costs microseconds in the kernel, and a sync that meets no fresh page has less to write down.
"""

import logging
import threading
import time
from collections.abc import Callable

from orbitmq.errors import StoreError
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.store.service import thread_state
from orbitmq.store.statistics import Timing

_log = logging.getLogger(__name__)

PREALLOCATED = 2


class SegmentAllocator:
    """Preallocates segments. `take` belongs to the appender, the rest to any thread."""

    def __init__(
        self,
        create: Callable[[int], MappedFile],
        segment_bytes: int,
        *,
        wait_ms: float = 5_000,
        timing: Timing | None = None,
    ) -> None:
        self._create = create
        self._segment_bytes = segment_bytes
        self._wait_ms = wait_ms
        self._timing = timing if timing is not None else Timing()
        self._condition = threading.Condition()  # guards the five below
        self._wanted: list[int] = []
        self._making: int | None = None
        self._ready: dict[int, MappedFile] = {}
        self._stopping = False
        self._pages: tuple[MappedFile, int] | None = None  # to be prefaulted up to here
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make the wanted segments in a thread of its own from now on."""
        self._thread = threading.Thread(target=self._run, name="orbitmq-allocate", daemon=True)
        self._thread.start()

    @property
    def state(self) -> str:
        return thread_state(self._thread)

    def request_after(self, base_offset: int) -> None:
        """Ask for the two successors of the segment with this base offset."""
        with self._condition:
            for number in range(1, PREALLOCATED + 1):
                wanted = base_offset + number * self._segment_bytes
                known = wanted in self._ready or wanted in self._wanted or wanted == self._making
                if not known:
                    self._wanted.append(wanted)
            self._condition.notify_all()

    def prefault(self, segment: MappedFile, end: int) -> None:
        """Have the pages of the segment in use prefaulted up to position `end`; only the thread does that."""
        if self._thread is None:
            return
        with self._condition:
            self._pages = (segment, end)
            self._condition.notify_all()

    def take(self, base_offset: int) -> MappedFile:
        """Return the segment with this base offset, ready made or made now.

        Raises the StoreError that making it gave; the next call tries again.
        """
        with self._condition:
            if self._thread is not None:
                # Not here while the thread makes its successor: a kill in between would leave a gap.
                self._condition.wait_for(
                    lambda: not self._awaits(base_offset), self._wait_ms / 1000
                )
            if self._making == base_offset:
                step = "Look at the disk: it takes seconds to reserve a segment."
                raise StoreError(self._root(), "the next segment is not ready in time", step)
            segment = self._ready.pop(base_offset, None)
            if segment is not None:
                return segment
            if base_offset in self._wanted:
                self._wanted.remove(base_offset)
        return self._make(base_offset)

    def _awaits(self, base_offset: int) -> bool:
        return self._making == base_offset or base_offset in self._wanted

    def give_back(self, segment: MappedFile) -> None:
        """Keep a segment that was taken but not used."""
        with self._condition:
            self._ready[segment.base_offset] = segment

    def make_wanted(self) -> None:
        """Make what was asked for in this thread; one failure ends the round and is logged."""
        while self._make_next():
            pass

    def stop(self) -> None:
        """End the thread and remove the segments that were not used."""
        with self._condition:
            self._stopping = True
            self._wanted.clear()
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join()
        # The last one first: a process that dies in between must not leave a gap in the log.
        for _, segment in sorted(self._ready.items(), reverse=True):
            segment.close()
            try:
                segment.remove_file()
            except StoreError as error:
                _log.warning("segment %s: not removed: %s", segment.path.name, error)
        self._ready.clear()

    @property
    def ready_offsets(self) -> list[int]:
        with self._condition:
            return sorted(self._ready)

    def _run(self) -> None:
        while True:
            with self._condition:
                self._condition.wait_for(lambda: self._wanted or self._stopping or self._pages)
                if self._stopping:
                    return
                pages, self._pages = self._pages, None
            if pages is not None:
                segment, end = pages
                segment.prefault(end)
            self._make_next()

    def _make_next(self) -> bool:
        with self._condition:
            if not self._wanted:
                return False
            base_offset = self._making = self._wanted.pop(0)
        segment: MappedFile | None = None
        try:
            segment = self._make(base_offset)
        except StoreError as error:
            # No harm yet: the appender tries again when it needs the segment, and tells its caller.
            _log.warning("segment at offset %d, not preallocated: %s", base_offset, error)
        finally:
            self._finished(base_offset, segment)
        return segment is not None

    def _finished(self, base_offset: int, segment: MappedFile | None) -> None:
        with self._condition:
            self._making = None
            if segment is not None:
                self._ready[base_offset] = segment
            else:
                self._wanted.clear()  # a later segment without this one would be a gap in the log
            self._condition.notify_all()

    def _make(self, base_offset: int) -> MappedFile:
        started = time.perf_counter_ns()
        segment = self._create(base_offset)
        self._timing.add(time.perf_counter_ns() - started)
        return segment

    def _root(self) -> str:
        return f"commit log, offset {self._making}"
