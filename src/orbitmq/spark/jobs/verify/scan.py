"""Read a part of the log for its verification: stretches of good records, and what is said of queues.

A task does not know what lies before its split, and cannot decide everything: whether a record that is
older than the one before it is stale (left from an earlier use of the file) depends on queues that other
tasks read. So a stretch ends at every such place, and the driver (`walk.py`) takes it or leaves it whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import ROW, Mark, Rows, ScanOptions
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BACK_BYTES, Chunk, Segment, Skip, Split, chunks, find_record
from orbitmq.spark.source.segment import open_split
from orbitmq.store.recovery.torn_records import first_torn
from orbitmq.store.recovery.walk import NOTES_MAX
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.log_part import LogPart, PartTally
from orbitmq.store.verify.queues import QueueRow
from orbitmq.units import MiB

ROWS_MAX: Final = 16_384
STRETCHES_MAX: Final = 4096
"""Of one split. The driver reads what is left itself, record by record: nothing of it piles up there."""

PENDING_BYTES: Final = 16 * MiB
ROW_UNITS_MAX: Final = 200
"""Units of one row. Spark sorts rows by the ten thousand, so a row must be small."""

_LAST_ROWS: Final = 3  # whose store times tell whether what follows is stale
_NO_ROWS: Final = np.zeros(0, dtype=ROW)


class Stretch(NamedTuple):
    """Good records that follow one another, from log offset `start` to `end`. Travels to the driver.

    `rows` are those that the driver must see (`SampledChunk`), as bytes of ROW.
    """

    start: int
    end: int
    records: int
    rows: bytes
    tally: PartTally


class StretchRow(NamedTuple):
    """What a stretch says of a queue; counts only if the stretch does."""

    start: int  # of the stretch
    row: QueueRow


Scanned = Stretch | StretchRow


def scan_split(split: Split, facts: StoreFacts, *, exact: bool = False) -> Iterator[Scanned]:
    """Yield the stretches of a split, each behind the rows of its queues.

    `exact`: a record starts at the split's start, one ends at its end, and all between are good.
    """
    with FileCache(Disk(), writable=False) as files:
        part = LogPart(
            facts,
            compiled(),
            files,
            start=split.start,
            end=split.limit,
            pending_bytes=PENDING_BYTES,
        )
        scan = _SplitScan(part, whole_from=facts.whole_from)
        found = _chunks(split, replace(facts.scan, max_rows=ROWS_MAX), exact=exact)
        yield from scan.run_exact(found) if exact else scan.run(found)


def _chunks(split: Split, options: ScanOptions, *, exact: bool) -> Iterator[Chunk]:
    """Yield the records that start in a split; between two chunks there may be a bad place."""
    segment, kernels = open_split(split), compiled()
    start, bad, search_end = split.start, None, min(split.limit, split.end + BACK_BYTES)
    if exact:
        segment = _with_end(segment, split)
        options = replace(options, check_crc=False)  # they were checked
    else:
        bad = Skip(search_end=search_end)
        if start > split.base_offset:
            found = find_record(segment, start, min(search_end, segment.end_offset), kernels)
            start = split.end if found is None else found
    return chunks(
        segment, start, split.end, kernels=kernels, options=options, limit=split.limit, bad=bad
    )


def _with_end(segment: Segment, split: Split) -> Segment:
    """Let the missing end of a short file read as zeros, as the driver's view of it does."""
    if split.end <= segment.end_offset:
        return segment
    padded = np.zeros(split.end - split.start, dtype=np.uint8)
    there = segment.data[split.start - split.base_offset :]
    padded[: len(there)] = there
    return Segment(split.start, segment.path, padded)


