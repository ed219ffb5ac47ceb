"""Which segments have expired or must go for space, and their deletion.

Every 10 s, first after 60 s, a round deletes from the oldest segment on if one of these holds:

trigger | holds when
time    | the local hour is one of `deleteWhen`
space   | the disk is fuller than diskMaxUsedSpaceRatio (`decide_space`)
manual  | an operator asked; good for 20 rounds

A segment goes when it was last written longer ago than the retention, or at once when the disk is
over its forced ratio. Never the last one, and none behind one that stays; none that is not flushed
yet, and none that is not dispatched yet unless space is needed at once. Whether somebody has consumed
the messages is asked only with waitForReaders (`readers.py`): then a segment that somebody still needs
stays even on a full disk, appends are refused instead, and the refusal says for whom it waits.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.store.config import StoreConfig
from orbitmq.store.flags import Flag, RunningFlags
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.readers import Readers, Unread
from orbitmq.store.statistics import Counters

_log = logging.getLogger(__name__)

DiskRatio = Callable[[Path], float]
Follower = Callable[[int], None]
"""Called with the log's new minimum offset after segments were deleted: queues and index trim themselves."""

MANUAL_ROUNDS: Final = 20
_WARNING_RANGE: Final = (0.35, 0.90)
_FORCED_RANGE: Final = (0.30, 0.85)


def disk_ratio(path: Path) -> float:
    """Return how full the disk of a directory is, from 0 to 1 in whole hundredths; -1 if it cannot be told.

    Blocks that only the superuser may use count as used.
    """
    try:
        usage = os.statvfs(path)
    except OSError:
        return -1.0
    used = usage.f_blocks - usage.f_bfree
    total = used + usage.f_bavail
    return math.ceil(100 * used / total) / 100 if total else -1.0


class Space(NamedTuple):
    """What the disks demand."""

    clean: bool  # delete expired segments whatever the hour
    immediate: bool  # delete segments that have not expired too
    disk_full: bool | None  # refuse appends; None: as before
    full_paths: frozenset[Path]  # disks that get no new segment if another has room


def decide_space(
    config: StoreConfig, log_ratios: Mapping[Path, float], queue_ratio: float
) -> Space:
    """Compare how full the disks are with the limits. All comparisons are strict.

    Between the forced and the warning ratio the disk-full mark stays as it is: appends stop above the
    one and go on at or below the other.
    """
    warning = _clamped(config.disk_warning / 100, _WARNING_RANGE)
    forced = _clamped(config.disk_forced / 100, _FORCED_RANGE)
    limit = config.disk_used_max / 100
    full_paths = frozenset(path for path, ratio in log_ratios.items() if ratio > forced)
    log_ratio = min(log_ratios.values(), default=-1.0)
    if log_ratio > warning:
        return Space(True, True, True, full_paths)
    if log_ratio > forced:
        return Space(True, True, None, full_paths)
    if queue_ratio > warning:
        return Space(True, True, True, full_paths)
    if queue_ratio > forced:
        return Space(True, True, False, full_paths)
    over = log_ratio < 0 or log_ratio > limit or queue_ratio < 0 or queue_ratio > limit
    return Space(over, False, False, full_paths)


def decide_share(config: StoreConfig, store_bytes: int, partition_bytes: int) -> tuple[bool, bool]:
    """Return (clean, immediate) where several stores share a disk (replicasPerDiskPartition > 1)."""
    if partition_bytes <= 0:
        return False, False
    ratio = store_bytes / (partition_bytes / config.replicas_per_disk)
    immediate = ratio > config.logical_disk_forced
    return immediate or ratio > config.disk_used_max / 100, immediate


def is_delete_hour(hours: Sequence[int], now_ms: int) -> bool:
    """Tell whether the local hour is one of these."""
    return time.localtime(now_ms / 1000).tm_hour in hours


def is_expired(modified_ms: int, now_ms: int, retention_ms: int) -> bool:
    return now_ms >= modified_ms + retention_ms


