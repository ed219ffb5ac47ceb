"""Parquet files of a lake, to be read where they lie, with the bytes counted that had to come."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pyarrow.parquet as pq

from orbitmq.errors import MissingObjectError
from orbitmq.spark.jobs.export.names import name_of
from orbitmq.spark.remote.address import Address


@contextmanager
def open_parquet(root: Path | Address, path: str) -> Iterator[pq.ParquetFile]:
    """Open a file of a lake by its path or URL. FileNotFoundError: it is not there."""
    if not isinstance(root, Address):
        with pq.ParquetFile(path) as file:
            yield file
        return
    try:
        remote = RemoteFile(root, name_of(root, path))
        with pq.ParquetFile(cast("IO[Any]", remote), pre_buffer=False) as file:
            yield file
    except MissingObjectError as error:
        raise FileNotFoundError(str(error)) from error


def file_bytes(root: Path | Address, path: str) -> int:
    """Return how long a file is. FileNotFoundError: it is not there."""
    if not isinstance(root, Address):
        return Path(path).stat().st_size
    try:
        return RemoteFile(root, name_of(root, path)).length
    except MissingObjectError as error:
        raise FileNotFoundError(str(error)) from error


class RemoteFile(io.RawIOBase):
    """An object that is read piece by piece. Not thread-safe."""

    def __init__(self, root: Address, name: str) -> None:
        from orbitmq.spark.remote.objects import objects_at

        self._objects, self._name, self._at = objects_at(root), name, 0
        self.length = self._objects.sealed_length(name)

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self.length)[whence]
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self.length if size is None or size < 0 else min(self._at + size, self.length)
        if end <= self._at:
            return b""
        data = b"".join(self._objects.read_ranges(self._name, [(self._at, end)]))
        self._at = end
        return data
