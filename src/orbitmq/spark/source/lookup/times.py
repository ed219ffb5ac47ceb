"""Which stretch of the log can hold records of a time range.

Store times follow the writer's clock. It may have been set back, so a stretch is left out only with a
margin: a record that is older than the range by more than the margin has only older ones before it.
"""

from itertools import pairwise
from typing import Final, NamedTuple

from orbitmq.files.listing import SegmentFile
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import BACK_BYTES, LogPlan, Split, ignore_bad, read_split, rows_at
from orbitmq.spark.source.lookup.index import OnRead
from orbitmq.spark.source.segment import open_segment, open_split
from orbitmq.units import HOUR_MS, MiB

CLOCK_MARGIN_MS: Final = HOUR_MS
STEP_BYTES: Final = 8 * MiB
"""Halving ends here: to look into a stretch costs as much as to read it."""

_PROBE: Final = ScanOptions(max_rows=1024)


class _Moment(NamedTuple):
    log_offset: int
    store_ms: int


def time_stretch(
    plan: LogPlan, start_ms: int | None, end_ms: int | None, kernels: Kernels, on_read: OnRead
) -> tuple[int, int]:
    """Return log offsets between which all records of [start_ms, end_ms) start."""
    search = _Search(plan, kernels, on_read)
    firsts = [first for file in plan.files if (first := search.first_of(file)) is not None]
    steps_back = (before.store_ms - after.store_ms for before, after in pairwise(firsts))
    if max(steps_back, default=0) > CLOCK_MARGIN_MS:
        return plan.start, plan.end  # a clock that was set back so far tells nothing
    start, end = plan.start, plan.end
    if start_ms is not None:
        start = search.last_before(firsts, start_ms - CLOCK_MARGIN_MS)
    if end_ms is not None:
        end = search.first_from(firsts, end_ms + CLOCK_MARGIN_MS)
    return start, end


class _Search:
    """Halving over one log by store time. Not thread-safe."""

    def __init__(self, plan: LogPlan, kernels: Kernels, on_read: OnRead) -> None:
        self._plan, self._kernels, self._on_read = plan, kernels, on_read

    def last_before(self, firsts: list[_Moment], time_ms: int) -> int:
        """Return the offset of a late record that is older than this; the log's start without one."""
        older = [first.log_offset for first in firsts if first.store_ms < time_ms]
        if not older:
            return self._plan.start
        low, high = older[-1], self._segment_end(older[-1])
        while high - low > STEP_BYTES:
            middle = (low + high) // 2
            moment = self._at(middle, high)
            if moment is not None and moment.store_ms < time_ms:
                low = moment.log_offset
            else:
                high = middle
        return low

    def first_from(self, firsts: list[_Moment], time_ms: int) -> int:
        """Return the offset of an early record that is not older; the log's end without one."""
        younger = [first.log_offset for first in firsts if first.store_ms >= time_ms]
        high = younger[0] if younger else self._plan.end
        before = [file.base_offset for file in self._plan.files if file.base_offset < high]
        low = before[-1] if before else self._plan.start
        while high - low > STEP_BYTES:
            middle = (low + high) // 2
            moment = self._at(middle, high)
            if moment is not None and moment.store_ms >= time_ms:
                high = moment.log_offset
            else:
                low = middle
        return high

    def first_of(self, file: SegmentFile) -> _Moment | None:
        """Return the first record of a segment; None if it does not start with one."""
        segment = open_segment(str(file.path), file.base_offset)
        rows = rows_at(segment, file.base_offset, kernels=self._kernels, limit=self._plan.end)
        if not len(rows):
            return None
        self._on_read(int(rows["size"][0]))
        return _Moment(file.base_offset, int(rows["store_ms"][0]))

    def _at(self, log_offset: int, end: int) -> _Moment | None:
        """Return the first record that starts in [log_offset, end)."""
        file = [file for file in self._plan.files if file.base_offset <= log_offset][-1]
        limit = self._segment_end(log_offset)
        split = Split(str(file.path), file.base_offset, log_offset, min(end, limit), limit)
        self._on_read(min(BACK_BYTES, log_offset - file.base_offset))
        for chunk in read_split(split, open_split(split), self._kernels, _PROBE, ignore_bad):
            row = chunk.rows[0]
            return _Moment(int(row["log_offset"]), int(row["store_ms"]))
        return None

    def _segment_end(self, log_offset: int) -> int:
        size = self._plan.layout.segment_bytes
        return min((log_offset // size + 1) * size, self._plan.end)
