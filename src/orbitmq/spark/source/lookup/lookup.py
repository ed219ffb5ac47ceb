"""Selections that need no scan: from options to the places of the log that can hold the wanted records.

option                                 | found by
keys, ids                              | index files (`lookup/index.py`); an offset id names its place itself
startTime, endTime                     | halving over the log (`lookup/times.py`)
topics, tags, queueId, queue offsets   | units of the consume queues (`lookup/units.py`)
without                                | what is held elsewhere of all wanted topics is left out

The answer is complete or there is none: whatever files do not prove is among the ranges to be read.
"""

from bisect import bisect_right
from collections.abc import Iterable
from functools import cached_property
from typing import Final, NamedTuple

from orbitmq.format.index_file import key_hash
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import LogPlan
from orbitmq.spark.source.held import uncovered
from orbitmq.spark.source.lookup.index import find_keys
from orbitmq.spark.source.lookup.times import time_stretch
from orbitmq.spark.source.lookup.units import (
    Queue,
    Range,
    UnitQuery,
    find_units,
    list_queues,
    resolved,
)
from orbitmq.spark.source.options import BadRecords, ReadOptions

SHARE_MIN: Final = 4
"""A topic is looked up by its queues if they are at most one in so many: else the log is read anyway."""
WORDS_MAX: Final = 10_000
"""Keys and ids times topics; for more the log is read."""
INDEX: Final = "index"
QUEUES: Final = "consume queues"
TIMES: Final = "store times"
HELD: Final = "ranges held elsewhere"
"""What a read was narrowed by, as its figures tell it."""


class ScanRanges(NamedTuple):
    """Where records that match a selection may lie; none lies elsewhere.

    A place promises nothing: its record is read and compared with the selection. `offsets` are the log
    offsets of single records outside of all ranges, ascending; `ranges` are stretches (start, end) of the
    log that have to be read as a whole, ascending and apart, for example what no index file covers yet.
    """

    offsets: list[int]
    ranges: list[Range]
    read_bytes: int  # of queue and index files, to find this out
    found_by: tuple[str, ...] = ()


def scan_ranges(plan: LogPlan, options: ReadOptions, *, remote: bool = False) -> ScanRanges | None:
    """Return where all records that the options select lie; None: scan the log.

    `remote`: queue files are fetched as they are, with all zeros that they were allocated with.
    """
    if options.bad_records is BadRecords.KEEP:
        return None  # every bad place of the log is a row too
    lookup = _Lookup(plan, options, remote=remote)
    lookup.narrow_by_time()
    return lookup.run()


