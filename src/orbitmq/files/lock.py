"""One process per store: the lock that a RocketMQ broker takes too.

It is a POSIX record lock on byte 0 of the file `lock`, exclusive. Such a lock belongs to the process, not to
the descriptor: closing any descriptor of that file gives it up. So a second opener in the same
process is found by a table and never opens the file.
"""

import fcntl
import os
import struct
import threading
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreLockedError, io_error
from orbitmq.files.disk import Disk

_CONTENT: Final = b"lock"
_FLOCK: Final = struct.Struct(
    "hhqqi4x"
)  # type, whence, start, length, pid: struct flock on 64-bit Linux
_HELD: Final[dict[tuple[int, int], int]] = {}  # (device, inode) -> the process that holds it
_HELD_LOCK: Final = threading.Lock()  # guards _HELD


class StoreLock:
    """Exclusive use of a store directory, from `acquire` to `release`. Any thread may release it."""

    def __init__(self, disk: Disk, path: Path, *, abort: Path | None = None) -> None:
        self._disk = disk
        self._path = path
        self._abort = abort or path.with_name("abort")
        self._fd: int | None = None
        self._identity: tuple[int, int] = (-1, -1)

    def acquire(self) -> "StoreLock":
        """Take the lock or raise StoreLockedError at once; never waits."""
        with _HELD_LOCK:
            if self._held_by_this_process():
                raise self._locked(os.getpid())
            fd = self._disk.open(self._path, create=True)
            try:
                self._lock_byte(fd)
                self._disk.write_at(self._path, fd, 0, _CONTENT)
                self._disk.sync_data(self._path, fd)
            except BaseException:
                os.close(fd)
                raise
            self._fd, self._identity = fd, _identity(fd)
            _HELD[self._identity] = os.getpid()
        return self

    def release(self) -> None:
        """Give the lock up; the file stays, as RocketMQ leaves it. A second call does nothing."""
        with _HELD_LOCK:
            fd, self._fd = self._fd, None
            if fd is None:
                return
            if _HELD.get(self._identity) == os.getpid():
                del _HELD[self._identity]
            self._disk.close(self._path, fd)

    def __enter__(self) -> "StoreLock":
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _held_by_this_process(self) -> bool:
        try:
            status = self._path.stat()
        except OSError:
            return False  # opening it will say what is wrong
        # A child after a fork has the table but not the lock.
        return _HELD.get((status.st_dev, status.st_ino)) == os.getpid()

    def _lock_byte(self, fd: int) -> None:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
        except (BlockingIOError, PermissionError) as cause:  # POSIX allows EAGAIN and EACCES
            raise self._locked(_holder(fd)) from cause
        except OSError as cause:
            raise io_error(self._path, "lock", cause) from cause

    def _locked(self, pid: int | None) -> StoreLockedError:
        pid = pid or _pid_in(self._abort)
        if pid == os.getpid():
            who, step = "this process", "Close the store before opening it again."
        else:
            who = "another process" if pid is None else f"process {pid}"
            step = "Stop that broker or tool first; two writers would destroy the store."
        return StoreLockedError(self._path, f"{who} has this store open", step)


def _identity(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _holder(fd: int) -> int | None:
    """Ask the kernel who holds the lock; None when it was given up meanwhile."""
    question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, question))
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def _pid_in(abort: Path) -> int | None:
    try:
        return int(abort.read_text(encoding="ascii").strip()) or None
    except (OSError, ValueError):
        return None
