"""LogTail: a commit log that is being written, looked at again and again.

Where it ends is found by reading (`look`): the first time like `plan_log`, later only what is new behind the
end found last, eight bytes if nothing is. Or the writer tells how far readers may look (`whole_records`).
Either way an end is that of a whole record, never of one that is being written.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.files.layout import StoreLayout
from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.format.columns import Bytes, Rows, ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read.plan import LogPlan, find_end, layout_of, plan_log
from orbitmq.log_read.reader import (
    Chunk,
    ReadState,
    Skip,
    chunks,
    ignore_bad,
    is_closed_at,
    rows_at,
)
from orbitmq.log_read.segment import Segment, open_segment
from orbitmq.log_read.splits import cut, read_split

_PREFIX_BYTES: Final = 8  # size and magic: zeros where no record was written yet
_CHECKED: Final = ScanOptions(check_crc=True, max_rows=1 << 14)
_ROWS: Final = ScanOptions(max_rows=1 << 16)
_ONE_SPLIT: Final = 1 << 62


class LogTail:
    """One log and its end. Not thread-safe."""

    def __init__(
        self,
        root: Path | StoreLayout,
        settings: Mapping[str, str] | None = None,
        kernels: Kernels | None = None,
    ) -> None:
        self._root, self._settings = root, settings
        self._kernels = kernels or compiled()
        self._plan: LogPlan | None = None
        self._segment: Segment | None = None  # the one that is being written
        self._bad_prefix = b""  # what lay behind the end when there was no record
        self._listed: list[SegmentFile] = []  # where the writer tells the end

    # --- an end that is found by reading ---

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
        files = _segments(plan.layout, plan.files[-1].base_offset) if plan.files else ()
        if files and files != plan.files:
            plan = self._plan = replace(plan, files=files, start=files[0].base_offset)
        return plan

    def _open_last(self) -> None:
        assert self._plan is not None
        if self._plan.files:
            last = self._plan.files[-1]
            self._segment = open_segment(last.path, last.base_offset)
            self._bad_prefix = b""

    def _prefix(self) -> bytes:
        """Return what lies behind the end."""
        assert self._plan is not None
        assert self._segment is not None
        position = self._plan.end - self._segment.base_offset
        return self._segment.data[position : position + _PREFIX_BYTES].tobytes()

    def _has_more(self) -> bool:
        """Return whether it may be worth to look closer."""
        assert self._plan is not None
        assert self._segment is not None
        at, segment_bytes = self._plan.end, self._plan.layout.segment_bytes
        if at >= self._segment.base_offset + segment_bytes:
            return True  # full: is there a next one?
        if len(self._segment.data) < segment_bytes:
            self._open_last()  # a file that grows, of a store that is being copied
        prefix = self._prefix()
        if not any(prefix):
            return False
        if prefix != self._bad_prefix:
            return True
        # Bytes of no record. Only the record itself can turn up here, if its writer is slow.
        found = rows_at(self._segment, at, kernels=self._kernels, options=_CHECKED)
        return bool(len(found)) or is_closed_at(self._segment, at, kernels=self._kernels)

    def _go_on(self) -> None:
        assert self._plan is not None
        assert self._segment is not None
        while True:
            plan, segment_end = self._plan, self._segment_end()
            self._plan = plan = replace(plan, end=self._end_in_segment())
            if plan.end < segment_end:
                return
            files = _segments(plan.layout, plan.end)
            if not files or files[-1].base_offset != plan.end or not _is_used(files[-1]):
                return
            self._plan = replace(plan, files=files, start=files[0].base_offset)
            self._open_last()

    def _segment_end(self) -> int:
        assert self._plan is not None
        assert self._segment is not None
        return self._segment.base_offset + self._plan.layout.segment_bytes

    def _end_in_segment(self) -> int:
        """Return how far the records behind the known end reach; the segment's end if it is full."""
        assert self._plan is not None
        assert self._segment is not None
        state = ReadState(self._plan.end)
        last: Rows | None = None
        for chunk in self._chunks(self._segment, state):
            last = chunk.rows[-1:]
        end = state.next_offset(self._segment_end())
        if end == self._segment_end():
            return end
        self._plan = replace(self._plan, end=end)
        if any(prefix := self._prefix()):
            self._bad_prefix = prefix
            behind = find_end(self._plan.files[-1], self._plan.layout, self._kernels)
            if behind > end:
                return behind
        if last is not None and _is_unfinished(self._segment.data, last):
            return int(last["log_offset"][0])
        return end

    def _chunks(self, segment: Segment, state: ReadState) -> Iterator[Chunk]:
        return chunks(segment, state.at, kernels=self._kernels, options=_CHECKED, state=state)

    # --- an end that the writer tells ---

    def published(self, start: int, end: int) -> LogPlan:
        """Return the part [start, end) of the log, as far as its segments are there."""
        layout = layout_of(self._root, self._settings)
        wanted = -(-end // layout.segment_bytes) - start // layout.segment_bytes
        files = _between(self._listed, layout, start, end)
        if len(files) < wanted:
            # Of names that are none whoever reads the whole log tells.
            listed = list_segments(layout.commit_log_directories, on_problem=lambda _: None)
            self._listed = listed
            files = _between(listed, layout, start, end)
        return LogPlan(layout, files, start, end)

    def whole_records(self, plan: LogPlan, bytes_max: int | None = None) -> int:
        """Return where the last whole record of a published part ends, its start if there is none.

        With `bytes_max` it is the last one that starts in so many bytes.
        """
        last = plan.end if bytes_max is None else min(plan.end, plan.start + bytes_max)
        at = plan.start
        for file in plan.files:
            if file.base_offset >= last:
                break
            at = max(at, file.base_offset)  # the one before was cleaned
            segment_end = file.base_offset + plan.layout.segment_bytes
            at = self._whole_in(self._map(file), at, last, plan.end, segment_end)
            if at < segment_end:
                break
        return at

    def _whole_in(
        self, segment: Segment, start: int, last: int, limit: int, segment_end: int
    ) -> int:
        state = ReadState(start)
        for _ in chunks(
            segment,
            start,
            last,
            kernels=self._kernels,
            options=_ROWS,
            limit=limit,
            bad=Skip(growing=True),
            state=state,
        ):
            pass
        behind = state.next_offset(segment_end)
        return behind if behind <= limit else state.at  # a blank that is not published as a whole

    def _map(self, file: SegmentFile) -> Segment:
        if self._segment is None or self._segment.path != file.path:
            self._segment = open_segment(file.path, file.base_offset)
        return self._segment

    # --- places ---

    def limited(self, start: int, end: int, rows_max: int, bytes_max: int) -> int:
        """Return where a batch from `start` has to end: so many records or bytes, at least one record."""
        left, last = rows_max, start + bytes_max
        for chunk in self._read(start, end):
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
        for chunk in self._read(start, plan.end):
            late = np.flatnonzero(chunk.rows["store_ms"] >= time_ms)
            if len(late):
                return int(chunk.rows["log_offset"][late[0]])
        return plan.end

    def _read(self, start: int, end: int) -> Iterator[Chunk]:
        """Yield the records of a part of the log; bad places are left to the task that reads them."""
        assert self._plan is not None
        for split in cut(self._plan, _ONE_SPLIT, start, end):
            segment = open_segment(split.path, split.base_offset)
            yield from read_split(split, segment, self._kernels, ScanOptions(), ignore_bad)

    def _first_ms(self, file: SegmentFile) -> int | None:
        segment = open_segment(file.path, file.base_offset)
        rows = rows_at(segment, file.base_offset, kernels=self._kernels)
        return int(rows["store_ms"][0]) if len(rows) else None


def _between(
    files: Sequence[SegmentFile], layout: StoreLayout, start: int, end: int
) -> tuple[SegmentFile, ...]:
    return tuple(
        file
        for file in files
        if file.base_offset < end and start < file.base_offset + layout.segment_bytes
    )


def _segments(layout: StoreLayout, last_base: int) -> tuple[SegmentFile, ...]:
    """Return the segments that there are now, up to this one."""
    listed = list_segments(layout.commit_log_directories)
    return tuple(file for file in listed if file.length and file.base_offset <= last_base)


def _is_used(file: SegmentFile) -> bool:
    with file.path.open("rb") as opened:
        return any(opened.read(_PREFIX_BYTES))


def _is_unfinished(data: Bytes, last: Rows) -> bool:
    """Return whether the newest record may still be copied: properties end with a byte that is not 0.

    OrbitMQ publishes a record when it is whole. RocketMQ copies it from the front, and the checksum does
    not cover the properties. (Such a record counts as soon as another one follows it.)
    """
    length = int(last["properties_length"][0])
    return length > 0 and not data[int(last["properties_at"][0]) + length - 1]
