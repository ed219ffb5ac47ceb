"""The files of all simple queues: where each unit lies, reading, writing and syncing them."""

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError, io_error
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_unit import UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.segment_name import segment_name
from orbitmq.store.queues.names import QueueNames
from orbitmq.units import MiB

Units = npt.NDArray[np.void]

_READ_BYTES: Final = 1 * MiB // UNIT_BYTES * UNIT_BYTES


class UnitFiles:
    """Positioned access to units. Any thread may read; who writes holds the lock."""

    def __init__(self, layout: StoreLayout, files: FileCache, names: QueueNames) -> None:
        self.layout = layout
        self.files = files
        self.names = names
        self.file_units = layout.cq_file_bytes // UNIT_BYTES
        self.lock = threading.RLock()  # guards what is written, and what is known of it
        self._root = str(layout.queue_root(QueueKind.SIMPLE))
        self._unsynced: set[str] = set()

    def read_file(self, number: int, first: int, length: int) -> bytes:
        """Return what the file that holds unit `first` has from there on; nothing if it is missing."""
        if length <= 0:
            return b""
        path, position = self.place(number, first)
        try:
            return self.files.read(path, position, length)
        except StoreError as error:
            if is_missing(error):
                return b""
            raise

    def place(self, number: int, queue_offset: int) -> tuple[str, int]:
        """Return the file and the position in it of a unit."""
        index, inside = divmod(queue_offset, self.file_units)
        return self.path(number, index * self.layout.cq_file_bytes), inside * UNIT_BYTES

    def directory(self, number: int) -> str:
        # Not Path: this is called for tens of thousands of queues a second, and the topic was
        # checked when the queue was added.
        topic, queue_id = self.names.name(number)
        return f"{self._root}/{topic}/{queue_id}"

    def path(self, number: int, base: int) -> str:
        """Return the file of a queue that starts at byte `base`."""
        return f"{self.directory(number)}/{segment_name(base)}"

    def write_units(self, number: int, first: int, data: bytes | bytearray) -> None:
        """Write units to a queue's files, each file's part in one call."""
        view = memoryview(data)
        file_bytes = self.layout.cq_file_bytes
        done = 0
        while done < len(view):
            path, position = self.place(number, first + done // UNIT_BYTES)
            part = view[done : done + file_bytes - position]
            self.files.write(path, position, part, file_bytes=file_bytes)
            self._unsynced.add(path)
            done += len(part)

    def sync_files(self) -> None:
        """Make everything durable that was written."""
        with self.lock:
            paths, self._unsynced = self._unsynced, set()
        try:
            self.files.sync(paths)
        except StoreError:
            with self.lock:
                self._unsynced |= paths
            raise

    def mark_unsynced(self, paths: Iterable[str]) -> None:
        with self.lock:
            self._unsynced.update(paths)

    def forget_files(self, paths: Iterable[str]) -> None:
        """Remove files and forget that they were to be synced."""
        for path in paths:
            self.files.remove(path, missing_ok=True)
            self._unsynced.discard(path)


def stored_units(path: str, position: int, end: int) -> Iterator[tuple[int, Units]]:
    """Yield (position, units) of a file, without reading its holes; nothing without a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as cause:
        raise io_error(path, "open", cause) from cause
    try:
        while position < end:
            position, data_end = _next_data(fd, position, end)
            data = os.pread(fd, min(_READ_BYTES, data_end - position), position)
            whole = len(data) // UNIT_BYTES
            if not whole:
                return
            yield position, np.frombuffer(data, UNIT_DTYPE, whole)
            position += whole * UNIT_BYTES
    except OSError as cause:
        raise io_error(path, "read", cause) from cause
    finally:
        os.close(fd)


def _next_data(fd: int, position: int, end: int) -> tuple[int, int]:
    """Return the next range of whole units that may hold data, an empty one if there is none."""
    try:
        data_at = os.lseek(fd, position, os.SEEK_DATA)
        hole_at = os.lseek(fd, data_at, os.SEEK_HOLE)
    except OSError as cause:
        # A file system that cannot tell has to be read.
        return (end, end) if cause.errno == errno.ENXIO else (position, end)
    start = max(position, data_at // UNIT_BYTES * UNIT_BYTES)
    return min(start, end), min(-(-hole_at // UNIT_BYTES) * UNIT_BYTES, end)
