"""The operating system's file calls, behind one seam: what a store does to its disk goes through a `Disk`.

Tests put a faulty or recording disk in its place (`orbitmq.testing.fake_disk`). Every failure leaves
here as a typed StoreError with the path and the operation.

Bytes that are written through a mapping do not pass here; the `sync_data` that makes them durable does.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreError, io_error
from orbitmq.files.mappings import Mappings
from orbitmq.units import MiB

FilePath = Path | str
"""Plain text is welcome: tens of thousands of queue files are named many times a second."""

_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
_KEEP_SIZE: Final = 0x01
_PUNCH_HOLE: Final = 0x02
_ZERO_RANGE: Final = 0x10
_ZEROS: Final = bytes(MiB)
_HERE: Final = -100  # AT_FDCWD: names count from the working directory
_EXCHANGE: Final = 2  # RENAME_EXCHANGE


@contextmanager
def _typed(path: FilePath, operation: str) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise io_error(path, operation, cause) from cause


def is_missing(error: StoreError) -> bool:
    """Tell whether an operation failed because there is no such file."""
    return getattr(error, "errno", None) == errno.ENOENT


def exists(path: FilePath) -> bool:
    """Tell whether something has this name. Not Path.exists: what cannot be looked at is a typed error."""
    try:
        os.stat(path)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as cause:
        raise io_error(path, "look at", cause) from cause
    return True


class Disk:
    """The real disk. Any thread may use it."""

    def __init__(self) -> None:
        self.mappings = Mappings()

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        """Open a file for positioned reads and writes; return its descriptor."""
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        with _typed(path, "create" if create else "open"):
            return os.open(path, flags | (os.O_CREAT if create else 0), 0o644)

    def close(self, path: FilePath, fd: int) -> None:
        with _typed(path, "close"):
            os.close(fd)

    def length(self, path: FilePath, fd: int) -> int:
        """Return how many bytes the file has."""
        with _typed(path, "look at"):
            return os.fstat(fd).st_size

    def read_at(self, path: FilePath, fd: int, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        # Not `_typed`: this and `write_at` are called for every few kilobytes, and a generator-based
        # context manager costs as much as the call to the kernel.
        try:
            data = os.pread(fd, length, position)
            while 0 < len(data) < length:
                more = os.pread(fd, length - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as cause:
            raise io_error(path, "read", cause) from cause
        return data

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        """Write all of `data`; a short write is continued."""
        try:
            written = os.pwrite(fd, data, position)
            if written != len(data):
                _write_rest(fd, position, memoryview(data).cast("B"), written)
        except OSError as cause:
            raise io_error(path, "write", cause) from cause

    def truncate(self, path: FilePath, fd: int, length: int) -> None:
        """Set the length; a longer file gets a hole, not blocks."""
        with _typed(path, "truncate"):
            os.ftruncate(fd, length)

    def allocate(self, path: FilePath, fd: int, length: int) -> None:
        """Reserve real blocks for the whole length, so that writing to a mapping cannot run out of space."""
        with _typed(path, "allocate"):
            os.posix_fallocate(fd, 0, length)

    def zero(
        self, path: FilePath, fd: int, position: int, length: int, *, keep_blocks: bool = False
    ) -> None:
        """Make a range read as zeros. The file keeps its length at every moment, even if we are killed.

        Blocks are given back to the file system unless `keep_blocks`.
        """
        if length <= 0:
            return
        mode = _KEEP_SIZE | (_ZERO_RANGE if keep_blocks else _PUNCH_HOLE)
        with _typed(path, "zero"):
            if _LIBC.fallocate(fd, mode, position, length) == 0:
                return
            number = ctypes.get_errno()
            if number not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
                raise OSError(number, os.strerror(number))
        for start in range(position, position + length, len(_ZEROS)):
            piece = memoryview(_ZEROS)[: min(len(_ZEROS), position + length - start)]
            self.write_at(path, fd, start, piece)

    def map(
        self, path: FilePath, fd: int, length: int, *, writable: bool, offset: int = 0
    ) -> mmap.mmap:
        """Map a part of a file, shared with all who map it: writes are in the file at once."""
        _require_page(path, offset)
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with _typed(path, "map"):
            mapping = mmap.mmap(fd, length, access=access, offset=offset)
        self.mappings.note(mapping)
        return mapping

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        """Make the file's bytes durable, those written through a mapping too.

        The whole file is synced; (position, length) tells which part matters, 0 length: all of it.
        """
        with _typed(path, "sync"):
            os.fdatasync(fd)

    def sync_directory(self, path: FilePath) -> None:
        with _typed(path, "sync directory"):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def sync_file_system(self, path: FilePath) -> None:
        """Make everything on the file system of `path` durable: one call instead of 80 000."""
        with _typed(path, "sync file system"):
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if _LIBC.syncfs(fd) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number))
            finally:
                os.close(fd)

    def rename(self, source: FilePath, target: FilePath) -> None:
        """Give a file another name, in place of the file that had it."""
        with _typed(source, f"rename to {Path(target).name}"):
            Path(source).replace(target)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        """Let two files or directories change names in one step; False: this file system cannot."""
        names = os.fsencode(first), os.fsencode(second)
        with _typed(first, f"exchange with {Path(second).name}"):
            if _LIBC.renameat2(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0:
                return True
            number = ctypes.get_errno()
            if number in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                return False
            raise OSError(number, os.strerror(number))

    def remove(self, path: FilePath) -> None:
        with _typed(path, "delete"):
            Path(path).unlink()

    def remove_directory(self, path: FilePath) -> None:
        """Remove an empty directory."""
        with _typed(path, "delete directory"):
            Path(path).rmdir()

    def make_directory(self, path: FilePath) -> None:
        """Create a directory and those above it; one that is there already is fine."""
        with _typed(path, "create directory"):
            Path(path).mkdir(parents=True, exist_ok=True)


def _require_page(path: FilePath, offset: int) -> None:
    page = mmap.ALLOCATIONGRANULARITY
    if offset % page:
        aligned = offset - offset % page
        raise StoreError(
            path,
            f"cannot map from offset {offset}: it is not a multiple of the {page}-byte page",
            f"Map from offset {aligned} and skip the first {offset - aligned} bytes.",
        )


def _write_rest(fd: int, position: int, data: memoryview, written: int) -> None:
    while written < len(data):
        count = os.pwrite(fd, data[written:], position + written)
        if count == 0:  # Not an error number, but no progress either: never loop for ever.
            raise OSError(errno.EIO, "the file takes no more bytes")
        written += count
