"""The records of a range of one segment, chunk by chunk: the one place that knows how a scan stops.

Whoever reads a log (live dispatch, recovery, tools, Spark tasks) reads it by `chunks`, and says what is to
become of bytes that are no record:

  stop            the range ends there, and the state tells where and why
  skip            go on behind them by one rule for all (`Skip`)
  prove and fill  recovery's: it stops, asks the records behind the place for proof that the log goes on,
                  and reads on behind the fillers (`store.recovery.walk`)

Offsets count from the start of the log, positions from the start of a segment.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Rows, ScanOptions, ScanResult, Stop
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import BLANK_BYTES, store_ms_at
from orbitmq.log_read.segment import Segment
from orbitmq.units import KiB, MiB

NO_TIME: Final = -(2**63)
BACK_BYTES: Final = 4 * MiB + 128 * KiB
"""RocketMQ's largest message with its properties and header. A store with a larger maxMessageSize needs
more (`back_bytes`)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one segment: `rows` were scanned from `buffer` and count positions in it.

    `items` are the index items of all rows, where somebody made them ahead (recovery, in its threads).
    """

    buffer: Bytes
    rows: Rows
    items: npt.NDArray[np.void] | None = None


class LogStop(Enum):
    """Why reading ended."""

    END = "end"  # everything that was asked for was read
    BLANK = "blank"  # the segment is closed here by a blank record
    BAD = "bad"  # no valid record lies here, and none behind it that counts
    CUT = "cut"  # a record starts here and reaches behind what may be read


@dataclass(slots=True)
class ReadState:
    """How far reading came: `at` is behind the last record or bad place, `last_ms` the last store time.

    One state may serve several ranges, one after another.
    """

    at: int
    stop: LogStop = LogStop.END
    last_ms: int = NO_TIME

    @property
    def is_whole(self) -> bool:
        """Whether nothing but records (and a blank) lay in the range."""
        return self.stop in (LogStop.END, LogStop.BLANK)

    def next_offset(self, segment_end: int) -> int:
        """Return where the next record lies: behind the segment if this one can hold no more."""
        no_room = self.stop is LogStop.END and segment_end - self.at < BLANK_BYTES
        return segment_end if no_room or self.stop is LogStop.BLANK else self.at


class BadPlace(NamedTuple):
    """Bytes that hold no valid record although the log goes on behind them."""

    path: Path | str
    log_offset: int
    position: int
    length: int
    reason: str


OnBad = Callable[[BadPlace], None]
"""Is told of each bad place that is passed over; may raise."""


def ignore_bad(_place: BadPlace) -> None:
    """Leave it to another reader of the same bytes."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Go on behind bytes that are no record.

    A record with sound lengths that fails a check is a bad place by itself. Any other place ends at the
    next record that names its own offset and passes its CRC. What if there is none?

    By default all bytes up to the limit belong to the log, so the place reaches up to there.
    `growing`: bytes behind the limit are still to come, and are waited for (BAD, CUT), unless the
    segment ends there.
    `stale`: the range may reach behind the log's end, where stale bytes lie. So only a record that is
    not older than the last good one counts; without one the log ends before the place (BAD).

    `search_end`: whoever does not care what lies behind this offset need not look there.
    """

    on_bad: OnBad = ignore_bad
    growing: bool = False
    stale: bool = False
    search_end: int | None = None


def chunks(
    segment: Segment,
    start: int,
    end: int | None = None,
    *,
    kernels: Kernels,
    options: ScanOptions,
    limit: int | None = None,
    bad: Skip | None = None,
    state: ReadState | None = None,
) -> Iterator[Chunk]:
    """Yield the records that start in [start, end), at most `options.max_rows` at a time.

    A record (or a bad place) must start at `start`. One that starts before `end` may reach behind it, up
    to `limit`: no byte from there on is looked at. Both are the end of the segment's bytes if not given.
    `bad` is what to do with bytes that are no record, None: stop there. `state` tells, during and
    after, how far reading came and why it stopped.
    """
    state = state if state is not None else ReadState(start)
    state.at, state.stop = start, LogStop.END
    limit = segment.end_offset if limit is None else min(limit, segment.end_offset)
    end = limit if end is None else min(end, limit)
    return _Range(segment, end, limit, kernels, options, bad, state).run()


@dataclass(slots=True)
class _Range:
    """Reads one range. Not thread-safe."""

    _segment: Segment
    _end: int
    _limit: int
    _kernels: Kernels
    _options: ScanOptions
    _bad: Skip | None
    _state: ReadState

    def run(self) -> Iterator[Chunk]:
        state = self._state
        while state.at < self._end:
            found = self._scan(self._end, self._options)
            yield from self._take(found)
            if found.stop in (Stop.END, Stop.CUT) and state.at < self._end < self._limit:
                # The record may only be too long for the range.
                found = self._scan(self._limit, replace(self._options, max_rows=1))
                yield from self._take(found)
            if state.at >= self._end or found.stop is Stop.FULL:
                continue
            if not self._goes_on(found.stop):
                return

    def _scan(self, end: int, options: ScanOptions) -> ScanResult:
        return _scan(self._segment, self._state.at, end, self._kernels, options, rows_min=1)

    def _take(self, found: ScanResult) -> Iterator[Chunk]:
        self._state.at = self._segment.base_offset + found.stop_at
        if len(found.rows):
            self._state.last_ms = int(found.rows["store_ms"][-1])
            yield Chunk(self._segment.data, found.rows)

    def _goes_on(self, stop: Stop) -> bool:
        """Pass over what is no record; False: reading ends here."""
        state, bad = self._state, self._bad
        if stop is Stop.END:
            return False
        state.stop = _LOG_STOPS[stop]
        if state.stop is LogStop.BLANK or bad is None:
            return False
        behind, reason = self._behind(bad)
        if behind is None:
            return False
        base = self._segment.base_offset
        length = behind - state.at
        bad.on_bad(BadPlace(self._segment.path, state.at, state.at - base, length, reason))
        state.at, state.stop = behind, LogStop.END
        return True

    def _behind(self, bad: Skip) -> tuple[int | None, str]:
        """Return the log offset behind a bad place, None if it is not known; and what is bad."""
        is_cut = self._state.stop is LogStop.CUT
        reason = "the record is cut off" if is_cut else "no valid record"
        waits = bad.growing and self._limit < self._segment.end_offset
        if waits and is_cut:
            return None, reason
        size = self._sound_size()
        if size:
            reason = "the record's checksum or stored offset is wrong"
        if bad.stale:
            return self._find_newer(self._state.at + (size or 1)), reason
        if size:
            return self._state.at + size, reason
        found = self._find(self._state.at + 1)
        return (None if found is None and waits else found or self._limit), reason

    def _sound_size(self) -> int:
        """Return the size of the record here if only a check of its contents fails, else 0."""
        checks = self._options
        if not (checks.check_crc or checks.check_property_crc or checks.check_offset):
            return 0
        one = self._scan(self._limit, ScanOptions(max_rows=1))
        return int(one.rows["size"][0]) if len(one.rows) else 0

    def _find(self, log_offset: int) -> int | None:
        bad, end = self._bad, self._limit
        if bad is not None and bad.search_end is not None:
            end = min(end, bad.search_end)
        return find_record(self._segment, log_offset, end, self._kernels)

    def _find_newer(self, log_offset: int) -> int | None:
        segment, found = self._segment, self._find(log_offset)
        while found is not None:
            if store_ms_at(segment.data, found - segment.base_offset) >= self._state.last_ms:
                return found
            found = self._find(found + 1)
        return None


def _scan(
    segment: Segment, start: int, end: int, kernels: Kernels, options: ScanOptions, *, rows_min: int
) -> ScanResult:
    """Read records of [start, end), as far as bytes are here; `rows_min` of them, if there are so many.

    Where bytes are still to come, the result is that of a scan that is full: it is gone on with from there.
    """
    base = segment.base_offset
    first, last = start - base, min(end - base, len(segment.data))
    near = segment.near(first, last)
    while True:
        found = kernels.scan(segment.data, first, near, base, options)
        if near >= last or found.stop not in (Stop.END, Stop.CUT):
            return found
        if len(found.rows) >= rows_min:
            return replace(found, stop=Stop.FULL)
        near = segment.near(near, last)  # the record only reaches behind what is here


_LOG_STOPS: Final = {Stop.BLANK: LogStop.BLANK, Stop.BAD: LogStop.BAD, Stop.CUT: LogStop.CUT}


def find_record(
    segment: Segment, start: int, end: int, kernels: Kernels, *, check_crc: bool = True
) -> int | None:
    """Return the offset of the first record in [start, end) that names its own place; None: there is none."""
    base = segment.base_offset
    first, last = start - base, min(end - base, len(segment.data))
    near = segment.near(first, last)
    while True:
        found = kernels.find_record(segment.data, first, near, base, check_crc=check_crc)
        # One that starts before the found one may reach behind what is here.
        if near >= last or 0 <= found <= near - BACK_BYTES:
            return base + found if found >= 0 else None
        if found < 0:
            first = max(first, near - BACK_BYTES)
        near = segment.near(near, last)


def rows_at(
    segment: Segment,
    log_offset: int,
    count: int = 1,
    *,
    kernels: Kernels,
    limit: int | None = None,
    options: ScanOptions | None = None,
) -> Rows:
    """Return the records from this offset on, `count` at most; fewer, or none, where others do not follow."""
    last = segment.end_offset if limit is None else limit
    asked = replace(options or ScanOptions(), max_rows=count)
    return _scan(segment, log_offset, last, kernels, asked, rows_min=count).rows


def is_closed_at(
    segment: Segment, log_offset: int, *, kernels: Kernels, limit: int | None = None
) -> bool:
    """Tell whether a segment ends at this offset: with a blank record, or without room for one."""
    state = ReadState(log_offset)
    options = ScanOptions(max_rows=1)
    reading = chunks(
        segment, log_offset, kernels=kernels, options=options, limit=limit, state=state
    )
    return next(reading, None) is None and state.is_whole


def first_record(
    segment: Segment,
    start: int,
    end: int,
    *,
    kernels: Kernels,
    options: ScanOptions,
    limit: int,
    back_bytes: int,
) -> int:
    """Return the offset of the first record (or bad place) from `start` on, or the limit.

    A record that names its own place is not enough: a body may hold a whole record that does. So reading
    starts `back_bytes` earlier, more than a record is long; from wherever that hits, the chain of records
    has met the true one at `start`. (Near a segment's start the chain begins there, where there is always
    a record.) All readers pass over bad places by one rule, so neighbours agree on their border.
    """
    at = max(segment.base_offset, start - back_bytes)
    search_end = min(limit, end + max(back_bytes, BACK_BYTES))  # a long way of zeros is not walked
    if at > segment.base_offset:
        found = find_record(segment, at, search_end, kernels)
        if found is None:
            return limit
        at = found
    state = ReadState(at)
    walking = replace(options, check_crc=False, check_property_crc=False)
    silent = Skip(search_end=search_end)
    for _ in chunks(
        segment, at, start, kernels=kernels, options=walking, limit=limit, bad=silent, state=state
    ):
        pass
    return state.at if state.at >= start else limit
