"""A file of a store at a distance as a segment: its bytes are brought into memory when they are needed.

The memory has the length of the file and costs nothing until bytes come into it: positions, rows and kernels
stay as they are for mapped files. Whoever reads records asks for bytes first (`Segment.near`, in `log_read`),
and gets them by blocks; a task brings the bytes of its split at once.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np

from orbitmq.files.mappings import private_memory
from orbitmq.format.columns import Bytes
from orbitmq.log_read import BACK_BYTES, Segment, Split
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.objects import Objects, objects_at
from orbitmq.units import KiB, MiB

BLOCK_BYTES: Final = 64 * KiB
REQUEST_BYTES: Final = 8 * MiB
"""Of one request: several run side by side."""
STEP_BYTES_MAX: Final = 8 * MiB
"""Who reads on and on gets longer steps, up to this one."""
KEPT_BYTES: Final = 64 * MiB
"""Who plans a read walks through a whole segment at times; so much stays here behind it."""


class RemoteBytes:
    """The bytes of one object, as far as they are here. Not thread-safe."""

    def __init__(self, objects: Objects, name: str, length: int, *, sliding: bool = False) -> None:
        self._objects, self._name, self._length = objects, name, length
        self._memory = private_memory(max(length, 1))
        self._sliding = sliding
        self.data: Bytes = np.frombuffer(self._memory, dtype=np.uint8, count=length)
        self._here = np.zeros(-(-length // BLOCK_BYTES), dtype=np.bool_)
        self._step = BLOCK_BYTES

    def bring(self, start: int, end: int) -> None:
        """Have the bytes [start, end) here."""
        wanted = list(self._missing(max(start, 0), min(end, self._length)))
        parts = self._objects.read_ranges(self._name, wanted) if wanted else iter(())
        for (first, last), part in zip(wanted, parts, strict=True):
            self.data[first:last] = part
            self._here[first // BLOCK_BYTES : -(-last // BLOCK_BYTES)] = True

    def near(self, start: int, end: int) -> int:
        """Return up to where bytes from `start` on are here, at most `end`; some are brought if none is."""
        end = min(end, self._length)
        if start >= end:
            return end
        if not self._here[start // BLOCK_BYTES]:
            self.bring(start, min(end, start // BLOCK_BYTES * BLOCK_BYTES + self._step))
            self._step = min(self._step * 2, STEP_BYTES_MAX)
            self._forget(start - KEPT_BYTES)
        absent = np.flatnonzero(~self._here[start // BLOCK_BYTES :])
        there = (start // BLOCK_BYTES + int(absent[0])) * BLOCK_BYTES if len(absent) else end
        return min(there, end)

    def _forget(self, end: int) -> None:
        """Give back the memory of what lies before; it is fetched again should anybody want it."""
        blocks = end // BLOCK_BYTES if self._sliding else 0
        if blocks > 0 and self._here[:blocks].any():
            self._memory.madvise(mmap.MADV_DONTNEED, 0, blocks * BLOCK_BYTES)
            self._here[:blocks] = False

    def _missing(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the stretches of whole blocks that have to be fetched, none longer than a request."""
        first, last = start // BLOCK_BYTES, -(-end // BLOCK_BYTES)
        absent = np.flatnonzero(~self._here[first:last]) + first
        runs = np.split(absent, np.flatnonzero(np.diff(absent) > 1) + 1) if len(absent) else []
        for run in runs:
            low = int(run[0]) * BLOCK_BYTES
            high = min((int(run[-1]) + 1) * BLOCK_BYTES, self._length)
            for at in range(low, high, REQUEST_BYTES):
                yield at, min(at + REQUEST_BYTES, high)


@dataclass(slots=True)
class RemoteSegment(Segment):
    """A segment whose bytes come when they are asked for. Not thread-safe."""

    source: RemoteBytes | None = None

    @property
    def is_file(self) -> bool:
        return False

    def near(self, start: int, end: int) -> int:
        assert self.source is not None
        return self.source.near(start, end)

    def bring(self, start: int = 0, end: int | None = None) -> Bytes:
        assert self.source is not None
        self.source.bring(start, len(self.data) if end is None else end)
        return self.data

    def data_end(self) -> int:
        """An object has no holes that can be asked for."""
        return self.length


def open_remote(
    address: Address, base_offset: int, length: int | None = None, *, sliding: bool = False
) -> RemoteSegment:
    """Return an object as a segment; nothing of it is fetched yet. StoreError: there is none.

    `sliding`: only the bytes around those asked for last stay here.
    """
    directory, _, name = address.prefix.rpartition("/")
    objects = objects_at(Address(address.bucket, directory, address.endpoint, address.region))
    if length is None:
        length = objects.sealed_length(name)
    source = RemoteBytes(objects, name, length, sliding=sliding)
    # It is shown only; `Path` would make one slash of the two.
    path = cast(Path, address.url)
    return RemoteSegment(base_offset, path, source.data, length, source=source)


def open_remote_split(split: Split, back_bytes: int = BACK_BYTES) -> RemoteSegment:
    """Return the segment of a split, with the bytes here that reading it takes if nothing is damaged.

    These are some megabytes before it, where its first record is searched from, and behind it, into which its
    last one may reach.
    """
    segment = open_remote(Address.of(split.path), split.base_offset)
    start, end = split.start - split.base_offset, split.end - split.base_offset
    behind = min(end + BLOCK_BYTES, split.limit - split.base_offset)
    segment.bring(max(0, start - back_bytes), behind)
    return segment
