"""`file-copy`: a file copied by a loop over a buffer, and by the kernel alone."""

import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from orbitmq.lab.experiment import (
    Chart,
    Experiment,
    Findings,
    Lab,
    Row,
    Size,
    Verdict,
    figure_text,
    times,
    verdict,
)
from orbitmq.lab.measure import Meter, digest, write_file
from orbitmq.units import KiB, MiB

FILE_BYTES: Final = {Size.SMALL: 4 * MiB, Size.FULL: 96 * MiB}
ROUNDS: Final = {Size.SMALL: 1, Size.FULL: 3}
CLAIM: Final = (
    "a transfer between channels, inside the kernel, copies a file in less than half the time of a loop "
    "over a buffer of 4 KiB (677 ms against 1 569 ms)"
)
UNITS: Final = {"rate": "MiB/s", "time": "ms/100 MiB", "CPU": "ms/100 MiB"}

Way = Callable[[int, int, int], None]
"""Copies so many bytes from one descriptor to another."""


def copy_by_loop(buffer_bytes: int) -> Way:
    """Return a copy through a buffer of this size: two calls and two copies for each."""

    def copy(source: int, target: int, size: int) -> None:
        buffer = memoryview(bytearray(buffer_bytes))
        while got := os.readv(source, [buffer]):
            os.write(target, buffer[:got])

    return copy


def copy_mapped(source: int, target: int, size: int) -> None:
    """Write slices of the mapped source: one copy."""
    with mmap.mmap(source, size, prot=mmap.PROT_READ) as mapping, memoryview(mapping) as view:
        done = 0
        while done < size:
            done += os.write(target, view[done : done + MiB])


def copy_by_sendfile(source: int, target: int, size: int) -> None:
    done = 0
    while done < size:
        done += os.sendfile(target, source, done, size - done)


def copy_by_range(source: int, target: int, size: int) -> None:
    """Let the file system copy; some only share the blocks."""
    done = 0
    while done < size:
        done += os.copy_file_range(source, target, size - done)


LOOP, KERNEL = "loop, 4 KiB buffer", "copy_file_range"
WAYS: dict[str, Way] = {
    LOOP: copy_by_loop(4 * KiB),
    "loop, 1 MiB buffer": copy_by_loop(1 * MiB),
    "mapped slices": copy_mapped,
    "sendfile": copy_by_sendfile,
    KERNEL: copy_by_range,
}


def run(lab: Lab) -> Findings:
    """Copy in turns, from memory into memory: what the disk does later is the same for all."""
    rounds, size = ROUNDS[lab.size], FILE_BYTES[lab.size]
    lab.steps(1 + rounds * len(WAYS))
    source = lab.directory / "source"
    write_file(source, size)
    wanted = digest(source)
    lab.step()
    best: dict[str, Meter] = {}
    equal = dict.fromkeys(WAYS, True)
    for _ in range(rounds):
        for name, way in WAYS.items():
            meter, same = _copy(way, source, lab.directory / "target", wanted)
            equal[name] &= same
            if name not in best or meter.seconds < best[name].seconds:
                best[name] = meter
            lab.step()
    for name, same in equal.items():
        lab.check(f"{name}: the copy is equal", same)
    hundreds = size / MiB / 100
    rows = [
        Row(
            name,
            {
                "rate": meter.rate(size / MiB),
                "time": meter.seconds * 1e3 / hundreds,
                "CPU": meter.cpu_seconds * 1e3 / hundreds,
            },
        )
        for name, meter in best.items()
    ]
    return Findings(UNITS, rows, judge(rows), Chart(("time", "CPU")))


def _copy(way: Way, source: Path, target: Path, wanted: str) -> tuple[Meter, bool]:
    with source.open("rb") as reads, target.open("wb", buffering=0) as writes:
        size = source.stat().st_size
        with Meter() as meter:
            way(reads.fileno(), writes.fileno(), size)
    same = digest(target) == wanted
    target.unlink()
    return meter, same


def judge(rows: Sequence[Row]) -> Verdict:
    """Compare the loop of the document with the kernel's own copy: half the time, says the document."""
    took = {row.name: row.figures["time"] or 0.0 for row in rows}
    fastest = min(took, key=took.__getitem__)
    loop, kernel = took[LOOP], min(took[KERNEL], took["sendfile"])
    seen = (
        f"100 MiB took {figure_text(loop)} ms in a loop over 4 KiB and {figure_text(kernel)} ms inside the "
        f"kernel ({times(loop, kernel)} as long in the loop), fastest was {fastest} with "
        f"{figure_text(took[fastest])} ms"
    )
    return verdict(seen, CLAIM, {"the kernel": loop > 2 * kernel})


EXPERIMENT: Final = Experiment(
    name="file-copy",
    features=("F93",),
    about="a file copied by a loop over a buffer and by the kernel",
    claim=CLAIM,
    run=run,
)
