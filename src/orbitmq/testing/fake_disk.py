"""Disks that misbehave: `FaultyDisk` fails or writes short on request, `PowerCutDisk` loses power."""

import errno as errno_numbers
import fnmatch
import functools
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Concatenate, ParamSpec, TypeVar

from orbitmq.errors import StoreError, io_error
from orbitmq.files.disk import Disk, FilePath
from orbitmq.testing.forwarding_disk import ForwardingDisk
from orbitmq.testing.power_cut import PowerCutDisk, power_cut

__all__ = ["Fault", "FaultyDisk", "ForwardingDisk", "PowerCutDisk", "power_cut"]

P = ParamSpec("P")
T = TypeVar("T")


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


def _failing(operation: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that does this operation unless a rule makes it fail first."""
    name = operation.__name__

    @functools.wraps(operation)
    def call(self: "FaultyDisk", /, *arguments: P.args, **named: P.kwargs) -> T:
        path: Any = arguments[0]
        self._check(name, path)
        return operation(self, *arguments, **named)

    return call


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

    open = _failing(ForwardingDisk.open)
    length = _failing(ForwardingDisk.length)
    read_at = _failing(ForwardingDisk.read_at)
    truncate = _failing(ForwardingDisk.truncate)
    allocate = _failing(ForwardingDisk.allocate)
    zero = _failing(ForwardingDisk.zero)
    map = _failing(ForwardingDisk.map)
    sync_data = _failing(ForwardingDisk.sync_data)
    sync_directory = _failing(ForwardingDisk.sync_directory)
    sync_file_system = _failing(ForwardingDisk.sync_file_system)
    rename = _failing(ForwardingDisk.rename)
    exchange = _failing(ForwardingDisk.exchange)
    remove = _failing(ForwardingDisk.remove)
    remove_directory = _failing(ForwardingDisk.remove_directory)
    make_directory = _failing(ForwardingDisk.make_directory)

    def close(self, path: FilePath, fd: int) -> None:
        super().close(path, fd)  # Linux closes even if it reports an error
        self._check("close", path)

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


_OPERATIONS = frozenset(name for name in vars(Disk) if not name.startswith("_"))
_WORDS = {"write_at": "write", "read_at": "read", "sync_data": "sync", "remove": "delete"}


def _error(fault: Fault, operation: str, path: FilePath) -> StoreError:
    cause = OSError(fault.errno, os.strerror(fault.errno))
    words = _WORDS.get(operation, operation.replace("_", " "))
    return io_error(path, words, cause)
