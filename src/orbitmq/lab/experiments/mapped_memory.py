"""`mmap`: page faults of appends and reads: warm-up, mlock and read-ahead of mapped segments."""

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orbitmq.files.disk import Disk
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
    verdict,
)
from orbitmq.lab.measure import COLD_SHARE_MAX, Meter, make_cold, seeded_bytes
from orbitmq.lab.stores import BATCH, TOPIC, open_store, requests, require_stored
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.units import PAGE_BYTES, KiB, MiB

SEGMENT_BYTES: Final = {Size.SMALL: 2 * MiB, Size.FULL: 64 * MiB}
STORE_SEGMENT_BYTES: Final = {Size.SMALL: 4 * MiB, Size.FULL: 64 * MiB}
BODY_BYTES: Final = 1 * KiB
RECORD_BYTES: Final = BODY_BYTES + 128  # about
NEW, WARMED = "new segment, written", "new segment, warmed up and locked, written"
AHEAD, NOT_AHEAD = "cold segment, read with read-ahead", "cold segment, read without"
STORE, STORE_WARMED = "appends to a store", "appends to a store with warm-up"
CLAIM: Final = (
    "a mapping alone loads nothing and each page costs a fault when it is first used, so warm-up and mlock "
    "take the faults out of appends, and read-ahead most of them out of a cold read"
)
UNITS: Final = {
    "minor faults": "per 1 000 pages",
    "major faults": "per 1 000 pages",
    "time": "us/page",
    "locked": "MiB",
}
_CHECKSUM_OF_A_FILE: Final = """
import hashlib, sys
with open(sys.argv[1], "rb") as file:
    sys.stdout.write(hashlib.file_digest(file, "blake2b").hexdigest())
"""


def run(lab: Lab) -> Findings:
    lab.steps(6)
    rows = [_written(lab, NEW, warm=False), _written(lab, WARMED, warm=True)]
    kept = 0.0
    for name, ahead in ((AHEAD, True), (NOT_AHEAD, False)):
        row, share = _read_cold(lab, name, read_ahead=ahead)
        rows.append(row)
        kept = max(kept, share)
    rows.append(_appended(lab, STORE, warm=False))
    rows.append(_appended(lab, STORE_WARMED, warm=True))
    return Findings(UNITS, rows, judge(rows, kept), Chart(("minor faults", "major faults")))


