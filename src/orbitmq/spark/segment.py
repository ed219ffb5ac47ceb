"""One segment, mapped for reading by a task. Mapped pages are no memory of the process."""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orbitmq.errors import io_error
from orbitmq.format.columns import Bytes


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


def open_segment(path: str, base_offset: int) -> Segment:
    """Map a segment. StoreIOError or NoPermissionError: it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            if not length:
                return Segment(path, base_offset, np.zeros(0, dtype=np.uint8))
            mapped = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_READ)
    except OSError as cause:
        raise io_error(path, "map", cause) from cause
    return Segment(path, base_offset, np.frombuffer(mapped, dtype=np.uint8))
