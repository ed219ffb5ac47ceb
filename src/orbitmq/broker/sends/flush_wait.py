"""Answers that wait until what they speak of is on disk (flushDiskType=SYNC_FLUSH).

All sends of one turn of the event loop share one sync, and then everybody whose bytes are covered is
answered, in the order in which they were appended. The loop itself calls fsync while that is quick: to
hand over to a thread and back costs more. A slow disk (by the average fsync latency) is left to the
store's flush thread for a while, so that it does not keep the loop from everything else.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.errors import StoreError
from orbitmq.message import AppendStatus
from orbitmq.units import SECOND_MS

logger = logging.getLogger(__name__)

FSYNC_MS_MAX: Final = 2.0
"""A disk with a longer average fsync latency is slow; a single one of 20 ms is enough for that."""
SLOW_DISK_MS: Final = 1 * SECOND_MS
"""So long the flush thread syncs a slow disk, until the loop tries again."""
_ALPHA: Final = 0.1  # share of the last fsync in the average (EWMA)

Done = Callable[[AppendStatus], None]
"""Called once with PUT_OK, or with FLUSH_DISK_TIMEOUT where the disk did not sync in time, or failed."""


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ms: float
    done: Done


class FlushWait:
    """Who waits for the disk. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        # Both log offsets and deadlines rise from the first to the last.
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._woken = False  # `look` is called soon
        self._asked = False  # `_sync` is called in this turn of the loop
        self._fsync_ms = 0.0  # average latency
        self._slow_until_ms = 0.0
        context.store.on_flushed(self._on_flushed)
        context.pending.append(lambda: self.count)

    @property
    def count(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, done: Done) -> None:
        """Call `done` when everything before the log offset is on disk, perhaps at once."""
        if self._waiting and end_offset < self._waiting[-1].end_offset:
            end_offset = self._waiting[-1].end_offset
        deadline_ms = self._clock.monotonic_ms() + self._store.config.sync_flush_timeout_ms
        self._waiting.append(_Waiting(end_offset, deadline_ms, done))
        # A flush that ended before the line above saw nobody waiting and told nobody.
        if self._store.flushed_offset >= end_offset or self._store.failure is not None:
            self.look()
        self._set_timer()

    def sync_soon(self) -> None:
        """See to it that what was appended in this turn of the loop is synced."""
        if self._asked:
            return
        if self._clock.monotonic_ms() < self._slow_until_ms:
            self._store.wake_flush()
            return
        self._asked = True
        self._loop.call_soon(self._sync)

    def _sync(self) -> None:
        self._asked = False
        self._woken = True  # by the line below, which needs no turn of the loop
        started_ms = self._clock.monotonic_ms()
        try:
            self._store.flush_log()
        except StoreError as error:
            logger.warning("sync failed: %s", error)
        self._note_latency(started_ms, self._clock.monotonic_ms())
        self.look()

    def _note_latency(self, started_ms: float, now_ms: float) -> None:
        """Hand over to the flush thread for a while if the disk is slow."""
        self._fsync_ms += _ALPHA * (now_ms - started_ms - self._fsync_ms)
        if self._fsync_ms > FSYNC_MS_MAX:
            self._fsync_ms = 0.0
            self._slow_until_ms = now_ms + SLOW_DISK_MS

    def _on_flushed(self) -> None:
        """Called in the thread that flushed."""
        if self._woken or not self._waiting:
            return
        self._woken = True
        try:
            self._loop.call_soon_threadsafe(self.look)
        except RuntimeError:
            self._woken = False  # the loop is closed: nobody waits any more

    def look(self) -> None:
        """Answer all that are on disk, and those whose time is over."""
        self._woken = False
        flushed, now = self._store.flushed_offset, self._clock.monotonic_ms()
        failed = self._store.failure is not None
        while self._waiting:
            end_offset, deadline_ms, done = self._waiting[0]
            if flushed >= end_offset:
                status = AppendStatus.PUT_OK
            elif failed or now >= deadline_ms:
                status = AppendStatus.FLUSH_DISK_TIMEOUT
            else:
                break
            self._waiting.popleft()
            _tell(done, status)

    def _set_timer(self) -> None:
        if self._timer is None and self._waiting:
            wait_ms = max(0.0, self._waiting[0].deadline_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(wait_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self.look()
        self._set_timer()


def _tell(done: Done, status: AppendStatus) -> None:
    try:
        done(status)
    except Exception:
        logger.exception("an answer after a flush failed")