@dataclass(slots=True)
class _Open:
    """The stretch that is being read."""

    start: int
    wrong_offset: bool  # whether its records name another place than theirs
    end: int = 0
    last_ms: int = 0
    records: int = 0
    tally: PartTally = field(default_factory=PartTally)
    first: Rows = field(default_factory=lambda: _NO_ROWS)
    last: Rows = field(default_factory=lambda: _NO_ROWS)

    def add(self, rows: Rows) -> None:
        self.end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
        self.last_ms = int(rows["store_ms"][-1])
        self.records += len(rows)
        # All that name a wrong place are noted one by one; otherwise the first will do.
        room = (NOTES_MAX if self.wrong_offset else 1) - len(self.first)
        self.first = np.concatenate((self.first, rows[: max(room, 0)]))
        self.last = np.concatenate((self.last, rows[-_LAST_ROWS:]))[-_LAST_ROWS:]

    def closed(self) -> Stretch:
        rows = np.concatenate((self.first, self.last))
        _, kept = np.unique(rows["log_offset"], return_index=True)
        sample = rows[kept].tobytes()
        return Stretch(self.start, self.end, self.records, sample, self.tally)


class _SplitScan:
    """Makes stretches of chunks. Not thread-safe."""

    def __init__(self, part: LogPart, *, whole_from: int) -> None:
        self._part = part
        self._whole_from = whole_from
        self._open: _Open | None = None
        self._room = STRETCHES_MAX

    def run(self, found: Iterable[Chunk]) -> Iterator[Scanned]:
        for chunk in found:
            yield from self._take(chunk)
            if not self._room:
                return
        yield from self._close()

    def run_exact(self, found: Iterable[Chunk]) -> Iterator[Scanned]:
        for chunk in found:
            yield from self._extend(chunk)
        yield from self._close()

    def _take(self, chunk: Chunk) -> Iterator[Scanned]:
        """Add good records, in new stretches where the driver has to judge."""
        rows = chunk.rows
        torn = self._torn(chunk)
        starts = self._starts(rows) | torn
        starts[1:] |= torn[:-1]
        edges = [0, *(np.flatnonzero(starts[1:]) + 1).tolist(), len(rows)]
        for first, last in pairwise(edges):
            if starts[first]:
                yield from self._close()
            if not self._room:
                return
            if not torn[first]:
                yield from self._extend(Chunk(chunk.buffer, rows[first:last]))

    def _torn(self, chunk: Chunk) -> npt.NDArray[np.bool_]:
        """Return which records are torn ones of ours."""
        torn = np.zeros(len(chunk.rows), dtype=np.bool_)
        at = 0
        while (found := first_torn(chunk.buffer, chunk.rows[at:], self._whole_from)) is not None:
            torn[at + found] = True
            at += found + 1
        return torn

    def _starts(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which records a new stretch must start with."""
        times, wrong = rows["store_ms"], rows["marks"] & Mark.OFFSET_WRONG != 0
        starts = np.zeros(len(rows), dtype=np.bool_)
        starts[1:] = (times[1:] < times[:-1]) | (wrong[1:] != wrong[:-1])
        opened = self._open
        if opened is not None:
            follows = rows["log_offset"][0] == opened.end and times[0] >= opened.last_ms
            starts[0] = not follows or wrong[0] != opened.wrong_offset
        return starts

    def _extend(self, chunk: Chunk) -> Iterator[Scanned]:
        if self._open is None:
            start = int(chunk.rows["log_offset"][0])
            self._open = _Open(start, bool(chunk.rows["marks"][0] & Mark.OFFSET_WRONG))
        self._open.add(chunk.rows)
        yield from self._rows(self._part.add(chunk, self._open.tally))

    def _close(self) -> Iterator[Scanned]:
        if self._open is not None:
            yield from self._rows(self._part.rest())
            yield self._open.closed()
            self._open = None
            self._room -= 1

    def _rows(self, rows: Iterable[QueueRow]) -> Iterator[StretchRow]:
        assert self._open is not None
        for row in rows:
            for piece in row.pieces(ROW_UNITS_MAX):
                yield StretchRow(self._open.start, piece)
