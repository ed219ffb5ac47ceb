"""One segment of a commit log, mapped for reading. Mapped pages are no memory of the process.

Bytes may also lie at a distance (`orbitmq.spark.remote`). So whoever reads records asks first how far bytes
are here (`Segment.near`), and whoever takes `data` as a whole has it brought (`Segment.bring`).
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.errors import NotAStoreError
from orbitmq.files.disk import Disk
from orbitmq.format.columns import Bytes
from orbitmq.units import KiB

ZEROS_BYTES: Final = 256 * KiB


@dataclass(slots=True)
class Segment:
    """A segment's bytes; freed with the last array on them.

    `length` is what the file really has: less than `data` where the missing end reads as zeros, 0 when
    the file is missing.
    """

    base_offset: int
    path: Path
    data: Bytes
    length: int = -1
    missing: bool = False

    def __post_init__(self) -> None:
        if self.length < 0:
            self.length = len(self.data)

    @property
    def end_offset(self) -> int:
        return self.base_offset + len(self.data)

    @property
    def is_file(self) -> bool:
        """Tell whether all of `data` stands in the file, at the same positions."""
        return not self.missing and self.length == len(self.data)

    def near(self, _start: int, end: int) -> int:
        """Return up to which position the bytes from `start` on can be read now, at most `end`.

        Ask again from there for more. What is mapped is all here.
        """
        return end

    def bring(self, _start: int = 0, _end: int | None = None) -> Bytes:
        """Return `data`, with the bytes of this range in it."""
        return self.data

    def data_end(self) -> int:
        """Return a position behind which all bytes are zero, without reading them.

        Blocks that were allocated but never written are no data to the file system; a fresh segment
        of a gigabyte costs one call instead of a gigabyte of page cache.
        """
        if self.length == 0:
            return 0
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return self.length
        try:
            return _last_data(fd, self.length)
        except OSError:  # this file system cannot tell
            return self.length
        finally:
            os.close(fd)

    def written_end(self) -> int:
        """Return the same, close behind the last byte that is not zero.

        A file system can call zeros data (a copy, a segment whose pages were written ahead): they are
        looked at, from the back, at the speed of memory. No task is then made for them, and no
        progress counts them.
        """
        return written_end(self.data, self.data_end())

    def is_zero(self, position: int, end: int | None = None) -> bool:
        """Tell whether all bytes from `position` on are zero."""
        stop = min(self.data_end(), len(self.data) if end is None else end)
        return not self.data[position:stop].any()


def written_end(data: Bytes, end: int) -> int:
    """Return a position behind which all bytes up to `end` are zero; see `Segment.written_end`."""
    while end > 0:
        start = max(0, (end - 1) // ZEROS_BYTES * ZEROS_BYTES)
        if data[start:end].any():
            return end
        end = start
    return 0


Opener = Callable[[str, int], Segment]
"""(path, base offset) -> the segment."""

_OPENERS: dict[str, Opener] = {}
"""Directories whose files only stand for others, and who opens those."""


@contextmanager
def opened_by(directory: Path, opener: Opener) -> Iterator[None]:
    """Let `opener` open the segments below this directory, inside the `with`."""
    _OPENERS[f"{directory}/"] = opener
    try:
        yield
    finally:
        del _OPENERS[f"{directory}/"]


def _opener(path: Path | str) -> Opener | None:
    if not _OPENERS:
        return None
    text = str(path)
    return next((one for root, one in _OPENERS.items() if text.startswith(root)), None)


def open_segment(
    path: Path | str, base_offset: int, disk: Disk | None = None, *, size: int | None = None
) -> Segment:
    """Map the bytes that a file has; with `size` a shorter file reads as if zeros followed.

    Bytes that are written to the file later show up in the mapping, not behind its end.
    """
    opener = _opener(path)
    if opener is not None:
        return opener(str(path), base_offset)
    disk = disk if disk is not None else Disk()
    fd = disk.open(path, writable=False)
    try:
        length = disk.length(path, fd)
        if size is not None and length != size:
            data = np.zeros(size, dtype=np.uint8)
            part = np.frombuffer(disk.read_at(path, fd, 0, min(length, size)), dtype=np.uint8)
            data[: len(part)] = part
        elif length:
            mapped = disk.map(path, fd, length, writable=False)
            data = np.frombuffer(mapped, dtype=np.uint8)
        else:
            data = np.zeros(0, dtype=np.uint8)
    finally:
        disk.close(path, fd)
    return Segment(base_offset, Path(path), data, min(length, len(data)))


def require_length(segment: Segment, length: int) -> None:
    """Raise NotAStoreError if a file has less than its listing said a moment ago."""
    if segment.length < length:
        step = "Try again: somebody is changing the store."
        raise NotAStoreError(segment.path, "became shorter while it was opened", step)


def _last_data(fd: int, length: int) -> int:
    end = 0
    while end < length:
        try:
            start = os.lseek(fd, end, os.SEEK_DATA)
        except OSError:  # no data from here on
            break
        end = os.lseek(fd, start, os.SEEK_HOLE)
    return min(end, length)
