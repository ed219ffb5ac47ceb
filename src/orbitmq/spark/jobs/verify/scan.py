"""Read a part of the log for its verification: stretches of good records, and what is said of queues.

A task does not know what lies before its split, and cannot judge everything: whether a record that is
older than the one before it belongs to an earlier life of the segment depends on queues that other tasks
read. So a stretch ends at every such place, and the driver (`verify/walk.py`) takes it or leaves it whole.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import ROW, Bytes, Mark, Rows, ScanOptions, ScanResult, Stop
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.spark.source.segment import open_segment
from orbitmq.spark.source.split_reader import BACK_BYTES
from orbitmq.spark.source.splits import Split
from orbitmq.store.dispatch import Chunk
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
        reader = _SplitScan(split, facts, compiled(), files)
        yield from reader.run_exact() if exact else reader.run()


@dataclass(slots=True)
class _Open:
    """The stretch that is being read."""

    start: int
    end: int
    last_ms: int
    wrong_offset: bool
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
    """Reads one split. Not thread-safe."""

    def __init__(self, split: Split, facts: StoreFacts, kernels: Kernels, files: FileCache) -> None:
        self._base = split.base_offset
        self._start = split.start - split.base_offset
        self._end = split.end - split.base_offset
        data = open_segment(split.path, split.base_offset).data
        self._data: Bytes = data[: split.limit - split.base_offset]
        self._whole_from = facts.whole_from
        self._kernels = kernels
        self._options = replace(facts.scan, max_rows=ROWS_MAX)
        start, end = split.start, split.limit
        self._part = LogPart(
            facts, kernels, files, start=start, end=end, pending_bytes=PENDING_BYTES
        )
        self._open: _Open | None = None
        self._room = STRETCHES_MAX

    def run(self) -> Iterator[Scanned]:
        position = self._start if self._start == 0 else self._find(self._start)
        while 0 <= position < self._end and self._room:
            found = self._scan(position, self._end, self._options)
            yield from self._take(found.rows)
            position = found.stop_at
            if found.stop in (Stop.CUT, Stop.END) and position < self._end:
                found = self._scan(position, len(self._data), replace(self._options, max_rows=1))
                yield from self._take(found.rows)
                position = found.stop_at
            if found.stop is Stop.BLANK:
                break
            if not len(found.rows) or found.stop is Stop.BAD:
                yield from self._close()
                position = self._find(position + 1)
        yield from self._close()

    def run_exact(self) -> Iterator[Scanned]:
        self._pad()
        position = self._start
        options = replace(self._options, check_crc=False)  # they were checked
        while position < self._end:
            found = self._scan(position, self._end, options)
            if not len(found.rows):
                break
            yield from self._extend(found.rows)
            position = found.stop_at
        yield from self._close()

    def _pad(self) -> None:
        """Let the missing end of a short file read as zeros, as the driver's view of it does."""
        if self._end > len(self._data):
            padded = np.zeros(self._end - self._start, dtype=np.uint8)
            there = self._data[self._start :]
            padded[: len(there)] = there
            self._data, self._base = padded, self._base + self._start
            self._start, self._end = 0, len(padded)

    def _scan(self, position: int, end: int, options: ScanOptions) -> ScanResult:
        return self._kernels.scan(self._data, position, end, self._base, options)

    def _find(self, position: int) -> int:
        """Return where the next record starts that names its own place; it may end behind the split."""
        end = min(len(self._data), self._end + BACK_BYTES)
        return self._kernels.find_record(self._data, position, end, self._base)

    def _take(self, rows: Rows) -> Iterator[Scanned]:
        """Add good records, in new stretches where the driver has to judge."""
        if not len(rows) or not self._room:
            return
        torn = self._torn(rows)
        starts = self._starts(rows) | torn
        starts[1:] |= torn[:-1]
        edges = [0, *(np.flatnonzero(starts[1:]) + 1).tolist(), len(rows)]
        for first, last in pairwise(edges):
            if starts[first]:
                yield from self._close()
            if not self._room:
                return
            if not torn[first]:
                yield from self._extend(rows[first:last])

    def _torn(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which records are torn ones of ours."""
        torn = np.zeros(len(rows), dtype=np.bool_)
        at = 0
        while (found := first_torn(self._data, rows[at:], self._whole_from)) is not None:
            torn[at + found] = True
            at += found + 1
        return torn

    def _starts(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return which records a new stretch must start with."""
        times, wrong = rows["store_ms"], rows["marks"] & Mark.OFFSET_WRONG != 0
        starts = np.zeros(len(rows), dtype=np.bool_)
        starts[1:] = (times[1:] < times[:-1]) | (wrong[1:] != wrong[:-1])
        if self._open is not None:
            starts[0] = times[0] < self._open.last_ms or wrong[0] != self._open.wrong_offset
        return starts

    def _extend(self, rows: Rows) -> Iterator[Scanned]:
        start = int(rows["log_offset"][0])
        if self._open is None:
            wrong = bool(rows["marks"][0] & Mark.OFFSET_WRONG)
            self._open = _Open(start, start, 0, wrong)
        self._open.add(rows)
        yield from self._rows(self._part.add(Chunk(self._data, rows), self._open.tally))

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
