"""The operating system's file calls, behind one seam: what a store does to its disk goes through a `Disk`.

Tests put a faulty or recording disk in its place (`orbitmq.testing.fake_disk`). Every failure leaves
here as a typed StoreError with the path and the operation.

Bytes that are written through a mapping do not pass here; the `sync_data` that makes them durable does.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orbitmq.errors import io_error


@contextmanager
def _typed(path: Path, operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise io_error(path, operation, cause) from cause


class Disk:
    """The real disk. Any thread may use it."""

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for positioned reads and writes; return its descriptor."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        with _typed(path, "create" if create else "open"):
            return os.open(path, flags | (os.O_CREAT if create else 0), 0o644)

    def close(self, path: Path, fd: int) -> None:
        with _typed(path, "close"):
            os.close(fd)

    def read_at(self, path: Path, fd: int, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        with _typed(path, "read"):
            data = os.pread(fd, length, position)
            while 0 < len(data) < length:
                more = os.pread(fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
            return data

    def write_at(self, path: Path, fd: int, position: int, data: bytes | memoryview) -> None:
        """Write all of `data`; a short write is continued."""
        with _typed(path, "write"):
            written = os.pwrite(fd, data, position)
            if written == len(data):
                return
            rest = memoryview(data).cast("B")
            while written < len(rest):
                written += os.pwrite(fd, rest[written:], position + written)

    def truncate(self, path: Path, fd: int, length: int) -> None:
        """Set the length; a longer file gets a hole, not blocks."""
        with _typed(path, "truncate"):
            os.ftruncate(fd, length)

    def allocate(self, path: Path, fd: int, length: int) -> None:
        """Reserve real blocks for the whole length, so that writing to a mapping cannot run out of space."""
        with _typed(path, "allocate"):
            os.posix_fallocate(fd, 0, length)

    def map(
        self, path: Path, fd: int, length: int, *, writable: bool, offset: int = 0
    ) -> mmap.mmap:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with _typed(path, "map"):
            return mmap.mmap(fd, length, access=access, offset=offset)

    def sync_data(self, path: Path, fd: int, position: int = 0, length: int = 0) -> None:
        """Make the file's bytes durable, those written through a mapping too.

        The whole file is synced; (position, length) tells which part matters, 0 length: all of it.
        """
        with _typed(path, "sync"):
            os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        with _typed(path, "sync directory"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_file_system(self, path: Path) -> None:
        """Make everything on the file system of `path` durable: one call instead of 80 000."""
        with _typed(path, "sync file system"):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        with _typed(source, f"rename to {target.name}"):
            source.replace(target)

    def remove(self, path: Path) -> None:
        with _typed(path, "delete"):
            path.unlink()

    def make_directory(self, path: Path) -> None:
        with _typed(path, "create directory"):
            path.mkdir(parents=True, exist_ok=True)


_LIBC = ctypes.CDLL(None, use_errno=True)