class _Lookup:
    """One look-up, over the log offsets [start, end). Not thread-safe."""

    def __init__(self, plan: LogPlan, options: ReadOptions, *, remote: bool) -> None:
        self._plan, self._options, self._remote = plan, options, remote
        self._start = max(plan.start, options.start_offset or 0)
        self._end = plan.end if options.end_offset is None else min(plan.end, options.end_offset)
        self._held = [] if options.without is None else options.without.stretches(options.topics)
        self._found_by: list[str] = [HELD] if self._held else []
        self._read_bytes = 0

    @cached_property
    def _kernels(self) -> Kernels:
        return compiled()  # takes most of a second, and most reads look nothing up

    def _count(self, count: int) -> None:
        self._read_bytes += count

    def narrow_by_time(self) -> None:
        """Leave out what is too old or too young."""
        options, before = self._options, (self._start, self._end)
        if (options.start_ms is None and options.end_ms is None) or not self._plan.files:
            return
        start, end = time_stretch(
            self._plan, options.start_ms, options.end_ms, self._kernels, self._count
        )
        self._start, self._end = max(self._start, start), min(self._end, end)
        if (self._start, self._end) != before:
            self._found_by.append(TIMES)

    def run(self) -> ScanRanges | None:
        if self._start >= self._end:
            return self._answer((), [])
        found = self._by_key() if self._options.keys or self._options.ids else None
        if found is None:
            found = self._by_queue()
        if found is None and self._found_by:
            return self._answer((), [(self._start, self._end)])
        return found

    def _answer(self, offsets: Iterable[int], ranges: Iterable[Range]) -> ScanRanges:
        clipped = ((max(low, self._start), min(high, self._end)) for low, high in ranges)
        joined = [part for one in join(clipped) for part in uncovered(self._held, *one)]
        inside = (offset for offset in offsets if self._start <= offset < self._end)
        singles = outside(inside, join([*joined, *self._held]))
        return ScanRanges(singles, joined, self._read_bytes, tuple(self._found_by))

    # --- by key ---

    def _by_key(self) -> ScanRanges | None:
        """Look up keys or ids. Where both are asked for, a record must have both: ids are fewer."""
        options = self._options
        words = options.index_words
        # The index knows a key only together with its topic.
        queues = None if options.topics else self._queues()
        if not options.topics and not queues:
            return None
        topics = set(options.topics) or {queue.topic for queue in queues or ()}
        if len(words) * len(topics) > WORDS_MAX:
            return None
        hashes = frozenset(key_hash(topic, word) for topic in topics for word in words)
        found = find_keys(self._plan.layout, hashes, self._count)
        if found is None:
            return None
        # The index has a record where a stretch starts that it does not cover, unless an option names it.
        unsure = self._start if self._start > self._plan.start else -1
        rest = uncovered(found.covered, self._start, self._end)
        offsets, ranges = resolved(self._plan, rest, unsure, self._kernels, self._count)
        offsets += found.log_offsets
        # A user may name any place: only the log tells whether a record starts there.
        ranges += [(offset, offset + 1) for offset in options.named_offsets]
        if queues is not None:
            # Records of topics that have no queue, as those of deleted topics.
            unknown = self._find_units(queues, UnitQuery(options, only_gaps=True))
            if unknown is None:
                return None
            offsets += unknown.offsets
            ranges += unknown.ranges
        self._found_by.append(INDEX)
        return self._answer(offsets, ranges)

    # --- by queue ---

    def _by_queue(self) -> ScanRanges | None:
        options, query = self._options, UnitQuery(self._options)
        if not (options.topics or options.queue_id is not None or query.has_queue_range):
            return None
        queues = self._queues()
        if not queues or (not query.has_queue_range and not _is_rare(queues, query)):
            return None
        found = self._find_units(queues, query)
        return None if found is None else found._replace(found_by=(*self._found_by, QUEUES))

    def _queues(self) -> list[Queue] | None:
        """Return all queues; None: to ask them costs more than to read the log."""
        queues = list_queues(self._plan.layout)
        if queues and self._remote:
            files = sum(file.length for queue in queues for file in queue.files)
            if files * SHARE_MIN > self._end - self._start:
                return None
        return queues

    def _find_units(self, queues: list[Queue], query: UnitQuery) -> ScanRanges | None:
        found = find_units(
            self._plan, queues, query, self._start, self._end, self._kernels, self._count
        )
        return None if found is None else self._answer(found.log_offsets, found.stretches)


def _is_rare(queues: list[Queue], query: UnitQuery) -> bool:
    wanted = sum(
        len(queue.files) for queue in queues if query.wants_queue(queue.topic, queue.queue_id)
    )
    return wanted * SHARE_MIN <= sum(len(queue.files) for queue in queues)


def outside(offsets: Iterable[int], ranges: Iterable[Range]) -> list[int]:
    """Return the offsets that lie in none of the stretches (in order and apart), ascending, each once."""
    # The bounds of all stretches in order: an even number of them before an offset is outside.
    bounds = [bound for part in ranges for bound in part]
    return sorted(offset for offset in set(offsets) if bisect_right(bounds, offset) % 2 == 0)


def join(ranges: Iterable[Range]) -> list[Range]:
    """Return the same stretches in order, those that touch or overlap as one."""
    joined: list[Range] = []
    for low, high in sorted(ranges):
        if joined and low <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], high))
        else:
            joined.append((low, high))
    return joined
