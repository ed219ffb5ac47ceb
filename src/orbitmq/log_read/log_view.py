"""A whole commit log mapped for reading: what recovery, check, rebuild and repair look at.

Nothing here writes. A view's segments have the nominal length: the missing end of a short file, and a
missing file, read as zeros. Bytes that are later written to the file by positioned writes show up in
the view, except in those two cases.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.errors import FormatError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.listing import GAP_STEP, SIZE_STEP, SegmentFile, list_segments
from orbitmq.format.record import decode_record
from orbitmq.log_read.segment import Segment, open_segment, require_length

MISSING_SEGMENTS_MAX: Final = 64
"""A larger hole in the names is no lost file but a wrong name."""


@dataclass(slots=True)
class LogView:
    """All segments of a log in order, without gaps: a missing one is a view of zeros.

    `empty` lists files of no bytes behind the last segment: a writer died while it made them.
    """

    segments: list[Segment]
    segment_bytes: int
    empty: tuple[Path, ...] = ()

    @property
    def min_offset(self) -> int:
        return self.segments[0].base_offset if self.segments else 0

    @property
    def max_offset(self) -> int:
        """Where the last segment ends; the log itself may end before."""
        return self.segments[-1].end_offset if self.segments else 0

    @property
    def missing(self) -> list[Segment]:
        return [segment for segment in self.segments if segment.missing]

    @property
    def short(self) -> list[Segment]:
        return [
            segment
            for segment in self.segments
            if not segment.missing and segment.length < len(segment.data)
        ]

    def index_of(self, log_offset: int) -> int:
        """Return which segment holds this offset. The offset must lie in the log."""
        number = (log_offset - self.min_offset) // self.segment_bytes
        assert 0 <= number < len(self.segments)
        return number

    def at(self, log_offset: int) -> Segment:
        return self.segments[self.index_of(log_offset)]

    def read(self, start: int, end: int) -> bytes:
        """Return the bytes of a range inside one segment."""
        segment = self.at(start)
        return segment.data[start - segment.base_offset : end - segment.base_offset].tobytes()

    def store_ms_at(self, log_offset: int) -> int | None:
        """Return the store time of the record at this offset; None if no whole record is there."""
        if not self.min_offset <= log_offset < self.max_offset:
            return None
        segment = self.at(log_offset)
        position = log_offset - segment.base_offset
        try:
            return decode_record(segment.data.data, position, check_crc=False).store_ms
        except FormatError:
            return None

    def store_ms_before(self, end_offset: int, at_least: int) -> int:
        """Return a store time that no record before `end_offset` is known to exceed.

        The last record itself cannot be found from its end; the first record of its segment and what
        the checkpoint says (`at_least`) are what a glance can tell.
        """
        if not self.segments:
            return at_least
        inside = min(max(end_offset - 1, self.min_offset), self.max_offset - 1)
        return max(at_least, self.store_ms_at(self.at(inside).base_offset) or 0)


@contextmanager
def open_log(
    layout: StoreLayout, disk: Disk, *, missing_allowed: bool = False
) -> Iterator[LogView]:
    """Map all segments of a store for reading.

    WrongFileError: a name, a length or (unless `missing_allowed`) a gap that the settings do not explain.
    """
    files = list_segments(layout.commit_log_directories)
    yield view_files(files, layout.segment_bytes, disk, missing_allowed=missing_allowed)
    # The maps are closed with the last array on them: whoever kept a chunk may still read it.


def view_files(
    files: Sequence[SegmentFile], segment_bytes: int, disk: Disk, *, missing_allowed: bool
) -> LogView:
    """Map these files; see `open_log`."""
    kept = list(files)
    empty: list[Path] = []
    while kept and kept[-1].length == 0:
        empty.insert(0, kept.pop().path)
    _require_lengths(kept, segment_bytes)
    segments: list[Segment] = []
    for file in kept:
        if segments:
            segments += _fill_gap(segments[-1], file, segment_bytes, missing_allowed)
        segments.append(_map(file, segment_bytes, disk))
    return LogView(segments, segment_bytes, tuple(empty))


def _require_lengths(files: Sequence[SegmentFile], segment_bytes: int) -> None:
    for file in files:
        if file.length > segment_bytes or file.base_offset % segment_bytes:
            what = f"has {file.length} bytes, and the segment size is {segment_bytes}"
            raise WrongFileError(file.path, what, SIZE_STEP)
    # A short file is a cut one only if others prove the size; else the setting is more likely wrong.
    names_prove_it = len(files) > 1 and any(file.length == segment_bytes for file in files)
    for file in files:
        if file.length < segment_bytes and not names_prove_it:
            what = f"has {file.length} bytes instead of {segment_bytes}"
            raise WrongFileError(file.path, what, SIZE_STEP)


def _fill_gap(
    before: Segment, after: SegmentFile, segment_bytes: int, missing_allowed: bool
) -> list[Segment]:
    step = after.base_offset - before.base_offset
    count = step // segment_bytes - 1
    if count < 0:
        what = f"is there twice, the other one is {before.path}"
        raise WrongFileError(after.path, what, "Move one of the two away.")
    if count and (not missing_allowed or count > MISSING_SEGMENTS_MAX):
        what = f"{count} segment(s) are missing between {before.path.name} and this one"
        step_text = f"{GAP_STEP} `orbitmq store repair` goes on without it."
        raise WrongFileError(after.path, what, step_text)
    bases = range(before.base_offset + segment_bytes, after.base_offset, segment_bytes)
    return [_missing_view(before.path.parent, base, segment_bytes) for base in bases]


def _missing_view(directory: Path, base_offset: int, segment_bytes: int) -> Segment:
    path, zeros = directory / f"{base_offset:020d}", np.zeros(segment_bytes, dtype=np.uint8)
    return Segment(base_offset, path, zeros, 0, missing=True)


def _map(file: SegmentFile, segment_bytes: int, disk: Disk) -> Segment:
    segment = open_segment(file.path, file.base_offset, disk, size=segment_bytes)
    require_length(segment, file.length)
    return segment
