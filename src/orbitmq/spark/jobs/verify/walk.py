"""The driver's walk over a log that tasks have read: the very walk of `store check`, over their stretches.

A stretch is only a hint: it counts if the walk comes to exactly its start. Where there is none (a task
found another first record, or a place holds no record at all) the driver reads on by itself until it
meets the next one, so the result never depends on how the log was split.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from orbitmq.format.columns import ROW, Rows, ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk, LogStop, LogView, ReadState, Segment, Split, chunks
from orbitmq.spark.jobs.verify.scan import Stretch
from orbitmq.store.recovery.walk import SampledChunk

READ_ROWS: Final = 4096


@dataclass(frozen=True, slots=True)
class StretchChunk(SampledChunk):
    """A stretch as the walk sees it."""

    stretch: Stretch | None = None


class StretchReader:
    """Gives the walk its records. Not thread-safe."""

    def __init__(
        self, log: LogView, stretches: Iterable[Stretch], kernels: Kernels, scan: ScanOptions
    ) -> None:
        self._log = log
        self._stretches = {stretch.start: stretch for stretch in stretches}
        self._starts = np.array(sorted(self._stretches), dtype=np.int64)
        self._kernels = kernels
        self._scan = replace(scan, max_rows=READ_ROWS)

    def read(self, at: int, state: ReadState) -> Iterator[Chunk]:
        """Yield the good records from `at` on; see `walk.Read`."""
        state.at, state.stop = at, LogStop.END
        while state.at < self._log.max_offset and state.stop is LogStop.END:
            stretch = self._stretches.get(state.at)
            if stretch is not None:
                segment = self._log.at(state.at)
                state.at = stretch.end
                rows = np.frombuffer(stretch.rows, dtype=ROW)
                yield StretchChunk(segment.data, rows, None, stretch.records, stretch)
            else:
                yield from self._read_on(self._log.at(state.at), state)

    def _read_on(self, segment: Segment, state: ReadState) -> Iterator[Chunk]:
        """Read some records up to the next stretch, or tell why there are none."""
        reading = chunks(segment, state.at, kernels=self._kernels, options=self._scan, state=state)
        chunk = next(reading, None)
        if chunk is not None:
            rows = self._up_to_a_stretch(chunk.rows)
            state.at = int(rows["log_offset"][-1]) + int(rows["size"][-1])
            yield Chunk(segment.data, rows)
        elif state.stop is LogStop.END or (
            state.stop is LogStop.BLANK and segment.end_offset < self._log.max_offset
        ):
            state.at, state.stop = segment.end_offset, LogStop.END
        elif state.stop is LogStop.CUT:
            state.stop = LogStop.BAD  # nothing of a log lies behind a segment

    def _up_to_a_stretch(self, rows: Rows) -> Rows:
        """Return the rows before the first one that a stretch starts with."""
        known = np.flatnonzero(np.isin(rows["log_offset"][1:], self._starts))
        return rows[: known[0] + 1] if len(known) else rows


class ReadRanges:
    """Parts of the log that only the driver has read: tasks compare them with queues and index later."""

    def __init__(self, log: LogView, split_bytes: int) -> None:
        self._log = log
        self._split_bytes = split_bytes
        self.splits: list[Split] = []

    def add(self, rows: Rows) -> None:
        """Take good records that follow those before, or not."""
        start = int(rows["log_offset"][0])
        end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
        segment = self._log.at(start)
        last = self.splits[-1] if self.splits else None
        if (
            last is not None
            and last.end == start
            and last.base_offset == segment.base_offset
            and start - last.start < self._split_bytes
        ):
            self.splits[-1] = last._replace(end=end)
            return
        limit = segment.end_offset
        self.splits.append(Split(str(segment.path), segment.base_offset, start, end, limit))
