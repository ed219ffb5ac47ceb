"""Counts and times of what a store does (RocketMQ: StoreStatsService).

The counters are plain integers: each has one writer, who holds the lock of what is counted. A reader
may see them a few microseconds apart; that is good enough for figures.
"""

from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

EDGES_US: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000),
    *(200_000, 500_000, 1_000_000, 2_000_000, 3_000_000, 4_000_000, 5_000_000, 10_000_000),
)
"""Times at which durations are told apart; those of RocketMQ's figures are among them."""
_EDGES_NS: Final = tuple(edge * 1_000 for edge in EDGES_US)
assert all(low < high for low, high in pairwise(EDGES_US))


@dataclass(slots=True)
class Timing:
    """How often something was timed, and how long it took. Appends are sampled, the rest is complete."""

    count: int = 0
    total_ns: int = 0
    max_ns: int = 0
    counts: list[int] = field(default_factory=lambda: [0] * (len(EDGES_US) + 1))
    """How many took up to each of `EDGES_US`, and more than the one before it; the last: longer."""

    def add(self, elapsed_ns: int) -> None:
        self.count += 1
        self.total_ns += elapsed_ns
        self.max_ns = max(self.max_ns, elapsed_ns)
        self.counts[bisect_left(_EDGES_NS, elapsed_ns)] += 1

    def percentile_us(self, share: float) -> float:
        """Return how long this share of them took at most; as exact as `EDGES_US` are fine."""
        wanted, seen = share * self.count, 0
        for edge, count in zip(EDGES_US, self.counts, strict=False):
            seen += count
            if seen >= wanted:
                return min(edge, self.max_us)
        return self.max_us

    @property
    def average_us(self) -> float:
        return self.total_ns / self.count / 1000 if self.count else 0.0

    @property
    def max_us(self) -> float:
        return self.max_ns / 1000


@dataclass(slots=True)
class Counters:
    """The live counters that the parts of a store count in."""

    appended_messages: int = 0
    refused_messages: int = 0
    busy_messages: int = 0  # of those: because the page cache or the transient pool was busy
    append_time: Timing = field(default_factory=Timing)
    get_calls: int = 0
    get_found: int = 0
    get_missed: int = 0
    got_messages: int = 0
    got_bytes: int = 0
    get_time: Timing = field(default_factory=Timing)
    flush_time: Timing = field(default_factory=Timing)
    commit_time: Timing = field(default_factory=Timing)
    allocate_time: Timing = field(default_factory=Timing)
    deleted_segments: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatistics:
    """One look at a store: what was done since it was opened and how far each part is."""

    uptime_ms: int
    appended_messages: int
    appended_bytes: int  # by which the log has grown, blanks included
    refused_messages: int
    busy_messages: int  # of those: because the page cache or the transient pool was busy
    append_average_us: float
    append_max_us: float
    append_p99_us: float
    append_p999_us: float
    append_counts: tuple[int, ...]  # of the timed ones, by EDGES_US
    append_lock_ms: int  # how long the append that is under way has taken so far
    free_buffers: int | None  # of the transient pool; None: there is none
    get_calls: int
    get_found: int
    get_missed: int
    got_messages: int
    got_bytes: int
    get_average_us: float
    get_max_us: float
    flush_count: int
    flush_average_us: float
    flush_max_us: float
    allocate_max_us: float
    deleted_segments: int
    min_log_offset: int
    max_log_offset: int
    flushed_offset: int
    dispatched_offset: int
    unflushed_bytes: int
    dispatch_behind_bytes: int
    queue_count: int
    mapped_files: int  # segments and index files, in memory as long as somebody reads them
    mapped_bytes: int
    waits_for: str  # who keeps old segments from being deleted; empty: nobody
    writable: bool
    refusal: str


def snapshot(
    counters: Counters,
    *,
    uptime_ms: int,
    opened_offset: int,
    min_log_offset: int,
    max_log_offset: int,
    flushed_offset: int,
    dispatched_offset: int,
    visible_offset: int,
    queue_count: int,
    refusal: str,
    append_lock_ms: int = 0,
    free_buffers: int | None = None,
    mapped: tuple[int, int] = (0, 0),
    waits_for: str = "",
) -> StoreStatistics:
    """Return the counters and offsets as one value."""
    return StoreStatistics(
        uptime_ms=uptime_ms,
        appended_messages=counters.appended_messages,
        appended_bytes=max_log_offset - opened_offset,
        refused_messages=counters.refused_messages,
        busy_messages=counters.busy_messages,
        append_average_us=counters.append_time.average_us,
        append_max_us=counters.append_time.max_us,
        append_p99_us=counters.append_time.percentile_us(0.99),
        append_p999_us=counters.append_time.percentile_us(0.999),
        append_counts=tuple(counters.append_time.counts),
        append_lock_ms=append_lock_ms,
        free_buffers=free_buffers,
        get_calls=counters.get_calls,
        get_found=counters.get_found,
        get_missed=counters.get_missed,
        got_messages=counters.got_messages,
        got_bytes=counters.got_bytes,
        get_average_us=counters.get_time.average_us,
        get_max_us=counters.get_time.max_us,
        flush_count=counters.flush_time.count,
        flush_average_us=counters.flush_time.average_us,
        flush_max_us=counters.flush_time.max_us,
        allocate_max_us=counters.allocate_time.max_us,
        deleted_segments=counters.deleted_segments,
        min_log_offset=min_log_offset,
        max_log_offset=max_log_offset,
        flushed_offset=flushed_offset,
        dispatched_offset=dispatched_offset,
        unflushed_bytes=max_log_offset - flushed_offset,
        dispatch_behind_bytes=max(0, visible_offset - dispatched_offset),
        queue_count=queue_count,
        mapped_files=mapped[0],
        mapped_bytes=mapped[1],
        waits_for=waits_for,
        writable=not refusal,
        refusal=refusal,
    )
