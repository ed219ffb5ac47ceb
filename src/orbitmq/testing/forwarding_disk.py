"""A disk that passes every call on to another: the base of the fakes."""

import mmap

from orbitmq.files.disk import Disk, FilePath


class ForwardingDisk(Disk):
    """A disk that passes every call on to another; fakes override what they change."""

    def __init__(self, disk: Disk | None = None) -> None:
        self.inner = disk or Disk()

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        return self.inner.open(path, create=create, writable=writable)

    def close(self, path: FilePath, fd: int) -> None:
        self.inner.close(path, fd)

    def length(self, path: FilePath, fd: int) -> int:
        return self.inner.length(path, fd)

    def read_at(self, path: FilePath, fd: int, position: int, length: int) -> bytes:
        return self.inner.read_at(path, fd, position, length)

    def write_at(
        self, path: FilePath, fd: int, position: int, data: bytes | bytearray | memoryview
    ) -> None:
        self.inner.write_at(path, fd, position, data)

    def truncate(self, path: FilePath, fd: int, length: int) -> None:
        self.inner.truncate(path, fd, length)

    def allocate(self, path: FilePath, fd: int, length: int) -> None:
        self.inner.allocate(path, fd, length)

    def zero(
        self, path: FilePath, fd: int, position: int, length: int, *, keep_blocks: bool = False
    ) -> None:
        self.inner.zero(path, fd, position, length, keep_blocks=keep_blocks)

    def map(
        self, path: FilePath, fd: int, length: int, *, writable: bool, offset: int = 0
    ) -> mmap.mmap:
        return self.inner.map(path, fd, length, writable=writable, offset=offset)

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        self.inner.sync_data(path, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        self.inner.sync_directory(path)

    def sync_file_system(self, path: FilePath) -> None:
        self.inner.sync_file_system(path)

    def rename(self, source: FilePath, target: FilePath) -> None:
        self.inner.rename(source, target)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        """Not in one step: the fakes know renames only, and callers must cope with that."""
        return False

    def remove(self, path: FilePath) -> None:
        self.inner.remove(path)

    def remove_directory(self, path: FilePath) -> None:
        self.inner.remove_directory(path)

    def make_directory(self, path: FilePath) -> None:
        self.inner.make_directory(path)
