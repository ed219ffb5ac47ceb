"""Where records end in the tail of a log that is being written."""

from itertools import pairwise
from pathlib import Path
from typing import Final

from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.format.columns import ScanOptions, Stop
from orbitmq.format.kernels import Kernels
from orbitmq.spark.source.segment import Segment, open_segment
from orbitmq.spark.source.splits import Split

_ROWS: Final = 1 << 16
_FAR: Final = 2**63


class LogTail:
    """Looks at segments that somebody appends to. One thread uses it."""

    def __init__(self, directories: tuple[Path, ...], segment_bytes: int, kernels: Kernels) -> None:
        self._directories = directories
        self._segment_bytes = segment_bytes
        self._kernels = kernels
        self._segment: Segment | None = None
        self._files: list[SegmentFile] = []

    def whole_records(self, start: int, end: int, room: int | None) -> int:
        """Return where the last whole record of [start, end) ends, `start` if there is none.

        With `room` it is the last of so many bytes, but at least one.
        """
        while True:
            last = end if room is None else min(end, start + room)
            found = self._walk(start, last)
            if found > start or last == end:
                return found
            assert room is not None
            room *= 2

    def splits(self, start: int, end: int, share: int) -> list[Split]:
        """Return splits that together hold all records that start in [start, end)."""
        splits: list[Split] = []
        if start >= end:
            return splits
        for file in self._files_of(start, end):
            base = file.base_offset
            low, limit = max(start, base), min(end, base + self._segment_bytes)
            count = max(1, (limit - low) // share)
            cuts = [low + (limit - low) * number // count for number in range(count + 1)]
            splits += [
                Split(str(file.path), base, here, there, limit) for here, there in pairwise(cuts)
            ]
        return splits

    def _walk(self, start: int, end: int) -> int:
        position = start
        while position < end:
            segment = self._open(position)
            if segment is None:
                return position
            position = max(position, segment.base_offset)  # cleaned before it was dispatched
            moved = self._walk_in(
                segment, position, min(end, segment.base_offset + self._segment_bytes)
            )
            if moved == position:
                return position
            position = moved
        return position

    def _walk_in(self, segment: Segment, start: int, end: int) -> int:
        """Go on as far as a segment has records; its end when they do not end before."""
        base, whole = segment.base_offset, segment.base_offset + self._segment_bytes
        options = ScanOptions(max_rows=_ROWS)
        found = self._kernels.scan(segment.data, start - base, end - base, base, options)
        match found.stop:
            case Stop.BLANK:
                return whole if end == whole else base + found.stop_at
            case Stop.END:
                return whole if end == whole else base + found.stop_at
            case Stop.BAD:
                return self._behind_bad(segment, base + found.stop_at, end)
        return base + found.stop_at

    def _behind_bad(self, segment: Segment, bad: int, end: int) -> int:
        """Return where the log goes on behind bytes that are no record, as live dispatch finds it."""
        base, whole = segment.base_offset, segment.base_offset + self._segment_bytes
        found = self._kernels.find_record(segment.data, bad + 1 - base, end - base, base)
        if found >= 0:
            return base + found
        return whole if end == whole else bad

    # --- segments ---

    def _open(self, log_offset: int) -> Segment | None:
        """Return the segment that holds an offset, else the next one that there is."""
        known = self._segment
        if known is not None and 0 <= log_offset - known.base_offset < self._segment_bytes:
            return known
        if not self._known(log_offset, log_offset + 1):
            self._look()
        files = self._known(log_offset, _FAR)
        if not files:
            return None
        self._segment = open_segment(str(files[0].path), files[0].base_offset)
        return self._segment

    def _files_of(self, start: int, end: int) -> list[SegmentFile]:
        """Return the segments of a part of the log that are there; look again if one is not known."""
        found = self._known(start, end)
        wanted = -(-end // self._segment_bytes) - start // self._segment_bytes
        if len(found) < wanted:
            self._look()
            found = self._known(start, end)
        return found

    def _look(self) -> None:
        # Of names that are none whoever reads the whole log tells.
        self._files = list_segments(self._directories, on_problem=lambda _: None)

    def _known(self, start: int, end: int) -> list[SegmentFile]:
        return [
            file
            for file in self._files
            if file.base_offset < end and start < file.base_offset + self._segment_bytes
        ]
