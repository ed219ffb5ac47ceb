"""Which segments a commit log has and where it ends, looked at once.

Names, lengths and the last segment tell it. Whoever reads the log by a plan sees the same log, whatever a
broker appends meanwhile.
"""

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError, NotAStoreError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout, guess_layout
from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.files.replace import read_whole
from orbitmq.format import checkpoint as checkpoint_format
from orbitmq.format.columns import Bytes, ScanOptions
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.log_read.reader import ReadState, Skip, chunks
from orbitmq.log_read.segment import Segment, open_segment
from orbitmq.units import MiB

LISTINGS_MAX: Final = 5
PLAIN_BYTES: Final = 1 * MiB
"""So much is read by the plain kernels in less time than it takes to load the fast ones."""
LENGTH_BYTES: Final = 4
"""A record begins with its length, which is never zero."""
WRITING_MS_MAX: Final = 200
"""So long a writer may take between two bytes of a record."""

_CHECKED: Final = ScanOptions(check_crc=True, max_rows=1 << 16)


class Gap(NamedTuple):
    """A stretch of the log of which there is no file, or no bytes."""

    path: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogPlan:
    """A commit log at one moment: its segments, and where it starts and ends."""

    layout: StoreLayout
    files: tuple[SegmentFile, ...]
    start: int
    end: int
    gaps: tuple[Gap, ...] = ()

    @property
    def log_bytes(self) -> int:
        return self.end - self.start


def layout_of(root: Path | StoreLayout, settings: Mapping[str, str] | None = None) -> StoreLayout:
    """Return the layout if that is known, else what files and settings (RocketMQ's keys) tell."""
    if isinstance(root, StoreLayout):
        return root
    return guess_layout(root, settings, index_needed=False)


def plan_log(root: Path | StoreLayout, settings: Mapping[str, str] | None = None) -> LogPlan:
    """Look at a store's log. NotAStoreError: there is none."""
    layout = layout_of(root, settings)
    files = _list_files(layout)
    if not files:
        return LogPlan(layout, (), 0, 0)
    last = _last_with_records(files)
    end = find_end(files[last], layout)
    used = tuple(files[: last + 1])
    return LogPlan(layout, used, used[0].base_offset, end, tuple(_gaps(used, layout.segment_bytes)))


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


def find_end(file: SegmentFile, layout: StoreLayout, kernels: Kernels | None = None) -> int:
    """Return where the log ends in its last segment.

    What a checkpoint of ours covers is not read again; the rest is, with its checksums, for a
    record at the end may be half written. Without `kernels` the fast ones are loaded if it is much.
    """
    segment = open_segment(file.path, file.base_offset)
    known = _checkpointed(layout)
    start = known.dispatched_offset if known is not None else -1
    if not file.base_offset <= start <= segment.end_offset:
        start = file.base_offset
    elif known is not None and known.log_end == start and _is_closed(segment, start, layout):
        return start
    written = file.base_offset + segment.data_end()
    if kernels is None:
        kernels = compiled() if written - start > PLAIN_BYTES else plain()
    state = ReadState(start)
    bad = Skip(stale=True, search_end=written)
    for chunk in chunks(segment, start, kernels=kernels, options=_CHECKED, bad=bad, state=state):
        _let_finish(segment.data, chunk.rows[-1])
    return state.next_offset(file.base_offset + layout.segment_bytes)


def _let_finish(data: Bytes, row: np.void) -> None:
    """Wait while a record's last byte is zero: a broker may be writing it this moment.

    Its checksum covers the body only, and properties are written last. They do not end in zero, but for
    those that a power cut tore.
    """
    end = int(row["properties_at"]) + int(row["properties_length"])
    for _ in range(WRITING_MS_MAX if row["properties_length"] else 0):
        if data[end - 1]:
            return
        time.sleep(0.001)


def _checkpointed(layout: StoreLayout) -> checkpoint_format.Extension | None:
    data = read_whole(Disk(), layout.checkpoint)
    try:
        return checkpoint_format.decode(data).extension if data else None
    except FormatError:
        return None


def _is_closed(segment: Segment, log_end: int, layout: StoreLayout) -> bool:
    """Tell whether the store was closed when its log ended there, and nobody has written since.

    Then no record lies behind, and the zeros that a segment begins its life with, up to a gigabyte, are
    not looked at.
    """
    if layout.abort.exists():
        return False
    position = log_end - segment.base_offset
    end = min(position + LENGTH_BYTES, len(segment.data))
    return not segment.bring(position, end)[position:end].any()


def _list_files(layout: StoreLayout) -> list[SegmentFile]:
    """Return the segments that have bytes.

    A listing can miss a file that is made meanwhile and show one made after it. A gap that is there again
    a moment later is one.
    """
    files: list[SegmentFile] = []
    for _ in range(LISTINGS_MAX):
        before = files
        files = [file for file in list_segments(layout.commit_log_directories) if file.length]
        if files == before or next(_missing(files), None) is None:
            break
        time.sleep(0.005)
    return files


def _last_with_records(files: list[SegmentFile]) -> int:
    """Return the index of the last segment that was written to; later ones are preallocated."""
    for number in range(len(files) - 1, 0, -1):
        with files[number].path.open("rb") as file:
            if any(file.read(8)):
                return number
    return 0


def _gaps(files: tuple[SegmentFile, ...], segment_bytes: int) -> list[Gap]:
    """Return what is missing between the first segment and the last one."""
    gaps = list(_missing(files))
    if any(file.base_offset % segment_bytes for file in files):
        what = f"its segments do not lie {segment_bytes} bytes apart"
        step = "Give the broker's own settings (option `config`, a broker.conf)."
        raise NotAStoreError(files[0].path.parent, what, step)
    return gaps


def _missing(files: Sequence[SegmentFile]) -> Iterator[Gap]:
    for file, following in itertools.pairwise(files):
        have = file.base_offset + file.length
        if have < following.base_offset:
            yield Gap(str(file.path), have, following.base_offset)
