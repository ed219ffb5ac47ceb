"""Where each record of the parts goes: parts in order, cut into segments, queue offsets by sums."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from orbitmq.errors import JobFailedError, io_error
from orbitmq.format.columns import Ints
from orbitmq.format.record import BLANK_BYTES
from orbitmq.spark.jobs.load.facts import ENTRY, Entries, PartFacts

Queue = tuple[str, int]


class Piece(NamedTuple):
    """Records of one part that lie one behind the other in a segment."""

    records_path: str
    entries_path: str
    first: int  # record of the part
    end: int
    start_byte: int  # of the part
    end_byte: int
    bases: list[
        int
    ]  # by number of the queue in the part: what is added to its records' queue offsets

    @property
    def byte_count(self) -> int:
        return self.end_byte - self.start_byte


class SegmentPlan(NamedTuple):
    """A segment and what goes into it."""

    number: int
    pieces: list[Piece]
    is_last: bool

    @property
    def records(self) -> int:
        return sum(piece.end - piece.first for piece in self.pieces)

    @property
    def byte_count(self) -> int:
        return sum(piece.byte_count for piece in self.pieces)


def in_order(found: Iterable[PartFacts]) -> list[PartFacts]:
    """Return the parts by partition. JobFailedError: one of them is there twice."""
    parts = sorted(found, key=lambda facts: facts.partition)
    numbers = [facts.partition for facts in parts]
    if len(set(numbers)) != len(numbers):
        raise JobFailedError("tasks gave a partition twice", "No store was made; run it again.")
    return parts


def queue_bases(parts: Iterable[PartFacts]) -> tuple[list[list[int]], dict[Queue, int]]:
    """Return for each part what its queues begin with, and how many records each queue has in the end."""
    totals: dict[Queue, int] = {}
    bases: list[list[int]] = []
    for part in parts:
        names = [(queue.topic, queue.queue_id) for queue in part.queues]
        bases.append([totals.get(name, 0) for name in names])
        for name, queue in zip(names, part.queues, strict=True):
            totals[name] = totals.get(name, 0) + queue.records
    return bases, totals


def cut_segments(parts: list[PartFacts], segment_bytes: int) -> list[SegmentPlan]:
    """Return the segments: each takes the next records until one does not fit, with room for a blank."""
    bases, _ = queue_bases(parts)
    segments: list[list[Piece]] = [[]]
    most = segment_bytes - BLANK_BYTES
    room = most
    for part, base in zip(parts, bases, strict=True):
        ends = _ends(part)
        first = 0
        while first < part.records:
            start = int(ends[first])
            end = int(np.searchsorted(ends, start + room, side="right")) - 1
            if end > first:
                stop = int(ends[end])
                paths = part.records_path, part.entries_path
                segments[-1].append(Piece(*paths, first, end, start, stop, base))
                room -= stop - start
                first = end
            if first < part.records:
                assert segments[-1], "tasks let no record pass that is longer than a segment"
                segments.append([])
                room = most
    last = len(segments) - 1
    return [SegmentPlan(number, pieces, number == last) for number, pieces in enumerate(segments)]


def _ends(part: PartFacts) -> Ints:
    """Return where the records of a part end, and 0 before them."""
    sizes = read_entries(part.entries_path, 0, part.records)["size"]
    ends = np.zeros(part.records + 1, dtype=np.int64)
    np.cumsum(sizes, out=ends[1:])
    if int(ends[-1]) != part.record_bytes:
        what = f"{part.entries_path} tells of {int(ends[-1])} bytes instead of {part.record_bytes}"
        raise JobFailedError(what, "All machines must see the same directory. No store was made.")
    return ends


def read_entries(path: str, first: int, end: int) -> Entries:
    """Return what a part says of some of its records."""
    try:
        found = np.fromfile(path, ENTRY, count=end - first, offset=first * ENTRY.itemsize)
    except OSError as cause:
        raise io_error(path, "read", cause) from cause
    if len(found) != end - first:
        what = f"{path} ends before record {end}"
        raise JobFailedError(what, "All machines must see the same directory. No store was made.")
    return found


def blocks(piece: Piece, block_records: int) -> Iterator[tuple[int, int]]:
    """Yield the records of a piece, some at a time."""
    for first in range(piece.first, piece.end, block_records):
        yield first, min(first + block_records, piece.end)
