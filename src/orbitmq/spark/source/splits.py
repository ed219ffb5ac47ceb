"""Cut a commit log into pieces that tasks read side by side.

The driver looks at names, lengths and the last segment only. What it finds to be the end of the log is
the same for every task: a broker that appends meanwhile does not change what a job sees.
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
from orbitmq.format.columns import Bytes, ScanOptions, Stop
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.format.record import store_ms_at
from orbitmq.spark.source.segment import Segment, open_segment, written_end
from orbitmq.store.recovery.log_view import SegmentView
from orbitmq.units import MiB

SPLIT_BYTES: Final = 64 * MiB
SPLIT_BYTES_MAX: Final = 256 * MiB
SPLITS_MIN: Final = 32
"""A log is cut into so many before they become longer: enough to share among the cores of a machine."""
LISTINGS_MAX: Final = 5
PLAIN_BYTES: Final = 1 * MiB
"""So much is read by the plain kernels in less time than it takes to load the fast ones."""
WRITING_MS_MAX: Final = 200
"""So long a writer may take between two bytes of a record."""


class Split(NamedTuple):
    """The records of one segment that start at log offsets `start` to `end`. Travels to a task.

    `limit` is where the log ends in this segment as the driver saw it: the end of the segment, but for
    the last one. A record that starts before `end` may reach behind it, never behind `limit`.
    """

    path: str
    base_offset: int
    start: int
    end: int
    limit: int


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


def plan_log(root: Path, settings: Mapping[str, str] | None = None) -> LogPlan:
    """Look at a store's log. NotAStoreError: there is none. `settings` are RocketMQ's keys."""
    layout = guess_layout(root, settings, index_needed=False)
    files = _list_files(layout)
    if not files:
        return LogPlan(layout, (), 0, 0)
    last = _last_with_records(files)
    end = find_end(files[last], layout)
    used = tuple(files[: last + 1])
    return LogPlan(layout, used, used[0].base_offset, end, tuple(_gaps(used, layout.segment_bytes)))


def cut(
    plan: LogPlan, split_bytes: int = SPLIT_BYTES, start: int | None = None, end: int | None = None
) -> list[Split]:
    """Return splits that together hold each record that starts in [start, end) exactly once."""
    first = plan.start if start is None else max(start, plan.start)
    last = plan.end if end is None else min(end, plan.end)
    splits: list[Split] = []
    for file in plan.files:
        limit = min(file.base_offset + plan.layout.segment_bytes, plan.end)
        low, high = max(first, file.base_offset), min(last, limit)
        if low >= high:
            continue
        count = max(1, round((high - low) / split_bytes))
        cuts = [low + (high - low) * number // count for number in range(count + 1)]
        splits += [
            Split(str(file.path), file.base_offset, here, there, limit)
            for here, there in itertools.pairwise(cuts)
        ]
    return splits


def written_length(segment: SegmentView) -> int:
    """Return about how much of a segment was ever written to: what was allocated ahead does not count."""
    return written_end(segment.data, min(segment.data_end(), len(segment.data)))


def usual_split_bytes(plan: LogPlan, start: int | None = None, end: int | None = None) -> int:
    """Return a split's length for a read of [start, end).

    Spark itself takes tens of milliseconds of processor time for each task; reading the headers of 64 MiB
    takes about 20. So a long log has longer splits.
    """
    first = plan.start if start is None else max(start, plan.start)
    last = plan.end if end is None else min(end, plan.end)
    return min(max((last - first) // SPLITS_MIN, SPLIT_BYTES), SPLIT_BYTES_MAX)


def find_end(file: SegmentFile, layout: StoreLayout, kernels: Kernels | None = None) -> int:
    """Return where the log ends in its last segment.

    What a checkpoint of ours vouches for is not read again; the rest is, with its checksums, for a
    record at the end may be half written. Without `kernels` the fast ones are loaded if it is much.
    """
    segment = open_segment(str(file.path), file.base_offset)
    trusted = _vouched_offset(layout)
    position = 0
    if file.base_offset <= trusted <= file.base_offset + len(segment.data):
        position = trusted - file.base_offset
    if kernels is None:
        kernels = compiled() if segment.data_end() - position > PLAIN_BYTES else plain()
    return file.base_offset + _walk_to_end(segment, position, layout.segment_bytes, kernels)


def _walk_to_end(segment: Segment, position: int, segment_bytes: int, kernels: Kernels) -> int:
    options = ScanOptions(check_crc=True, max_rows=1 << 16)
    data, last_ms = segment.data, -(2**63)
    while True:
        found = kernels.scan(data, position, len(data), segment.base_offset, options)
        if len(found.rows):
            last_ms = int(found.rows["store_ms"][-1])
            _let_finish(data, found.rows[-1])
        match found.stop:
            case Stop.FULL:
                position = found.stop_at
            case Stop.BLANK:
                return segment_bytes
            case Stop.END:
                return segment_bytes if len(data) == segment_bytes else found.stop_at
            case _:
                behind = _newer_record(segment, found.stop_at + 1, last_ms, kernels)
                if behind < 0:
                    return found.stop_at
                position = behind


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


def _newer_record(segment: Segment, position: int, last_ms: int, kernels: Kernels) -> int:
    """Return where the log goes on behind a bad place, or -1: what is older is of an earlier life."""
    end = segment.data_end()
    while True:
        position = kernels.find_record(segment.data, position, end, segment.base_offset)
        if position < 0 or store_ms_at(segment.data, position) >= last_ms:
            return position
        position += 1


def _vouched_offset(layout: StoreLayout) -> int:
    data = read_whole(Disk(), layout.checkpoint)
    try:
        extension = checkpoint_format.decode(data).extension if data else None
    except FormatError:
        return -1
    return extension.dispatched_offset if extension is not None else -1


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
    """Return the index of the last segment that was written to; later ones were made ahead."""
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
