"""LogTail: where a commit log ends, asked for again and again while a broker writes it.

The first look is `plan_log`. Later ones read only what is new behind the end found last: nothing but eight
bytes if nothing is. An end is always the end of a whole record, never one that is being written.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.format.columns import Bytes, Rows, ScanOptions, ScanResult, Stop
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.spark.source.segment import Segment, open_segment
from orbitmq.spark.source.split_reader import BadPlace, read_split
from orbitmq.spark.source.splits import Gap, LogPlan, cut, find_end, plan_log

_PREFIX_BYTES: Final = 8  # size and magic: zeros where no record was written yet
_CHECKED: Final = ScanOptions(check_crc=True, max_rows=1 << 14)
_ONE_SPLIT: Final = 1 << 62


class LogTail:
    """The end of one log. Not thread-safe."""

    def __init__(
        self, root: Path, settings: Mapping[str, str] | None = None, kernels: Kernels | None = None
    ) -> None:
        self._root, self._settings = root, settings
        self._kernels = kernels or compiled()
        self._plan: LogPlan | None = None
        self._segment: Segment | None = None  # the one that is being written
        self._bad_prefix = b""  # what lay behind the end when there was no record

    def look(self) -> LogPlan:
        """Return the log as it is now. NotAStoreError: there is none."""
        if self._plan is None or not self._plan.files:
            self._plan = plan_log(self._root, self._settings)
            self._open_last()
        elif self._has_more():
            self._go_on()
        return self._plan

    def relist(self) -> LogPlan:
        """Look, and notice too which segments were deleted."""
        plan = self.look()
        files = _segments(plan, plan.files[-1].base_offset) if plan.files else ()
        if files and files != plan.files:
            plan = self._plan = replace(plan, files=files, start=files[0].base_offset)
        return plan

    def _open_last(self) -> None:
        assert self._plan is not None
        if self._plan.files:
            last = self._plan.files[-1]
            self._segment = open_segment(str(last.path), last.base_offset)
            self._bad_prefix = b""

    def _position(self) -> int:
        assert self._plan is not None
        assert self._segment is not None
        return self._plan.end - self._segment.base_offset

    def _has_more(self) -> bool:
        """Return whether it may be worth to look closer."""
        assert self._plan is not None
        assert self._segment is not None
        position, data = self._position(), self._segment.data
        if position >= self._plan.layout.segment_bytes:
            return True  # full: is there a next one?
        if len(data) < self._plan.layout.segment_bytes:
            self._open_last()  # a file that grows, of a store that is being copied
            data = self._segment.data
        prefix = data[position : position + _PREFIX_BYTES].tobytes()
        if not any(prefix):
            return False
        if prefix != self._bad_prefix:
            return True
        # Bytes of no record. Only the record itself can turn up here, if its writer is slow.
        found = self._scan(position, replace(_CHECKED, max_rows=1))
        return bool(found.rows.size) or found.stop is Stop.BLANK

    def _go_on(self) -> None:
        assert self._plan is not None
        assert self._segment is not None
        while True:
            base, plan = self._segment.base_offset, self._plan
            end = self._end_in_segment(self._position())
            self._plan = plan = replace(plan, end=base + end)
            if end < plan.layout.segment_bytes:
                return
            files = _segments(plan, plan.end)
            if not files or files[-1].base_offset != plan.end or not _is_used(files[-1]):
                return
            self._plan = replace(plan, files=files, start=files[0].base_offset)
            self._open_last()

    def _end_in_segment(self, position: int) -> int:
        """Return how far the records behind `position` reach; the segment's size if it is full."""
        assert self._plan is not None
        assert self._segment is not None
        segment_bytes, data = self._plan.layout.segment_bytes, self._segment.data
        last: Rows | None = None
        while True:
            found = self._scan(position, _CHECKED)
            position = found.stop_at
            last = found.rows[-1:] if len(found.rows) else last
            if found.stop is Stop.FULL:
                continue
            full = found.stop is Stop.END and len(data) == segment_bytes
            if found.stop is Stop.BLANK or full:
                return segment_bytes
            prefix = data[position : position + _PREFIX_BYTES].tobytes()
            if any(prefix):
                self._bad_prefix = prefix
                behind = find_end(self._plan.files[-1], self._plan.layout, self._kernels)
                if behind > self._segment.base_offset + position:
                    return behind - self._segment.base_offset
            if last is not None and _is_unfinished(data, last):
                return int(last["log_offset"][0]) - self._segment.base_offset
            return position

    def _scan(self, position: int, options: ScanOptions) -> ScanResult:
        assert self._segment is not None
        data = self._segment.data
        return self._kernels.scan(data, position, len(data), self._segment.base_offset, options)

    # --- places ---

    def limited(self, start: int, end: int, rows_max: int, bytes_max: int) -> int:
        """Return where a batch from `start` has to end: so many records or bytes, at least one record."""
        assert self._plan is not None
        left, last = rows_max, start + bytes_max
        for split in cut(self._plan, _ONE_SPLIT, start, end):
            for chunk in read_split(split, self._kernels, ScanOptions(), _pass):
                offsets = chunk.rows["log_offset"]
                behind = offsets + chunk.rows["size"]
                fit = min(int(np.searchsorted(behind, last, side="right")), left)
                if fit == 0 and left == rows_max:
                    fit = 1  # larger than the limit, but it must not wait for ever
                if fit < len(offsets):
                    return int(offsets[fit])
                left -= fit
        return end

    def offset_at(self, time_ms: int) -> int:
        """Return the log offset of the first record that was stored at this time or later."""
        plan = self.relist()
        number = 0
        for index, file in enumerate(plan.files):
            first_ms = self._first_ms(file)
            if first_ms is not None and first_ms < time_ms:
                number = index
        start = plan.files[number].base_offset if plan.files else 0
        for split in cut(plan, _ONE_SPLIT, start):
            for chunk in read_split(split, self._kernels, ScanOptions(), _pass):
                late = np.flatnonzero(chunk.rows["store_ms"] >= time_ms)
                if len(late):
                    return int(chunk.rows["log_offset"][late[0]])
        return plan.end

    def _first_ms(self, file: SegmentFile) -> int | None:
        data = open_segment(str(file.path), file.base_offset).data
        found = self._kernels.scan(data, 0, len(data), file.base_offset, ScanOptions(max_rows=1))
        return int(found.rows["store_ms"][0]) if len(found.rows) else None


