"""Read a commit log from end to end, in log order, with all cores.

A segment is cut into blocks at records that name their own place; threads scan blocks ahead while the
consumer takes them in order. A cut is only a guess (a body may hold a copy of a log), so a block is
used only if it starts exactly where the one before it ended; otherwise that part is scanned again.
"""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read.log_view import LogView
from orbitmq.log_read.reader import Chunk, LogStop, ReadState, chunks, find_record
from orbitmq.log_read.segment import Segment
from orbitmq.units import MiB

BLOCK_BYTES: Final = 8 * MiB

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), from the thread that consumes."""


class _Block(NamedTuple):
    number: int  # of the segment
    start: int  # positions in the segment
    end: int
    at_record: bool = True  # whether `start` is known to be where a record starts


class _Scanned(NamedTuple):
    block: _Block
    pieces: list[tuple[int, Chunk]]  # with the log offset behind each
    state: ReadState


Prepare = Callable[[Chunk], Chunk]
"""Work on a chunk that needs no order; done by the threads that scan."""


def worker_count(kernels: Kernels, workers: int | None = None) -> int:
    """Return how many threads make sense: the plain kernels hold the interpreter's lock."""
    if kernels.name != "compiled":
        return 1
    return max(1, workers if workers is not None else os.cpu_count() or 1)


def replay(
    log: LogView,
    start: int,
    end: int | None = None,
    *,
    kernels: Kernels,
    options: ScanOptions,
    workers: int | None = None,
    state: ReadState | None = None,
    progress: Progress | None = None,
    prepare: Prepare | None = None,
) -> Iterator[Chunk]:
    """Yield the records from `start` up to `end` (None: of the log) in chunks of bounded size.

    `state` tells, during and after, how far it came and why it stopped: at the first place that holds
    no valid record, at the latest.
    """
    threads = worker_count(kernels, workers)
    last = log.max_offset if end is None else min(end, log.max_offset)
    reader = _Reader(log, last, kernels, options, threads, progress, prepare)
    return reader.run(start, state if state is not None else ReadState(start))


@dataclass(slots=True)
class _Reader:
    """One replay. Not thread-safe; its workers only call kernels."""

    _log: LogView
    _end: int
    _kernels: Kernels
    _options: ScanOptions
    _workers: int
    _progress: Progress | None
    _prepare: Prepare | None

    def run(self, start: int, state: ReadState) -> Iterator[Chunk]:
        state.at, state.stop = start, LogStop.END
        if start >= self._end:
            return
        blocks = self._blocks(start)
        if self._workers == 1:
            yield from self._consume((self._scan(block) for block in blocks), start, state)
            return
        with ThreadPoolExecutor(self._workers, thread_name_prefix="replay") as pool:
            ahead = _read_ahead(pool, self._scan, blocks, 2 * self._workers)
            try:
                yield from self._consume(ahead, start, state)
            finally:
                ahead.close()

    def _blocks(self, start: int) -> Iterator[_Block]:
        for number in range(self._log.index_of(start), len(self._log.segments)):
            segment = self._log.segments[number]
            if segment.base_offset >= self._end:
                return
            first = max(0, start - segment.base_offset)
            last = self._length(segment)
            # Where nothing was ever written there is nothing to scan ahead.
            splits = range(first, max(first + 1, min(last, segment.data_end())), BLOCK_BYTES)
            for position in splits:
                end = last if position == splits[-1] else position + BLOCK_BYTES
                yield _Block(number, position, end, position == first)

    def _length(self, segment: Segment) -> int:
        return min(len(segment.data), self._end - segment.base_offset)

    def _scan(self, block: _Block) -> _Scanned:
        """Scan a block, after moving its edges to the next record."""
        segment = self._log.segments[block.number]
        length = self._length(segment)
        first = block.start if block.at_record else self._edge(segment, block.start, length)
        moved = _Block(block.number, first, self._edge(segment, block.end, length))
        state = ReadState(segment.base_offset + first)
        pieces = [(state.at, chunk) for chunk in self._chunks(segment, moved, state)]
        return _Scanned(moved, pieces, state)

    def _chunks(self, segment: Segment, block: _Block, state: ReadState) -> Iterator[Chunk]:
        """Yield the records from `state.at` on that start in a block."""
        found = chunks(
            segment,
            state.at,
            segment.base_offset + block.end,
            kernels=self._kernels,
            options=self._options,
            limit=segment.base_offset + self._length(segment),
            state=state,
        )
        return found if self._prepare is None else map(self._prepare, found)

    def _edge(self, segment: Segment, position: int, length: int) -> int:
        if position >= length:
            return length
        end = min(position + BLOCK_BYTES, length)
        base = segment.base_offset
        found = find_record(segment, base + position, base + end, self._kernels, check_crc=False)
        return found - base if found is not None else end

    def _consume(
        self, scanned: Iterator[_Scanned], start: int, state: ReadState
    ) -> Iterator[Chunk]:
        total = self._end - start
        for block, pieces, told in scanned:
            segment = self._log.segments[block.number]
            if state.at >= segment.base_offset + block.end:
                continue  # behind a blank, or read already
            if state.at == segment.base_offset + block.start:
                for state.at, chunk in pieces:
                    yield chunk
                state.at, state.stop = told.at, told.stop
            else:
                yield from self._chunks(segment, block, state)
            self._pass_end(segment, block, state)
            if state.stop is not LogStop.END:
                return
            if self._progress is not None:
                self._progress(state.at - start, total)

    def _pass_end(self, segment: Segment, block: _Block, state: ReadState) -> None:
        """Move on to the next segment where this one has no more."""
        length = self._length(segment)
        match state.stop:
            case LogStop.END if block.end == length:
                # Too few bytes for a blank may be left: a writer that was none of ours left no room.
                state.at = max(state.at, segment.base_offset + length)
            case LogStop.BLANK if self._end < segment.end_offset:
                state.at, state.stop = self._end, LogStop.END
            case LogStop.BLANK if segment.end_offset < self._log.max_offset:
                state.at, state.stop = segment.end_offset, LogStop.END
            case LogStop.CUT:
                state.stop = LogStop.BAD  # nothing of a log lies behind a segment


def _read_ahead(
    pool: ThreadPoolExecutor,
    scan: Callable[[_Block], _Scanned],
    blocks: Iterator[_Block],
    count: int,
) -> Generator[_Scanned, None, None]:
    waiting: deque[Future[_Scanned]] = deque()
    try:
        for block in blocks:
            waiting.append(pool.submit(scan, block))
            if len(waiting) >= count:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
