"""What survives in a commit log: tell good records from bad places, and say how to mend those.

Pure functions over mapped bytes; nothing is written here. `walk` hands out chunks of good records and,
where the log is broken, a `Repair`; the caller applies it (or only reports it) and goes on.

Rules for a place that holds no valid record:
  nothing valid behind it      torn tail: the log ends there; the rest of the segment becomes zeros and
                               later segments go
  valid records behind it      the place is filled (`bad_place`), nothing behind it is given up
A record that fails nothing but its stored offset stays, unless it ends the log and junk follows it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from orbitmq.format.columns import Mark
from orbitmq.log_read import Chunk, LogStop, LogView, Progress, ReadState, replay
from orbitmq.store.recovery.bad_place import RepairPlanner
from orbitmq.store.recovery.plan import Note, Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.queue_counts import QueueCounts, queue_of
from orbitmq.store.recovery.torn_records import first_torn

NOTES_MAX: Final = 1000


@dataclass(frozen=True, slots=True)
class SampledChunk(Chunk):
    """Good records that were read elsewhere: `rows` are some of them, `record_count` counts all.

    Among the rows are the first one and the last three. A record that is older than the one before it
    is the first of its chunk, and either all records name their own place or none does.
    """

    record_count: int = 0


Read = Callable[[int, ReadState], Iterator[Chunk]]
"""Yields the good records from a log offset on, and keeps the state, as `replay` does."""


@dataclass(slots=True)
class WalkResult:
    """What a walk found; complete when the walk is over."""

    end_offset: int
    records: int = 0
    recent_ms: tuple[int, ...] = ()  # store times of the last three good records, fillers aside
    last_row: tuple[int, int, int] | None = None  # log offset; position and length of properties
    repairs: list[Repair] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)

    @property
    def last_store_ms(self) -> int:
        """The store time of the last good record, -1 if there was none."""
        return self.recent_ms[-1] if self.recent_ms else -1

    @property
    def likely_ms(self) -> int:
        """The store time up to which the log reaches, -1 if there was no record.

        Times do not decrease, so the oldest of the last three is near enough; and no checksum covers a
        time, so the last one alone may be wrong by centuries.
        """
        return min(self.recent_ms, default=-1)


def plan_recovery(log: LogView, start: int, options: WalkOptions) -> WalkResult:
    """Return where the log ends and what has to be mended, without changing anything."""
    result = WalkResult(start)
    for _ in walk(log, start, options, result):
        pass
    return result


def walk(
    log: LogView,
    start: int,
    options: WalkOptions,
    result: WalkResult,
    read: Read | None = None,
) -> Iterator[Chunk | Repair]:
    """Yield good records as chunks and bad places as repairs, in log order; fillers come as chunks too.

    The caller may apply a repair before it takes the next item. `result` grows meanwhile. `read` is for
    callers who have read the log already.
    """
    return _Walk(log, start, options, result, read).run(start)


class _Walk:
    """One pass over a log. Not thread-safe."""

    def __init__(
        self,
        log: LogView,
        start: int,
        options: WalkOptions,
        result: WalkResult,
        read: Read | None,
    ) -> None:
        self._log = log
        self._read = read
        self._options = options
        self._result = result
        self._counts = QueueCounts(log, start, options.kernels, options.known_next)
        self._start = start

    def run(self, start: int) -> Iterator[Chunk | Repair]:
        planner = RepairPlanner(self._log, self._options, self._counts)
        at = start
        while True:
            state = ReadState(at)
            yield from self._good(at, state)
            self._result.end_offset = state.at
            repair = planner.examine(state.at, state.stop, self._result.recent_ms)
            if repair is None:
                return
            self._result.repairs.append(repair)
            yield repair
            if repair.kind is RepairKind.CUT:
                return
            if chunk := self._filler_chunk(repair):
                yield chunk
            at = repair.resume
            self._counts.skip_to(at)

    def _good(self, at: int, state: ReadState) -> Iterator[Chunk]:
        """Yield chunks up to the next bad place; `state` tells where that is.

        One chunk is held back: only what follows a record that names a wrong offset shows whether
        that record counts.
        """
        held: Chunk | None = None
        # Not kept as an attribute: a cycle would hold the maps of the log until it is collected.
        read = self._read or self._replay
        for chunk in read(at, state):
            if held is not None:
                yield self._counted(held)
            held, torn_at = self._without_torn(chunk)
            held, stale_at = self._without_stale(held)
            bad_at = stale_at if stale_at is not None else torn_at
            if bad_at is not None:
                state.at, state.stop = bad_at, LogStop.BAD
                break
        if held is not None and len(held.rows) and state.stop is LogStop.BAD:
            held = self._without_doubtful_end(held, state)
        if held is not None and len(held.rows):
            yield self._counted(held)

    def _replay(self, at: int, state: ReadState) -> Iterator[Chunk]:
        return replay(
            self._log,
            at,
            kernels=self._options.kernels,
            options=self._options.scan,
            state=state,
            progress=self._shifted_progress(at),
            prepare=self._options.prepare,
        )

    def _counted(self, chunk: Chunk) -> Chunk:
        rows = chunk.rows
        self._result.records += chunk.record_count if isinstance(chunk, SampledChunk) else len(rows)
        # The time of a filler is one that we gave it: it says nothing of the log.
        times = rows["store_ms"][rows["marks"] & Mark.FILLER == 0][-3:].tolist()
        self._result.recent_ms = (*self._result.recent_ms, *times)[-3:]
        last = rows[["log_offset", "properties_at", "properties_length"]][-1]
        self._result.last_row = tuple(last.tolist())
        for index in np.flatnonzero(rows["marks"] & Mark.OFFSET_WRONG).tolist():
            log_offset = int(rows["log_offset"][index])
            self._note(log_offset, "record names another log offset than its place")
        return chunk

    def _note(self, log_offset: int, cause: str) -> None:
        if len(self._result.notes) < NOTES_MAX:
            segment = self._log.at(log_offset)
            position = log_offset - segment.base_offset
            self._result.notes.append(Note(segment.path, position, log_offset, cause))

    def _without_torn(self, chunk: Chunk) -> tuple[Chunk, int | None]:
        """Cut a chunk before a record of ours that was torn; return where that lies."""
        torn = first_torn(chunk.buffer, chunk.rows, self._options.whole_from)
        if torn is None:
            return chunk, None
        return Chunk(chunk.buffer, chunk.rows[:torn]), int(chunk.rows["log_offset"][torn])

    def _without_stale(self, chunk: Chunk) -> tuple[Chunk, int | None]:
        """Cut a chunk before stale bytes; return where they start.

        They can only be told from a clock that was set back by their queue offsets: those a living
        log does not use twice. (Records without a unit all have queue offset 0, so they tell nothing.)
        """
        rows = chunk.rows
        times = rows["store_ms"]
        if not len(rows):
            return chunk, None
        before = self._result.last_store_ms
        earlier = times < np.concatenate(([before], times[:-1]))
        earlier &= rows["marks"] & Mark.NO_UNIT == 0
        for index in np.flatnonzero(earlier).tolist():
            log_offset = int(rows["log_offset"][index])
            self._counts.advance(log_offset)
            known = self._counts.next_offset(*queue_of(chunk.buffer, rows[index]))
            if known is not None and int(rows["queue_offset"][index]) < known:
                return Chunk(chunk.buffer, rows[:index]), log_offset
        return chunk, None

    def _without_doubtful_end(self, chunk: Chunk, state: ReadState) -> Chunk:
        """Drop records with wrong offsets that end the log, if junk follows them."""
        rows = chunk.rows
        segment = self._log.at(int(rows["log_offset"][-1]))
        if state.at >= segment.end_offset or not rows["marks"][-1] & Mark.OFFSET_WRONG:
            return chunk
        if segment.is_zero(state.at - segment.base_offset):
            return chunk
        right = np.flatnonzero(rows["marks"] & Mark.OFFSET_WRONG == 0)
        keep = int(right[-1]) + 1 if len(right) else 0
        state.at = int(rows["log_offset"][keep])
        return Chunk(chunk.buffer, rows[:keep])

    def _filler_chunk(self, repair: Repair) -> Chunk | None:
        """Return the fillers of a repair as records, and count them in their queues."""
        if repair.kind is not RepairKind.FILL:
            return None
        buffer = np.frombuffer(repair.data, dtype=np.uint8)
        options = replace(self._options.scan, check_property_crc=False)
        found = self._options.kernels.scan(buffer, 0, len(buffer), repair.start, options)
        chunk = Chunk(buffer, found.rows)
        self._counts.add(chunk)
        return self._counted(chunk) if len(found.rows) else None

    def _shifted_progress(self, at: int) -> Progress | None:
        progress, start = self._options.progress, self._start
        if progress is None:
            return None
        return lambda done, total: progress(at - start + done, at - start + total)
