"""Cut a commit log into pieces that are read side by side, and read one of them.

A place that holds no valid record is passed over by one rule in every split (`Skip`), so that neighbours
agree on where the log goes on.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read.log_view import LogView
from orbitmq.log_read.plan import LogPlan
from orbitmq.log_read.reader import BACK_BYTES, Chunk, OnBad, ReadState, Skip, chunks, first_record
from orbitmq.log_read.segment import Segment
from orbitmq.units import MiB

SPLIT_BYTES: Final = 64 * MiB
ROWS_MAX: Final = 16_384


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


def cut_view(log: LogView, split_bytes: int) -> list[Split]:
    """Return splits of all that was ever written to a log; where it ends shows when it is read."""
    splits: list[Split] = []
    for segment in log.segments:
        base, written = segment.base_offset, segment.written_end()
        count = max(1, round(written / split_bytes))
        cuts = [base + written * number // count for number in range(count + 1)]
        # The last record may end in zeros: it reaches behind what the splits are cut from.
        limit = base + segment.length
        splits += [
            Split(str(segment.path), base, start, end, limit)
            for start, end in itertools.pairwise(cuts if written else ())
        ]
    return splits


def read_split(
    split: Split,
    segment: Segment,
    kernels: Kernels,
    options: ScanOptions,
    on_bad: OnBad | None,
    *,
    back_bytes: int = BACK_BYTES,
    at_record: bool = False,
    state: ReadState | None = None,
) -> Iterator[Chunk]:
    """Yield the records that start in the split; `on_bad` is told of each bad place in it, and may raise.

    Without `on_bad` reading ends at a bad place, and `state` tells where that is. Of `options` the checks
    count; `max_rows` bounds each chunk. `at_record`: the caller knows that a record starts where the split
    does, so none has to be found.
    """
    options = replace(options, max_rows=min(options.max_rows, ROWS_MAX))
    start, end, limit = range_of(
        split, segment, kernels, options, back_bytes=back_bytes, at_record=at_record
    )
    bad = Skip(on_bad) if on_bad is not None else None
    return chunks(
        segment, start, end, kernels=kernels, options=options, limit=limit, bad=bad, state=state
    )


def range_of(
    split: Split,
    segment: Segment,
    kernels: Kernels,
    options: ScanOptions,
    *,
    back_bytes: int,
    at_record: bool = False,
) -> tuple[int, int, int]:
    """Return where the first record of a split starts, where its records end to start, and their limit."""
    limit = min(split.limit, segment.end_offset)
    start, end = min(split.start, limit), min(split.end, limit)
    if not at_record:
        start = first_record(
            segment,
            start,
            end,
            kernels=kernels,
            options=options,
            limit=limit,
            back_bytes=back_bytes,
        )
    return start, end, limit