def _written(lab: Lab, name: str, *, warm: bool) -> Row:
    """Write every page of a new segment; another process looks before anything is flushed."""
    size, path = SEGMENT_BYTES[lab.size], _path(lab, name)
    page = seeded_bytes(PAGE_BYTES)
    segment = MappedFile.create(Disk(), path, 0, size)
    try:
        if warm:
            segment.warm()
            pages = segment.resident_pages()
            lab.check(f"{name}: all pages were in memory before", pages * PAGE_BYTES == size)
        locked = locked_bytes(path)
        mapping = segment.writable_mapping()
        with Meter() as meter:
            for start in range(0, size, PAGE_BYTES):
                mapping[start : start + PAGE_BYTES] = page
        wanted = hashlib.blake2b(page * (size // PAGE_BYTES)).hexdigest()
        lab.check(f"{name}: another process sees the bytes before a flush", _seen(path) == wanted)
        segment.sync()
    finally:
        segment.close()
    lab.step()
    note = "the system does not lock so much (ulimit -l)" if warm and not locked else ""
    return _row(name, meter, size // PAGE_BYTES, locked, note)


def _seen(path: Path) -> str:
    command = [sys.executable, "-I", "-S", "-c", _CHECKSUM_OF_A_FILE, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def _read_cold(lab: Lab, name: str, *, read_ahead: bool) -> tuple[Row, float]:
    """Read every page of a segment that is not in memory; also return the share that was."""
    size, path = SEGMENT_BYTES[lab.size], _path(lab, NEW)
    share = make_cold([path])
    segment = MappedFile(Disk(), path, 0, size)
    view = segment.view
    if not read_ahead:
        segment.read_ahead(False)
    whole, found = hashlib.blake2b(), bytearray(size)
    with Meter() as meter:
        for start in range(0, size, PAGE_BYTES):
            found[start : start + PAGE_BYTES] = view[start : start + PAGE_BYTES]
    whole.update(seeded_bytes(PAGE_BYTES) * (size // PAGE_BYTES))
    lab.check(f"{name}: the bytes are equal", hashlib.blake2b(found).digest() == whole.digest())
    del view
    segment.close()
    lab.step()
    return _row(name, meter, size // PAGE_BYTES, 0), share


def _appended(lab: Lab, name: str, *, warm: bool) -> Row:
    """Append one segment full of messages; faults are those of the thread that appends."""
    size = STORE_SEGMENT_BYTES[lab.size]
    made = requests(size * 3 // 4 // RECORD_BYTES, 4, BODY_BYTES)
    keys: dict[str, object] = {"mappedFileSizeCommitLog": size, "warmMapedFileEnable": warm}
    with open_store(lab.directory / name.replace(" ", "-"), **keys) as store:
        first, rest = made[:BATCH], made[BATCH:]
        require_stored(store, store.append_many(first))  # has made the segment
        locked = locked_bytes(lab.directory)
        before = store.max_log_offset
        with Meter() as meter:
            for start in range(0, len(rest), BATCH):
                require_stored(store, store.append_many(rest[start : start + BATCH]))
        pages = (store.max_log_offset - before) // PAGE_BYTES
        store.wait_dispatched()
        ends = [store.max_offset(TOPIC, queue_id) for queue_id in range(4)]
    wanted = [len(made[queue_id::4]) for queue_id in range(4)]
    lab.check(f"{name}: {len(made)} messages are in their queues", ends == wanted)
    lab.step()
    return _row(name, meter, pages, locked)


def _row(name: str, meter: Meter, pages: int, locked: int, note: str = "") -> Row:
    figures = {
        "minor faults": meter.minor_faults * 1_000 / pages,
        "major faults": meter.major_faults * 1_000 / pages,
        "time": meter.seconds * 1e6 / pages,
        "locked": locked / MiB,
    }
    return Row(name, figures, note)


def _path(lab: Lab, name: str) -> Path:
    return lab.directory / ("new" if name == NEW else "warmed") / "00000000000000000000"


def locked_bytes(place: Path) -> int:
    """Return how much of this process's mappings of a file, or of files in a folder, is locked in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if len(fields) >= 5 and "-" in fields[0] and not fields[0].endswith(":"):
            ours = len(fields) > 5 and Path(fields[5]).is_relative_to(place)
        elif ours and fields[0] == "Locked:":
            total += int(fields[1]) * KiB
    return total


def judge(rows: Sequence[Row], kept: float) -> Verdict:
    """Compare faults with and without warm-up, and with and without read-ahead."""
    minor, major = (
        {row.name: row.figures[kind] or 0.0 for row in rows}
        for kind in ("minor faults", "major faults")
    )
    parts: dict[str, bool | None] = {
        "warm-up": clearly_more(minor[NEW], minor[WARMED]),
        "warm-up of a store": clearly_more(minor[STORE], minor[STORE_WARMED]),
        "read-ahead": None,
    }
    seen = (
        f"{figure_text(minor[NEW])} faults for 1 000 new pages, {figure_text(minor[WARMED])} after warm-up, "
        f"in appends to a store {figure_text(minor[STORE])} and with warm-up "
        f"{figure_text(minor[STORE_WARMED])}"
    )
    if kept <= COLD_SHARE_MAX:
        parts["read-ahead"] = clearly_more(major[NOT_AHEAD], major[AHEAD])
        seen += (
            f", and waits for the disk {figure_text(major[AHEAD])} times for 1 000 cold pages with "
            f"read-ahead, {figure_text(major[NOT_AHEAD])} without"
        )
    return verdict(seen, CLAIM, parts)


EXPERIMENT: Final = Experiment(
    name="mmap",
    features=("F55", "F59"),
    about="warm-up, mlock and read-ahead, seen in page faults",
    claim=CLAIM,
    run=run,
)
