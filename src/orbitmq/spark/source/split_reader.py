"""The records of one split, in log order, as rows of the kernels.

A split starts anywhere, so its first record must be found. A record that names its own place is not
enough: a body may hold a whole record that does. So reading starts `BACK_BYTES` before the split, more
than a record is long; from wherever that hits, the chain of records has met the true one at the split.
(In the first splits of a segment the chain starts at position 0, where there is always a record.)

A place that holds no valid record is passed over by the same rules in every split, so that neighbours
agree on where the log goes on: a record with sound lengths but a wrong checksum counts as one bad record;
anything else ends at the next record that names its own place.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from orbitmq.format.columns import Rows, ScanOptions, ScanResult, Stop
from orbitmq.format.kernels import Kernels
from orbitmq.spark.source.segment import Segment, open_segment
from orbitmq.spark.source.splits import Split
from orbitmq.units import KiB, MiB

BACK_BYTES: Final = 4 * MiB + 128 * KiB
"""RocketMQ's largest message with its properties and header. A store with a larger maxMessageSize needs
more (`back_bytes`)."""
ROWS_MAX: Final = 16_384


class BadPlace(NamedTuple):
    """Bytes that hold no valid record although the log goes on behind them."""

    path: str
    log_offset: int
    position: int
    length: int
    reason: str


class LogChunk(NamedTuple):
    """Rows of consecutive good records; positions count in `segment.data`."""

    segment: Segment
    rows: Rows


OnBad = Callable[[BadPlace], None]


def read_split(
    split: Split,
    kernels: Kernels,
    options: ScanOptions,
    on_bad: OnBad,
    *,
    back_bytes: int = BACK_BYTES,
    segment: Segment | None = None,
    at_record: bool = False,
) -> Iterator[LogChunk]:
    """Yield the records that start in the split; `on_bad` is told of each bad place in it, and may raise.

    Of `options` the checks count; `max_rows` bounds each chunk. `at_record`: the caller knows that a
    record starts where the split does, so none has to be found.
    """
    segment = segment if segment is not None else open_segment(split.path, split.base_offset)
    reader = _SplitReader(split, segment, kernels, options, on_bad)
    return reader.run(0 if at_record else back_bytes)


class _SplitReader:
    """Reads one split. Not thread-safe."""

    def __init__(
        self,
        split: Split,
        segment: Segment,
        kernels: Kernels,
        options: ScanOptions,
        on_bad: OnBad,
    ) -> None:
        self._split = split
        self._segment = segment
        self._kernels = kernels
        self._options = replace(options, max_rows=min(options.max_rows, ROWS_MAX))
        self._on_bad = on_bad
        self._limit = min(split.limit - split.base_offset, len(segment.data))
        self._end = min(split.end - split.base_offset, self._limit)
        self._found_until = self._limit  # how far a search for records goes

    def run(self, back_bytes: int) -> Iterator[LogChunk]:
        start = self._split.start - self._split.base_offset
        position = self._first_record(min(start, self._limit), back_bytes)
        while position < self._end:
            found = self._scan_up_to(self._end, position, self._options)
            if len(found.rows):
                yield LogChunk(self._segment, found.rows)
                position = found.stop_at
            elif found.stop in (Stop.BLANK, Stop.END):
                return
            else:
                position = self._pass_over(position, found.stop, tell=True)

    def _first_record(self, start: int, back_bytes: int) -> int:
        """Return the position of the first record from `start` on, or the limit."""
        position = max(0, start - back_bytes)
        # A record that starts behind the split is none of its: a long way of zeros is not walked.
        self._found_until = min(self._limit, self._end + max(back_bytes, BACK_BYTES))
        if position and back_bytes:
            position = self._find(position)
        walking = replace(self._options, check_crc=False, check_property_crc=False)
        while position < start:
            found = self._scan_up_to(start, position, walking)
            if len(found.rows):
                position = found.stop_at
            elif found.stop in (Stop.BLANK, Stop.END):
                return self._limit
            else:
                position = self._pass_over(position, found.stop, tell=False)
        self._found_until = self._limit
        return position

    def _pass_over(self, position: int, stop: Stop, *, tell: bool) -> int:
        """Return where the log goes on behind a place that holds no valid record."""
        lengths_only = ScanOptions(max_rows=1)
        one = self._scan(position, lengths_only)
        if len(one.rows):
            behind = position + int(one.rows["size"][0])
            reason = "the record's checksum or stored offset is wrong"
        else:
            behind = self._find(position + 1)
            reason = "the record is cut off" if stop is Stop.CUT else "no valid record"
        if tell:
            at = self._split.base_offset + position
            self._on_bad(BadPlace(self._split.path, at, position, behind - position, reason))
        return behind

    def _scan_up_to(self, end: int, position: int, options: ScanOptions) -> ScanResult:
        """Return records that start before `end`; without any, why there is none at `position`."""
        found = self._scan(position, options, end)
        if len(found.rows) or found.stop is Stop.BLANK:
            return found
        # It may only be too long for the range.
        return self._scan(position, replace(options, max_rows=1))

    def _scan(self, position: int, options: ScanOptions, end: int | None = None) -> ScanResult:
        limit = self._limit if end is None else end
        return self._kernels.scan(
            self._segment.data, position, limit, self._split.base_offset, options
        )

    def _find(self, position: int) -> int:
        found = self._kernels.find_record(
            self._segment.data, position, self._found_until, self._split.base_offset
        )
        return found if found >= 0 else self._limit
