"""`sequential`: blocks of a file in order against the same blocks at random, and both beside memory."""

import os
import random
import time
from collections.abc import Sequence
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
    clearly_more,
    figure_text,
    times,
    verdict,
)
from orbitmq.lab.measure import COLD_SHARE_MAX, Meter, make_cold, seeded_bytes
from orbitmq.units import KiB, MiB

BLOCK_BYTES: Final = 4 * KiB
GROUP: Final = 64  # blocks that share a sync
FILE_BYTES: Final = {Size.SMALL: 2 * MiB, Size.FULL: 48 * MiB}
MEMORY_BYTES: Final = {Size.SMALL: 16 * MiB, Size.FULL: 128 * MiB}
SECONDS_MAX: Final = {Size.SMALL: 0.3, Size.FULL: 1.5}
VALUE_BYTES: Final = 4
CLAIM: Final = (
    "sequential access to a disk is far faster than random access, and sequential writes to a disk are "
    "even faster than random writes to memory"
)
UNITS: Final = {"rate": "MiB/s", "blocks": "of 4 KiB"}
WRITE_ORDER, WRITE_RANDOM, READ_ORDER, READ_RANDOM, MEMORY_ORDER, MEMORY_RANDOM = (
    "disk, write in order",
    "disk, write at random",
    "disk, cold read in order",
    "disk, cold read at random",
    "memory, write in order",
    "memory, write at random (4 bytes)",
)


def run(lab: Lab) -> Findings:
    lab.steps(6)
    path, blocks = lab.directory / "blocks", FILE_BYTES[lab.size] // BLOCK_BYTES
    order = list(range(blocks))
    shuffled = random.Random(102).sample(order, blocks)
    rows = [
        _write(lab, path, WRITE_ORDER, order),
        _write(lab, path, WRITE_RANDOM, shuffled),
    ]
    _fill(path, blocks)
    kept = 0.0
    for name, places in ((READ_ORDER, order), (READ_RANDOM, shuffled)):
        kept = max(kept, make_cold([path]))
        rows.append(_read(lab, path, name, places))
    rows += _memory(lab)
    return Findings(UNITS, rows, judge(rows, kept), Chart(("rate",), logarithmic=True))


def block(number: int, _rest: bytes = seeded_bytes(BLOCK_BYTES - 8)) -> bytes:
    """Return the bytes of one block: its number, and more."""
    return number.to_bytes(8, "big") + _rest


def _fill(path: Path, blocks: int) -> None:
    with path.open("wb") as file:
        file.writelines(map(block, range(blocks)))


def _write(lab: Lab, path: Path, name: str, places: Sequence[int]) -> Row:
    """Write blocks over old ones, so that both orders find the file as it is, a sync for each group."""
    with path.open("wb") as file:
        file.write(bytes(len(places) * BLOCK_BYTES))
        os.fsync(file.fileno())
    deadline = time.perf_counter() + SECONDS_MAX[lab.size]
    done = 0
    with path.open("r+b", buffering=0) as file, Meter() as meter:
        fd = file.fileno()
        while done < len(places) and (done == 0 or time.perf_counter() < deadline):
            for number in places[done : done + GROUP]:
                os.pwrite(fd, block(number), number * BLOCK_BYTES)
            os.fdatasync(fd)
            done = min(done + GROUP, len(places))
    written = set(places[:done])
    with path.open("rb") as file:
        found = iter(lambda: file.read(BLOCK_BYTES), b"")
        empty = bytes(BLOCK_BYTES)
        right = [
            data == (block(number) if number in written else empty)
            for number, data in enumerate(found)
        ]
    lab.check(f"{name}: every block is in its place", len(right) == len(places) and all(right))
    lab.step()
    return Row(name, {"rate": meter.rate(done * BLOCK_BYTES / MiB), "blocks": done})


def _read(lab: Lab, path: Path, name: str, places: Sequence[int]) -> Row:
    deadline = time.perf_counter() + SECONDS_MAX[lab.size]
    found = []
    with path.open("rb", buffering=0) as file, Meter() as meter:
        fd = file.fileno()
        for number in places:
            found.append(os.pread(fd, BLOCK_BYTES, number * BLOCK_BYTES))
            if len(found) % GROUP == 0 and time.perf_counter() > deadline:
                break
    right = all(map(bytes.__eq__, found, map(block, places)))
    lab.check(f"{name}: {len(found)} blocks are those that were asked for", right)
    lab.step()
    return Row(name, {"rate": meter.rate(len(found) * BLOCK_BYTES / MiB), "blocks": len(found)})


def _memory(lab: Lab) -> list[Row]:
    """Write 4-byte values into an array that no processor cache holds, by compiled code."""
    import numpy as np

    count = MEMORY_BYTES[lab.size] // VALUE_BYTES
    places = np.random.default_rng(102).integers(0, count, count // 16)
    rows = []
    for name, where in ((MEMORY_ORDER, np.arange(len(places))), (MEMORY_RANDOM, places)):
        memory = np.zeros(count, np.uint32)
        memory[:] = 1  # has its pages before the clock starts
        with Meter() as meter:
            memory[where] = 7
        lab.check(
            f"{name}: every value is in its place",
            int((memory == 7).sum()) == np.unique(where).size,
        )
        rate = meter.rate(len(places) * VALUE_BYTES / MiB)
        rows.append(Row(name, {"rate": rate, "blocks": None}))
        lab.step()
    return rows


def judge(rows: Sequence[Row], kept: float) -> Verdict:
    """Compare orders on the disk, then the disk with memory."""
    rate = {row.name: row.figures["rate"] or 0.0 for row in rows}
    parts: dict[str, bool | None] = {
        "writes": clearly_more(rate[WRITE_ORDER], rate[WRITE_RANDOM]),
        "cold reads": None,
        "the disk against memory": clearly_more(rate[WRITE_ORDER], rate[MEMORY_RANDOM]),
    }
    seen = (
        f"writes in order are {times(rate[WRITE_ORDER], rate[WRITE_RANDOM])} as fast as at random"
    )
    if kept <= COLD_SHARE_MAX:
        parts["cold reads"] = clearly_more(rate[READ_ORDER], rate[READ_RANDOM])
        seen += f", cold reads {times(rate[READ_ORDER], rate[READ_RANDOM])}"
    seen += (
        f", and the disk takes {figure_text(rate[WRITE_ORDER])} MiB/s in order where memory takes "
        f"{figure_text(rate[MEMORY_RANDOM])} MiB/s at random"
    )
    return verdict(seen, CLAIM, parts)


EXPERIMENT: Final = Experiment(
    name="sequential",
    features=("F102",),
    about="blocks of a file in order against at random, beside memory",
    claim=CLAIM,
    run=run,
)
