"""A store as a whole in a directory here: who compares log, queues and index needs all their bytes anyway.

Every object is fetched once, by ranges side by side. Zeros are not written: a segment or an index file that
was allocated ahead takes as much of the disk as it has been used.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from orbitmq.errors import OrbitError, io_error
from orbitmq.files.disk import Disk
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.names import StoreNames, store_objects
from orbitmq.spark.remote.objects import Found, Objects, objects_at
from orbitmq.spark.remote.segment import REQUEST_BYTES
from orbitmq.units import KiB

REQUESTS: Final = 4
"""At once; each holds its bytes in memory."""
_HOLE_BYTES: Final = 64 * KiB

OnBytes = Callable[[int], None]


@contextmanager
def copied(address: Address, show: Callable[[int], OnBytes]) -> Iterator[StoreNames]:
    """Yield a copy of a store, which is removed in the end; `show` gets the bytes to come, then each part."""
    objects = objects_at(address)
    found = store_objects(objects)
    with TemporaryDirectory(prefix="orbitmq-copy-") as directory:
        names = StoreNames(Path(directory), address, {})
        try:
            _copy(objects, found, names.root, show(sum(item.length for item in found)))
            yield names
        except OrbitError as error:
            names.rename(error)
            raise


def _copy(objects: Objects, found: list[Found], root: Path, on_bytes: OnBytes) -> None:
    disk = Disk()
    for directory in sorted({(root / item.name).parent for item in found}):
        disk.make_directory(directory)
    for item in found:
        (root / item.name).touch()
        os.truncate(root / item.name, item.length)
    parts = [
        (item.name, start, min(start + REQUEST_BYTES, item.length))
        for item in found
        for start in range(0, item.length, REQUEST_BYTES)
    ]

    def fetch(part: tuple[str, int, int]) -> int:
        name, start, end = part
        (data,) = objects.read_ranges(name, [(start, end)])
        _write(root / name, start, data)
        return end - start

    with ThreadPoolExecutor(REQUESTS, thread_name_prefix="orbitmq-copy") as threads:
        for done in threads.map(fetch, parts):
            on_bytes(done)


def _write(path: Path, position: int, data: memoryview) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            for start in range(0, len(data), _HOLE_BYTES):
                piece = data[start : start + _HOLE_BYTES]
                if any(piece):
                    os.pwrite(fd, piece, position + start)
        finally:
            os.close(fd)
    except OSError as cause:
        raise io_error(path, "write", cause) from cause
