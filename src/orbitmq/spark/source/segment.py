"""One segment, mapped for reading by a task. Mapped pages are no memory of the process."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.format.columns import Bytes
from orbitmq.spark.shared_paths import open_error
from orbitmq.units import KiB

ZEROS_BYTES: Final = 256 * KiB


@dataclass(frozen=True, slots=True)
class Segment:
    """The bytes that the file has; freed with the last array on them."""

    path: str
    base_offset: int
    data: Bytes

    def data_end(self) -> int:
        """Return a position behind which all bytes are zero, without reading them where that works."""
        fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        end, length = 0, len(self.data)
        try:
            while end < length:
                start = os.lseek(fd, end, os.SEEK_DATA)
                end = os.lseek(fd, start, os.SEEK_HOLE)
        except OSError:  # no data from here on, or the file system cannot tell
            return end or length
        finally:
            os.close(fd)
        return min(end, length)


def written_end(data: Bytes, end: int) -> int:
    """Return a position behind which all bytes up to `end` are zero, close behind the last other one.

    A file system can call zeros data (a copy, a segment whose pages were written ahead): they are looked
    at, from the back, at the speed of memory. No task is then made for them, and no progress counts them.
    """
    while end > 0:
        start = max(0, (end - 1) // ZEROS_BYTES * ZEROS_BYTES)
        if data[start:end].any():
            return end
        end = start
    return 0


def open_segment(path: str, base_offset: int) -> Segment:
    """Map a segment. StoreError: it cannot be read, or this machine does not have it."""
    try:
        with Path(path).open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if not length:
                return Segment(path, base_offset, np.zeros(0, dtype=np.uint8))
            mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
    except OSError as cause:
        raise open_error(path, "map", cause) from cause
    return Segment(path, base_offset, np.frombuffer(mapped, dtype=np.uint8))
