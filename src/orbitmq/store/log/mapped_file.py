"""One segment of the commit log, held open and mapped into memory (RocketMQ: MappedFile).

Positions count from the start of the segment:

    0 <= flushed <= readable <= written <= size

`written` is how far the appender came, `committed` how far a transient buffer was handed to the file,
`flushed` how far the bytes are known to be on disk. `readable` is `written`, or `committed` while a
transient buffer is attached.

A mapping cannot be closed while someone holds a view of it; here it is dropped instead, and the
operating system unmaps it when the last view is gone. So a view that was handed out stays valid even
after its file was deleted.

Every mapping costs a descriptor (Python keeps one), so a list of many segments maps only some at a
time: `on_mapped` tells who to ask, `unmap` gives one up until it is read again.
"""

import logging
import mmap
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from orbitmq.clock import Clock
from orbitmq.errors import StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import make_durable_directory
from orbitmq.format.columns import Bytes
from orbitmq.store.log.page_memory import lock_pages, populate, resident_pages, unlock_pages
from orbitmq.units import PAGE_BYTES

_log = logging.getLogger(__name__)


class LogSpan(NamedTuple):
    """Bytes of the log that lie side by side: where in which file, and the bytes themselves."""

    path: Path
    position: int
    view: memoryview


class MappedFile:
    """A segment. Any thread may read; only the appender moves `written`; only the flusher `flushed`."""

    def __init__(self, disk: Disk, path: Path, base_offset: int, size: int) -> None:
        self.path, self.base_offset, self.size = path, base_offset, size
        self.written = self.committed = self.flushed = (
            size  # as RocketMQ loads them; recovery knows
        )
        self.buffer: mmap.mmap | None = None  # transient buffer, until all of it is committed
        self.prefaulted = 0  # how far pages are mapped for writing, see prefault
        self.data_end = size  # nothing worth writing lies behind: the bytes after a blank's header
        self.on_mapped: Callable[[MappedFile], None] | None = None
        self._disk = disk
        self._fd = -1  # open while there is something to write or to sync
        self._mapping: mmap.mmap | None = None
        self._writable = self._warmed = False
        self._read_ahead = True
        self._array: Bytes | None = None
        self._lock = threading.Lock()  # guards opening, closing and the reference count
        self._references = 1
        self._available = True
        self._shutdown_at_ms = 0.0
        self._closed = False

    @classmethod
    def create(
        cls, disk: Disk, path: Path, base_offset: int, size: int, *, sync: bool = True
    ) -> "MappedFile":
        """Make a new segment of zeros: its blocks are reserved before anything is mapped.

        Raises NoSpaceError and leaves no file behind when the disk is full.
        """
        file = cls(disk, path, base_offset, size)
        file.written = file.committed = file.flushed = 0
        if path.exists():
            raise WrongFileError(
                path,
                "a file lies where the next segment belongs",
                "Move it away, or run `orbitmq store check` on the directory.",
            )
        make_durable_directory(disk, path.parent)
        fd = disk.open(path, create=True)
        try:
            disk.allocate(path, fd, size)
            if sync:
                disk.sync_data(path, fd)
                disk.sync_directory(path.parent)
            file._fd, file._writable = fd, True
            file._mapping = disk.map(path, fd, size, writable=True)
        except StoreError:
            disk.close(path, fd)
            disk.remove(path)
            raise
        return file

    # Mapping

    def writable_mapping(self) -> mmap.mmap:
        """Return the mapping, opened for writing; only the appender and recovery write to it."""
        with self._lock:
            if self._mapping is None or not self._writable:
                self._open(writable=True)
            assert self._mapping is not None
            return self._mapping

    @property
    def target(self) -> mmap.mmap:
        """Where appends go: the transient buffer if there is one, else the mapping."""
        return self.buffer if self.buffer is not None else self.writable_mapping()

    @property
    def array(self) -> Bytes:
        """The whole segment as a read-only array; look at it only up to `readable`."""
        array = self._array
        if array is None:
            with self._lock:
                is_new = self._mapping is None
                if is_new:
                    self._open(writable=False)
                array = np.frombuffer(self._mapping, dtype=np.uint8)  # type: ignore[arg-type]
                array.flags.writeable = False
                self._array = array
            if is_new and self.on_mapped is not None:
                self.on_mapped(self)
        return array

    @property
    def view(self) -> memoryview:
        """The whole segment as a read-only view; look at it only up to `readable`."""
        return self.array.data

    def slice(self, position: int, length: int) -> memoryview | None:
        """Return a view of these bytes, or None if they are not all readable."""
        if position < 0 or length < 0 or position + length > self.readable or self._closed:
            return None
        try:
            return self.view[position : position + length]
        except StoreError:
            if self._closed:  # removed a moment ago
                return None
            raise

    def _open(self, *, writable: bool) -> None:
        if self._closed:
            step = "Ask for the minimum offset again: the log was cleaned meanwhile."
            raise StoreError(self.path, "the segment was already removed", step)
        if writable and self._fd >= 0:
            self._mapping = self._disk.map(self.path, self._fd, self.size, writable=True)
        else:
            fd = self._open_file(writable=writable)
            try:
                self._mapping = self._disk.map(self.path, fd, self.size, writable=writable)
            except StoreError:
                self._disk.close(self.path, fd)
                raise
            if writable:
                self._fd = fd
            else:
                self._disk.close(self.path, fd)
        self._writable = writable
        self._array = None
        if not self._read_ahead and self._mapping is not None:
            self._mapping.madvise(mmap.MADV_RANDOM)

    def _open_file(self, *, writable: bool) -> int:
        fd = self._disk.open(self.path, writable=writable)
        length = self._disk.length(self.path, fd)
        if length == self.size:
            return fd
        self._disk.close(self.path, fd)
        raise WrongFileError(
            self.path,
            f"the segment has {length} bytes, the setting says {self.size}",
            "Set mappedFileSizeCommitLog to what the store was written with, "
            "or run `orbitmq store check`.",
        )

    def _writing_fd(self) -> int:
        with self._lock:
            if self._fd < 0:
                self._fd = self._open_file(writable=True)
            return self._fd

    def unmap(self) -> bool:
        """Give up the mapping until it is asked for again; only of a segment that is full and flushed."""
        with self._lock:
            if self.flushed < self.size or self.buffer is not None:
                return False
            self._drop_mapping()
            return True

    def _drop_mapping(self) -> None:
        self._array = None
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            try:
                mapping.close()
            except BufferError:
                _log.debug("segment %s: a reader still has a view of it", self.path.name)
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._disk.close(self.path, fd)

    # Positions

    @property
    def readable(self) -> int:
        """How far readers may look."""
        return self.written if self.buffer is None else self.committed

    @property
    def is_full(self) -> bool:
        return self.written == self.size

    @property
    def end_offset(self) -> int:
        """Log offset behind the segment's last byte."""
        return self.base_offset + self.size

    def set_positions(self, position: int) -> None:
        """Take `position` as the end of what is written, committed and flushed (recovery)."""
        assert 0 <= position <= self.size
        self.written = self.committed = self.flushed = position
        self.data_end = self.size

    def flush_due(self, least_pages: int) -> bool:
        """Tell whether `flush(least_pages)` would do something."""
        return _due(self.flushed, self.readable, least_pages, full=self.is_full)

    def flush(self, least_pages: int = 0) -> int:
        """Make the readable bytes durable if enough pages are dirty; return the flushed position."""
        readable = self.readable
        if self.flush_due(least_pages):
            self.sync(self.flushed, readable - self.flushed)
            self.flushed = readable
            if readable == self.size:
                self._finish()
        return self.flushed

    def _finish(self) -> None:
        """Give up what only a segment in use needs: nothing more is written or synced."""
        with self._lock:
            if self._warmed and self._mapping is not None:
                unlock_pages(self._mapping)
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                self._disk.close(self.path, fd)

    def sync(self, position: int = 0, length: int = 0) -> None:
        """Make the file's bytes durable, whatever the positions say."""
        self._disk.sync_data(self.path, self._writing_fd(), position, length)

    def commit(self, least_pages: int = 0) -> int:
        """Hand the transient buffer's new bytes to the file; return the committed position."""
        buffer, written = self.buffer, self.written
        if buffer is None:
            return written
        if _due(self.committed, written, least_pages, full=self.is_full):
            # Behind a blank's header the buffer may hold an earlier segment's bytes: keep the zeros.
            end = min(written, self.data_end)
            if end > self.committed:
                self.write(self.committed, memoryview(buffer)[self.committed : end])
            self.committed = written
        return self.committed

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        """Write by the file descriptor, not through the mapping."""
        self._disk.write_at(self.path, self._writing_fd(), position, data)

    def detach_buffer(self) -> mmap.mmap | None:
        """Give the transient buffer back once all of it is in the file."""
        if self.buffer is None or self.committed < self.size:
            return None
        buffer, self.buffer = self.buffer, None
        return buffer

    # Warming

    def prefault(self, end: int) -> None:
        """Let the kernel map the pages up to position `end` for writing, so that no append faults on them."""
        start, end = self.prefaulted, min(end, self.size)
        if start >= end or self._closed:
            return
        self.prefaulted = end  # first: a failure is not tried again
        populate(self.writable_mapping(), start, end)

    def warm(self, *, sync_every_pages: int = 0) -> None:
        """Touch every page with a zero and lock the segment in memory, so that no append faults.

        Only for a new segment. With `sync_every_pages` the zeros are synced on the way.
        """
        mapping = self.writable_mapping()
        step = (sync_every_pages or self.size) * PAGE_BYTES
        pages = np.frombuffer(mapping, dtype=np.uint8)
        for start in range(0, self.size, step):
            pages[start : start + step : PAGE_BYTES] = 0
            if sync_every_pages:
                self.sync(start, min(step, self.size - start))
        del pages
        self._warmed = True
        problem = lock_pages(mapping)
        if problem:
            _log.warning("segment %s: not locked in memory: %s", self.path.name, problem)
        mapping.madvise(mmap.MADV_WILLNEED)

    def read_ahead(self, enabled: bool) -> None:
        """Tell the operating system whether to read ahead, now and whenever this is mapped again."""
        with self._lock:
            changed, self._read_ahead = self._read_ahead != enabled, enabled
            if changed and self._mapping is not None:
                self._mapping.madvise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)

    def resident_pages(self) -> int:
        """Count the segment's pages that are in memory now."""
        return resident_pages(self.writable_mapping())

    # Reference counting: who uses the segment, and when it may go

    @property
    def is_available(self) -> bool:
        """False from the first attempt to destroy it on."""
        return self._available

    @property
    def is_closed(self) -> bool:
        return self._closed

    def hold(self) -> bool:
        """Keep the segment from being removed; False if it is already on its way out."""
        with self._lock:
            if not self._available or self._references <= 0:
                return False
            self._references += 1
            return True

    def release(self) -> None:
        """Give back one `hold`."""
        with self._lock:
            self._references -= 1
            self._close_if_unused()

    def shutdown(self, clock: Clock, forced_after_ms: float) -> None:
        """Take no more readers; close now if there are none, or if the first try was long ago."""
        with self._lock:
            if self._available:
                self._available = False
                self._shutdown_at_ms = clock.monotonic_ms()
                self._references -= 1
            elif clock.monotonic_ms() - self._shutdown_at_ms >= forced_after_ms:
                self._references = 0
            self._close_if_unused()

    def destroy(self, clock: Clock, forced_after_ms: float) -> bool:
        """Remove the segment's file if nobody holds it (or held it for too long); tell whether it is gone."""
        self.shutdown(clock, forced_after_ms)
        if not self._closed:
            return False
        self.remove_file()
        return True

    def remove_file(self) -> None:
        if self.path.exists():
            self._disk.remove(self.path)

    def close(self) -> None:
        """Unmap and close at once; the file stays."""
        with self._lock:
            self._available = False
            self._references = 0
            self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._references > 0 or self._closed:
            return
        self._closed = True
        self._drop_mapping()


def _due(done: int, reached: int, least_pages: int, *, full: bool) -> bool:
    if full and reached > done:
        return True
    if least_pages > 0:
        return reached // PAGE_BYTES - done // PAGE_BYTES >= least_pages
    return reached > done
