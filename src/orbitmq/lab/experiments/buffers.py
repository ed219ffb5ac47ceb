"""`buffers`: what a copy of bytes costs against a view, and heap memory against mapped memory in a write.

The documents compare Java's heap and direct buffers. In Python: `bytes`, and memory outside of the heap (an
anonymous mapping); a slice of `bytes` is a copy, a slice of a `memoryview` is not.
"""

import hashlib
import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.lab.experiment import (
    Chart,
    Experiment,
    Findings,
    Lab,
    Row,
    Size,
    Verdict,
    clearly_more,
    figure_text,
    times,
    verdict,
)
from orbitmq.lab.measure import digest, seeded_bytes
from orbitmq.units import KiB, MiB

MEMORY_BYTES: Final = 4 * MiB
PIECES: Final = {"256 B": 256, "4 KiB": 4 * KiB, "64 KiB": 64 * KiB, "1 MiB": MiB}
BYTES_PER_ROUND: Final = {Size.SMALL: 4 * MiB, Size.FULL: 64 * MiB}
CALLS_MAX: Final = 16_384
ROUNDS: Final = {Size.SMALL: 2, Size.FULL: 5}
CLAIM: Final = (
    "a buffer on the heap is copied once more on its way into the kernel and a direct buffer, outside of "
    "the heap, is not"
)
CUT_COPY, CUT_VIEW = "slice of bytes", "slice of a view"
WRITE_COPY, WRITE_HEAP, WRITE_DIRECT = (
    "write a slice of bytes",
    "write a view",
    "write mapped memory",
)
UNITS: Final = dict.fromkeys((CUT_COPY, CUT_VIEW, WRITE_COPY, WRITE_HEAP, WRITE_DIRECT), "ns")

Piece = bytes | memoryview
Cut = Callable[[int, int], Piece]
"""Returns the bytes from a start to an end."""


def run(lab: Lab) -> Findings:
    lab.steps(len(PIECES) * len(UNITS))
    data = seeded_bytes(MEMORY_BYTES)
    view = memoryview(data)
    with mmap.mmap(-1, MEMORY_BYTES) as mapping, memoryview(mapping) as direct:
        direct[:] = data
        cuts: dict[str, Cut] = {
            CUT_COPY: lambda start, end: data[start:end],
            CUT_VIEW: lambda start, end: view[start:end],
            WRITE_COPY: lambda start, end: data[start:end],
            WRITE_HEAP: lambda start, end: view[start:end],
            WRITE_DIRECT: lambda start, end: direct[start:end],
        }
        rows = [_row(lab, name, size, cuts) for name, size in PIECES.items()]
        for name, cut in cuts.items():
            lab.check(f"{name}: the bytes are equal", _whole(cut) == hashlib.blake2b(data).digest())
    return Findings(UNITS, rows, judge(rows), Chart(tuple(UNITS), logarithmic=True))


def _row(lab: Lab, name: str, size: int, cuts: dict[str, Cut]) -> Row:
    figures: dict[str, float | None] = {}
    path = lab.directory / "target"
    for what, cut in cuts.items():
        writes = what not in (CUT_COPY, CUT_VIEW)
        with path.open("wb", buffering=0) as file:
            figures[what] = _nanoseconds(lab.size, size, cut, file.fileno() if writes else -1)
        if writes:
            wanted = hashlib.blake2b(cut(0, MEMORY_BYTES)).hexdigest()
            lab.check(f"{what}, {name}: the file is equal", digest(path) == wanted)
        lab.step()
    return Row(name, figures)


def _nanoseconds(amount: Size, size: int, cut: Cut, fd: int) -> float:
    """Return what one piece costs in the best round; pieces go through the whole memory in turn."""
    calls = min(BYTES_PER_ROUND[amount] // size, CALLS_MAX)
    starts = [number * size % MEMORY_BYTES for number in range(calls)]
    starts = sorted(set(range(0, MEMORY_BYTES, size)) | set(starts)) if fd >= 0 else starts
    best = float("inf")
    for _ in range(ROUNDS[amount]):
        began = time.perf_counter_ns()
        if fd < 0:
            for start in starts:
                cut(start, start + size)
        else:
            for start in starts:
                os.pwrite(fd, cut(start, start + size), start)
        best = min(best, (time.perf_counter_ns() - began) / len(starts))
    return best


def _whole(cut: Cut) -> bytes:
    whole = hashlib.blake2b()
    for start in range(0, MEMORY_BYTES, 4 * KiB):
        whole.update(cut(start, start + 4 * KiB))
    return whole.digest()


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare the largest pieces: there a copy is not hidden by the cost of the call."""
    figures = rows[-1].figures
    heap, direct = figures[WRITE_HEAP] or 0.0, figures[WRITE_DIRECT] or 0.0
    copied, cut = figures[WRITE_COPY] or 0.0, figures[CUT_COPY] or 0.0
    seen = (
        f"writing {rows[-1].name} takes {figure_text(heap / 1e3)} us from the heap and "
        f"{figure_text(direct / 1e3)} us from mapped memory, and {figure_text(copied / 1e3)} us when it is "
        f"sliced as bytes first, a copy that takes {times(cut, figures[CUT_VIEW] or 1.0)} as long as a view"
    )
    return verdict(seen, CLAIM, {"the heap": clearly_more(heap, direct)})


EXPERIMENT: Final = Experiment(
    name="buffers",
    features=("F94",),
    about="copies of bytes against views, heap against mapped memory",
    claim=CLAIM,
    run=run,
)
