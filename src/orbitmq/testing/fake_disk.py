"""Disks that misbehave: `FaultyDisk` fails or writes short on request, `PowerCutDisk` loses power."""

import errno as errno_numbers
import fnmatch
import mmap
import os
import threading
from dataclasses import dataclass, field

from orbitmq.errors import StoreError, io_error
from orbitmq.files.disk import Disk, FilePath
from orbitmq.testing.forwarding_disk import ForwardingDisk
from orbitmq.testing.power_cut import PowerCutDisk, power_cut

__all__ = ["Fault", "FaultyDisk", "ForwardingDisk", "PowerCutDisk", "power_cut"]


@dataclass(slots=True)
class Fault:
    """One rule: which calls fail, and how. `hits` counts the calls that it made fail."""

    operation: str  # a method of Disk, or "*"
    glob: str  # compared with the whole path and with the file's name
    errno: int
    nth: int  # the first call that fails, counted from 1 among those that match
    times: int | None  # how many calls fail from there on; None: all
    written_bytes: int | None  # for write_at: how many bytes still reach the file
    seen: int = 0
    hits: int = 0
    calls: list[str] = field(default_factory=list)

    def matches(self, operation: str, path: str) -> bool:
        if self.operation not in ("*", operation):
            return False
        name = os.path.basename(path)  # noqa: PTH119
        return fnmatch.fnmatchcase(path, self.glob) or fnmatch.fnmatchcase(name, self.glob)

    def strikes(self, path: str) -> bool:
        """Count a call that matches; return whether it fails."""
        self.seen += 1
        last = None if self.times is None else self.nth + self.times - 1
        if self.seen < self.nth or (last is not None and self.seen > last):
            return False
        self.hits += 1
        self.calls.append(path)
        return True


class FaultyDisk(ForwardingDisk):
    """A disk that fails where it is told to. Any thread may use it.

    disk.fail("sync_data", "*/commitlog/*", errno.EIO, nth=3)          the third sync, once
    disk.fail("write_at", "*", errno.ENOSPC, times=None, written_bytes=7)   from now on; 7 bytes get through
    """

    def __init__(self, disk: Disk | None = None) -> None:
        super().__init__(disk)
        self._lock = threading.Lock()  # guards the rules
        self._faults: list[Fault] = []

    def fail(
        self,
        operation: str,
        glob: str = "*",
        errno: int = errno_numbers.EIO,
        *,
        nth: int = 1,
        times: int | None = 1,
        written_bytes: int | None = None,
    ) -> Fault:
        """Add a rule and return it, so that a test can see whether it was met."""
        if operation != "*" and operation not in _OPERATIONS:
            raise ValueError(f"{operation} is no operation of a Disk")
        fault = Fault(operation, glob, errno, nth, times, written_bytes)
        with self._lock:
            self._faults.append(fault)
        return fault

    def heal(self) -> None:
        """Forget all rules."""
        with self._lock:
            self._faults.clear()

    def _check(self, operation: str, path: FilePath) -> None:
        fault = self._find(operation, path)
        if fault is not None:
            raise _error(fault, operation, path)

    def _find(self, operation: str, path: FilePath) -> Fault | None:
        with self._lock:
            matching = [fault for fault in self._faults if fault.matches(operation, str(path))]
            struck = [fault for fault in matching if fault.strikes(str(path))]
        return struck[0] if struck else None

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        self._check("open", path)
        return super().open(path, create=create, writable=writable)

    def close(self, path: FilePath, fd: int) -> None:
        super().close(path, fd)  # Linux closes even if it reports an error
        self._check("close", path)

    def length(self, path: FilePath, fd: int) -> int:
        self._check("length", path)
        return super().length(path, fd)

    def read_at(self, path: FilePath, fd: int, position: int, length: int) -> bytes:
        self._check("read_at", path)
        return super().read_at(path, fd, position, length)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        fault = self._find("write_at", path)
        if fault is None:
            super().write_at(path, fd, position, data)
            return
        if fault.written_bytes:
            super().write_at(path, fd, position, memoryview(data).cast("B")[: fault.written_bytes])
        raise _error(fault, "write_at", path)

    def truncate(self, path: FilePath, fd: int, length: int) -> None:
        self._check("truncate", path)
        super().truncate(path, fd, length)

    def allocate(self, path: FilePath, fd: int, length: int) -> None:
        self._check("allocate", path)
        super().allocate(path, fd, length)

    def zero(
        self, path: FilePath, fd: int, position: int, length: int, *, keep_blocks: bool = False
    ) -> None:
        self._check("zero", path)
        super().zero(path, fd, position, length, keep_blocks=keep_blocks)

    def map(
        self, path: FilePath, fd: int, length: int, *, writable: bool, offset: int = 0
    ) -> mmap.mmap:
        self._check("map", path)
        return super().map(path, fd, length, writable=writable, offset=offset)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self._check("sync_data", path)
        super().sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self._check("sync_directory", path)
        super().sync_directory(path)

    def sync_file_system(self, path: FilePath) -> None:
        self._check("sync_file_system", path)
        super().sync_file_system(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self._check("rename", source)
        super().rename(source, target)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        self._check("exchange", first)
        return super().exchange(first, second)

    def remove(self, path: FilePath) -> None:
        self._check("remove", path)
        super().remove(path)

    def remove_directory(self, path: FilePath) -> None:
        self._check("remove_directory", path)
        super().remove_directory(path)

    def make_directory(self, path: FilePath) -> None:
        self._check("make_directory", path)
        super().make_directory(path)


_OPERATIONS = frozenset(name for name in vars(Disk) if not name.startswith("_"))
_WORDS = {"write_at": "write", "read_at": "read", "sync_data": "sync", "remove": "delete"}


def _error(fault: Fault, operation: str, path: FilePath) -> StoreError:
    cause = OSError(fault.errno, os.strerror(fault.errno))
    words = _WORDS.get(operation, operation.replace("_", " "))
    return io_error(path, words, cause)
