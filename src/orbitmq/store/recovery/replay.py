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
from enum import Enum
from typing import Final, NamedTuple

from orbitmq.format.columns import ScanOptions, ScanResult, Stop
from orbitmq.format.kernels import Kernels
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.log_view import LogView, SegmentView
from orbitmq.units import MiB

BLOCK_BYTES: Final = 8 * MiB

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), from the thread that consumes."""


class LogStop(Enum):
    """Why a replay ended."""

    END = "end"  # everything that was asked for was read
    BLANK = "blank"  # the last segment is closed by a blank, and there is no next one
    BAD = "bad"  # no valid record lies here


@dataclass(slots=True)
class ReplayState:
    """How far a replay came; `at` is behind the last record that was handed out."""

    at: int
    stop: LogStop = LogStop.END


class _Block(NamedTuple):
    number: int  # of the segment
    start: int  # positions in the segment
    end: int
    at_record: bool = True  # whether `start` is known to be where a record starts


class _Scanned(NamedTuple):
    block: _Block
    result: ScanResult
    chunk: Chunk | None  # of the result's rows


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
    state: ReplayState | None = None,
    progress: Progress | None = None,
    prepare: Prepare | None = None,
) -> Iterator[Chunk]:
    """Yield the records from `start` up to `end` (None: of the log) in chunks of bounded size.

    `state` tells, during and after, how far it came and why it stopped: at the first place that holds
    no valid record, at the latest.
    """
    threads = worker_count(kernels, workers)
    reader = _Reader(log, end, kernels, options, threads, progress, prepare)
    return reader.run(start, state if state is not None else ReplayState(start))


class _Reader:
    """One replay. Not thread-safe; its workers only call kernels."""

    def __init__(
        self,
        log: LogView,
        end: int | None,
        kernels: Kernels,
        options: ScanOptions,
        workers: int,
        progress: Progress | None,
        prepare: Prepare | None,
    ) -> None:
        self._log = log
        self._end = log.max_offset if end is None else min(end, log.max_offset)
        self._kernels = kernels
        self._options = options
        self._workers = workers
        self._progress = progress
        self._prepare = prepare

    def run(self, start: int, state: ReplayState) -> Iterator[Chunk]:
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

    def _length(self, segment: SegmentView) -> int:
        return min(len(segment.data), self._end - segment.base_offset)

    def _scan(self, block: _Block) -> _Scanned:
        """Scan a block, after moving its edges to the next record."""
        segment = self._log.segments[block.number]
        length = self._length(segment)
        first = block.start if block.at_record else self._edge(segment, block.start, length)
        last = self._edge(segment, block.end, length)
        moved = _Block(block.number, first, last)
        result = self._scan_range(segment, first, last)
        return _Scanned(moved, result, self._chunk(segment, result))

    def _chunk(self, segment: SegmentView, result: ScanResult) -> Chunk | None:
        if not len(result.rows):
            return None
        chunk = Chunk(segment.data, result.rows)
        return self._prepare(chunk) if self._prepare is not None else chunk

    def _edge(self, segment: SegmentView, position: int, length: int) -> int:
        if position >= length:
            return length
        end = min(position + BLOCK_BYTES, length)
        found = self._kernels.find_record(
            segment.data, position, end, segment.base_offset, check_crc=False
        )
        return found if found >= 0 else end

    def _scan_range(self, segment: SegmentView, first: int, last: int) -> ScanResult:
        return self._kernels.scan(segment.data, first, last, segment.base_offset, self._options)

    def _consume(
        self, scanned: Iterator[_Scanned], start: int, state: ReplayState
    ) -> Iterator[Chunk]:
        total = self._end - start
        for block, result, chunk in scanned:
            segment = self._log.segments[block.number]
            block_end = segment.base_offset + block.end
            if state.at >= block_end:
                continue  # behind a blank, or read already
            if state.at == segment.base_offset + block.start:
                yield from self._take(segment, block, result, chunk, state)
            else:
                yield from self._take(segment, block, None, None, state)
            if state.stop is not LogStop.END:
                return
            if self._progress is not None:
                self._progress(state.at - start, total)

    def _take(
        self,
        segment: SegmentView,
        block: _Block,
        result: ScanResult | None,
        chunk: Chunk | None,
        state: ReplayState,
    ) -> Iterator[Chunk]:
        """Hand out the rest of a block; move `state.at` to where the next record starts."""
        last = block.end
        length = self._length(segment)
        while True:
            if result is None:
                first = state.at - segment.base_offset
                result = self._scan_range(segment, first, last)
                chunk = self._chunk(segment, result)
            if chunk is not None:
                state.at = segment.base_offset + result.stop_at
                yield chunk
            match result.stop:
                case Stop.FULL:
                    result = None
                    continue
                case Stop.CUT if last < length:
                    return  # the edge was no record; the next block starts over from here
                case Stop.END:
                    # Too few bytes for a blank may be left. Inside a segment that is only the edge
                    # of a block; at its end, a writer that was none of ours left no room for one.
                    if last == length:
                        state.at = segment.base_offset + last
                case Stop.BLANK:
                    self._pass_blank(segment, state)
                case _:
                    state.stop = LogStop.BAD
            return

    def _pass_blank(self, segment: SegmentView, state: ReplayState) -> None:
        if self._end < segment.end_offset:
            state.at = self._end
        elif segment.end_offset < self._log.max_offset:
            state.at = segment.end_offset
        else:
            state.stop = LogStop.BLANK


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
