"""What a piece of work cost: time, processor, page faults, bytes from the disk; and cold files."""

import hashlib
import mmap
import os
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orbitmq.store.log.page_memory import resident_pages
from orbitmq.units import MiB

COLD_SHARE_MAX: Final = 0.05
"""A file of which more than this is in memory is not cold."""

_SECTOR_BYTES: Final = 512  # in which the kernel counts what a thread has read


class Meter:
    """Measures what this thread does in a `with` block."""

    def __enter__(self) -> "Meter":
        self._usage = resource.getrusage(resource.RUSAGE_THREAD)
        self._cpu = time.thread_time()
        self._start = time.perf_counter()
        return self

    def __exit__(self, *exc: object) -> None:
        self.seconds = max(time.perf_counter() - self._start, 1e-9)
        self.cpu_seconds = time.thread_time() - self._cpu
        now, before = resource.getrusage(resource.RUSAGE_THREAD), self._usage
        self.minor_faults = now.ru_minflt - before.ru_minflt
        self.major_faults = now.ru_majflt - before.ru_majflt
        self.read_bytes = (now.ru_inblock - before.ru_inblock) * _SECTOR_BYTES

    def rate(self, count: float) -> float:
        """Return so many in these seconds as so many each second."""
        return count / self.seconds


def seeded_bytes(count: int, seed: int = 7) -> bytes:
    """Return bytes that look random and are the same every time."""
    import numpy as np

    return np.random.default_rng(seed).bytes(count)


def digest(path: Path) -> str:
    """Return a checksum of a whole file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def make_cold(paths: Iterable[Path]) -> float:
    """Write files out and have the system forget their pages; return the share that it still keeps.

    A file system in memory (tmpfs) keeps all of it. Pages that some process has mapped stay too.
    """
    kept = [_forget(path) for path in paths]
    return max(kept, default=0.0)


def _forget(path: Path) -> float:
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    return resident_share(path)


def resident_share(path: Path) -> float:
    """Return how much of a file is in memory, from 0 to 1; 1 where the system does not tell."""
    size = path.stat().st_size
    if not size:
        return 0.0
    with path.open("r+b") as file, mmap.mmap(file.fileno(), size) as mapping:
        pages = resident_pages(mapping)
    return 1.0 if pages < 0 else pages * mmap.PAGESIZE / size


def write_file(path: Path, size: int) -> None:
    """Make a file of seeded bytes; each mebibyte is another."""
    block = bytearray(seeded_bytes(min(size, MiB)))
    with path.open("wb") as file:
        for start in range(0, size, MiB):
            block[:8] = start.to_bytes(8, "big")[-len(block) :]
            file.write(block[: size - start])