def missing(plan: LogPlan, start: int, end: int) -> list[Gap]:
    """Return what of the range [start, end) no segment holds."""
    gaps: list[Gap] = []
    at = start
    for file in plan.files:
        there = file.base_offset + file.length
        if there <= at or file.base_offset >= end:
            continue
        if file.base_offset > at:
            gaps.append(Gap(str(file.path), at, file.base_offset))
        at = there
    if at < end:
        gaps.append(Gap(str(plan.layout.commit_log), at, end))
    return gaps


def _segments(plan: LogPlan, last_base: int) -> tuple[SegmentFile, ...]:
    """Return the segments that there are now, up to this one."""
    listed = list_segments(plan.layout.commit_log_directories)
    return tuple(file for file in listed if file.length and file.base_offset <= last_base)


def _is_used(file: SegmentFile) -> bool:
    with file.path.open("rb") as opened:
        return any(opened.read(_PREFIX_BYTES))


def _is_unfinished(data: Bytes, last: Rows) -> bool:
    """Return whether the newest record may still be copied: properties end with a byte that is not 0.

    OrbitMQ shows a record when it is whole. RocketMQ copies it from the front, and the checksum does not
    cover the properties. (Such a record counts as soon as another one follows it.)
    """
    length = int(last["properties_length"][0])
    return length > 0 and not data[int(last["properties_at"][0]) + length - 1]


def _pass(place: BadPlace) -> None:
    """Leave it to the task that reads the place."""
