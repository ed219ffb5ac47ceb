"""The files of all queues of one family: where each unit lies, reading, writing, cutting and syncing them."""

import errno
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError, io_error
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_unit import UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.segment_name import parse_segment_name, segment_name
from orbitmq.store.queues.names import QueueNames
from orbitmq.units import MiB

Units = npt.NDArray[np.void]

_READ_BYTES: Final = 1 * MiB // UNIT_BYTES * UNIT_BYTES


class UnitFiles:
    """Positioned access to units. Any thread may read; who writes holds the lock.

    Ext units have any size: there each byte counts as a unit.
    """

    def __init__(
        self,
        layout: StoreLayout,
        files: FileCache,
        names: QueueNames,
        kind: QueueKind = QueueKind.SIMPLE,
        unit_bytes: int = UNIT_BYTES,
    ) -> None:
        self.layout = layout
        self.files = files
        self.names = names
        self.file_bytes = layout.queue_file_bytes(kind)
        self.file_units = self.file_bytes // unit_bytes
        self.lock = threading.RLock()  # guards what is written, and what is known of it
        self._unit_bytes = unit_bytes
        self._root = str(layout.queue_root(kind))
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

    def place(self, number: int, unit: int) -> tuple[str, int]:
        """Return the file and the position in it of a unit."""
        index, inside = divmod(unit, self.file_units)
        return self.path(number, index * self.file_bytes), inside * self._unit_bytes

    def directory(self, number: int) -> str:
        # Not Path: this is called for tens of thousands of queues a second, and the topic was
        # checked when the queue was added.
        topic, queue_id = self.names.name(number)
        return f"{self._root}/{topic}/{queue_id}"

    def path(self, number: int, base: int) -> str:
        """Return the file of a queue that starts at byte `base`."""
        return f"{self.directory(number)}/{segment_name(base)}"

    def bases(self, number: int) -> list[int]:
        """Return where each file of a queue starts, in order; nothing if there is no directory."""
        return list_bases(self.directory(number))

    def write_units(self, number: int, first: int, data: bytes | bytearray) -> None:
        """Write units to a queue's files, each file's part in one call."""
        view = memoryview(data)
        file_bytes = self.file_bytes
        done = 0
        while done < len(view):
            path, position = self.place(number, first + done // self._unit_bytes)
            part = view[done : done + file_bytes - position]
            self.files.write(path, position, part, file_bytes=file_bytes)
            self._unsynced.add(path)
            done += len(part)

    def sync(self) -> None:
        """Make everything durable that was written."""
        with self.lock:
            paths, self._unsynced = self._unsynced, set()
        try:
            self.files.sync(paths)
        except StoreError:
            with self.lock:
                self._unsynced |= paths
            raise

    def cut_files(self, number: int, end: int, bases: Sequence[int] | None = None) -> None:
        """Zero and remove what a queue's files hold from unit `end` on.

        `bases` is where the files start that are meant, if not all. The last one goes first: after a crash
        in between, the files that are left still follow one another.
        """
        self.cut_directory(self.directory(number), end, bases)

    def cut_directory(self, directory: str, end: int, bases: Sequence[int] | None = None) -> None:
        """Do the same for a queue that may have no number."""
        end_byte = end * self._unit_bytes
        for base in reversed(list_bases(directory) if bases is None else bases):
            path = f"{directory}/{segment_name(base)}"
            if base >= end_byte:
                self.forget_files([path])
            elif base + self.file_bytes > end_byte:
                self.files.truncate_zero(path, end_byte - base)
                self._unsynced.add(path)

    def forget_files(self, paths: Iterable[str]) -> None:
        """Remove files and forget that they were to be synced."""
        for path in paths:
            self.files.remove(path, missing_ok=True)
            self._unsynced.discard(path)


def list_bases(directory: str) -> list[int]:
    """Return where each file of a queue starts, in order; nothing if there is no directory."""
    try:
        names = os.listdir(directory)  # noqa: PTH208  (half the cost of iterdir)
    except FileNotFoundError:
        return []
    except OSError as cause:
        raise io_error(directory, "list", cause) from cause
    bases = [base for name in names if (base := parse_segment_name(name)) is not None]
    return sorted(bases)


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