def _clamped(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def sync_deletions(segments: SegmentList) -> None:
    """Make the deletion of segments durable.

    Before queues and index follow: a power cut must not bring back segments that they have left behind.
    """
    for directory in segments.layout.commit_log_directories:
        if directory.exists():
            segments.disk.sync_directory(directory)


class Cleaner:
    """Deletes segments and lets queues and index follow. `tick` and `run_round` belong to one thread."""

    def __init__(
        self,
        config: StoreConfig,
        segments: SegmentList,
        *,
        flags: RunningFlags,
        counters: Counters,
        clock: Clock,
        ratio: DiskRatio = disk_ratio,
        followers: Sequence[Follower] = (),
        dispatched_offset: Callable[[], int] | None = None,
        readers: Readers | None = None,
    ) -> None:
        self.readers = readers  # None: nobody is waited for
        self._config, self._segments = config, segments
        self._flags, self._counters, self._clock = flags, counters, clock
        self._ratio, self._followers = ratio, tuple(followers)
        self._dispatched_offset = dispatched_offset
        now_ms = clock.monotonic_ms()
        self._next_ms = now_ms + config.clean_start_ms
        self._redelete_at_ms = now_ms + config.redelete_hanged_ms
        self._manual_rounds = 0
        self._followed_offset = segments.min_offset

    @property
    def config(self) -> StoreConfig:
        return self._config

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next round on."""
        self._config = config

    def tick(self) -> bool:
        """Run a round if it is time; tell whether one was run."""
        if self._clock.monotonic_ms() < self._next_ms:
            return False
        self.run_round()
        self._next_ms = self._clock.monotonic_ms() + self._config.clean_interval_ms
        return True

    def request_rounds(self) -> None:
        """Let the next 20 rounds delete what has expired, whatever the hour; the first comes at once."""
        self._manual_rounds = MANUAL_ROUNDS
        self._next_ms = self._clock.monotonic_ms()

    def run_round(self) -> int:
        """Delete what is due now; return how many segments went."""
        space = self._look_at_disks()
        deleted = 0
        if self._is_triggered(space):
            self._manual_rounds = max(0, self._manual_rounds - 1)
            immediate = space.immediate and self._config.clean_forced
            deleted = self._delete_segments(immediate=immediate)
        self._delete_hanged()
        self._follow()
        return deleted

    def _is_triggered(self, space: Space) -> bool:
        if space.clean or self._manual_rounds > 0:
            return True
        return is_delete_hour(self._config.delete_hours, self._clock.now_ms())

    def _look_at_disks(self) -> Space:
        layout = self._segments.layout
        ratios = {path: self._ratio(path) for path in layout.commit_log_directories}
        queue_root = layout.root / "consumequeue"
        # Before the first message there is no such directory; its disk is that of the root.
        queue_ratio = self._ratio(queue_root if queue_root.exists() else layout.root)
        space = decide_space(self._config, ratios, queue_ratio)
        if self._config.replicas_per_disk > 1 and not space.immediate:
            space = self._with_share(space)
        self._segments.full_paths = space.full_paths
        if space.disk_full is True:
            self._flags.set(Flag.DISK_FULL)
        elif space.disk_full is False:
            self._flags.clear(Flag.DISK_FULL)
        return space

    def _with_share(self, space: Space) -> Space:
        usage = os.statvfs(self._segments.layout.root)
        partition_bytes = usage.f_blocks * usage.f_frsize
        store_bytes = len(self._segments) * self._segments.segment_bytes
        clean, immediate = decide_share(self._config, store_bytes, partition_bytes)
        return space._replace(clean=clean, immediate=immediate)

    def _delete_segments(self, *, immediate: bool) -> int:
        deleted, waits_for = 0, ""
        while deleted < self._config.delete_batch_max and len(self._segments) > 1:
            first = self._segments.first
            assert first is not None
            if first.flushed < first.size:
                break  # it is or will be flushed: that must find its file
            if not immediate and not (self._is_dispatched(first) and self._has_expired(first)):
                break
            unread = self.readers() if self.readers is not None else None
            if unread is not None and unread.log_offset < first.end_offset:
                waits_for = self._waits_for(first, unread)
                break
            if deleted:
                self._clock.sleep(self._config.delete_pause_ms)
            if not self._segments.remove_first(self._config.destroy_forced_ms):
                _log.info("segment %s: still in use, deleted later", first.path.name)
                break
            _log.info("segment %s: deleted", first.path.name)
            deleted += 1
            self._counters.deleted_segments += 1
        self._flags.waits_for = waits_for
        return deleted

    def _waits_for(self, segment: MappedFile, unread: Unread) -> str:
        """Return for whom a segment has to stay, and log it when that changes."""
        known = self._flags.waits_for
        if unread.reader != known:
            _log.warning(
                "segment %s: not deleted, it waits for %s", segment.path.name, unread.reader
            )
        return unread.reader

    def _is_dispatched(self, segment: MappedFile) -> bool:
        """Tell whether queues know what it holds; else their offsets would have a hole."""
        dispatched = self._dispatched_offset
        return dispatched is None or segment.end_offset <= dispatched()

    def _has_expired(self, segment: MappedFile) -> bool:
        try:
            modified_ms = segment.path.stat().st_mtime_ns // 1_000_000
        except OSError:
            return False
        return is_expired(modified_ms, self._clock.now_ms(), self._config.retention_ms)

    def _delete_hanged(self) -> None:
        """Try again to delete a first segment that a reader held when its time came."""
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._redelete_at_ms:
            return
        self._redelete_at_ms = now_ms + self._config.redelete_hanged_ms
        first = self._segments.first
        if first is None or first.is_available or len(self._segments) < 2:
            return
        if self._segments.remove_first(self._config.destroy_forced_ms):
            _log.warning("segment %s: deleted at last", first.path.name)
            self._counters.deleted_segments += 1

    def _follow(self) -> None:
        min_offset = self._segments.min_offset
        if min_offset <= self._followed_offset:
            return
        sync_deletions(self._segments)
        for follower in self._followers:
            follower(min_offset)
        self._followed_offset = min_offset
