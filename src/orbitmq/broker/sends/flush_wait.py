"""Answers that wait until what they speak of is safe.

That is: on disk (flushDiskType=SYNC_FLUSH), and on enough replicas (brokerRole=SYNC_MASTER, see
`replication/in_sync.py`).

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
"""Called once with PUT_OK, with FLUSH_DISK_TIMEOUT where the disk did not sync in time, or failed, or with
what is to be said of replicas, which goes first."""


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ms: float
    done: Done
    copies: int  # so many must have it, the primary included
    copies_deadline_ms: float
    verdict: AppendStatus  # of replicas, if that was clear at once


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
        self._replicas, self._config = context.replicas, context.config
        self.store_flushes = not context.store.config.sync_flush
        """Whether the store flushes by itself what was appended."""
        self.waits = self._replicas is not None or not self.store_flushes
        """Whether answers have to wait at all."""
        self._waits_for_disk = self._replicas is None or not self.store_flushes
        if self._replicas is not None:
            self._replicas.on_change.append(self._on_replica)
        context.store.on_flushed(self._on_flushed)
        context.pending.append(lambda: self.count)

    @property
    def count(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, done: Done) -> None:
        """Call `done` when everything before the log offset is safe, perhaps at once."""
        if self._waiting and end_offset < self._waiting[-1].end_offset:
            end_offset = self._waiting[-1].end_offset
        now_ms = self._clock.monotonic_ms()
        deadline_ms = now_ms + self._store.config.sync_flush_timeout_ms
        copies, copies_deadline_ms, verdict = 1, 0.0, AppendStatus.PUT_OK
        if self._replicas is not None:
            copies, verdict = self._replicas.needed(), self._replicas.verdict()
            copies_deadline_ms = now_ms + self._config.replica_timeout_ms
            if not self._waits_for_disk:
                self.sync_soon()
        self._waiting.append(
            _Waiting(end_offset, deadline_ms, done, copies, copies_deadline_ms, verdict)
        )
        # A flush that ended before the line above saw nobody waiting and told nobody.
        if self._is_flushed(end_offset) or self._store.failure is not None:
            self.look()
        self._set_timer(now_ms)

    def is_safe(self, end_offset: int) -> bool:
        """Tell whether everything before the log offset is on disk and on enough replicas already."""
        replicas = self._replicas
        return self._is_flushed(end_offset) and (
            replicas is None or replicas.reached(end_offset, replicas.needed())
        )

    def _is_flushed(self, end_offset: int) -> bool:
        return not self._waits_for_disk or self._store.flushed_offset >= end_offset

    def sync_soon(self) -> None:
        """See to it that what was appended in this turn of the loop is synced, and sent to replicas."""
        if self._asked:
            return
        if not self._waits_for_disk:
            self._asked = True
            self._loop.call_soon(self._send)
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
        self._after_flush()

    def _send(self) -> None:
        self._asked = False
        if self._replicas is not None:
            self._replicas.send_soon()

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
            self._loop.call_soon_threadsafe(self._after_flush)
        except RuntimeError:
            self._woken = False  # the loop is closed: nobody waits any more

    def _after_flush(self) -> None:
        if self._replicas is not None:
            self._replicas.send_soon()
        self.look()

    def _on_replica(self) -> None:
        if self._waiting:
            self.look()

    def look(self) -> float:
        """Answer all that are safe, and those whose time is over; return the time that counted."""
        self._woken = False
        flushed, now = self._store.flushed_offset, self._clock.monotonic_ms()
        if not self._waits_for_disk:
            flushed = self._store.max_log_offset
        failed = self._store.failure is not None
        while self._waiting:
            first = self._waiting[0]
            if flushed >= first.end_offset:
                status = AppendStatus.PUT_OK
            elif failed or now >= first.deadline_ms:
                status = AppendStatus.FLUSH_DISK_TIMEOUT
            else:
                break
            if self._replicas is not None:
                copied = self._copied(first, now)
                if copied is None:
                    break
                status = copied or status
            self._waiting.popleft()
            _tell(first.done, status)
        return now

    def _copied(self, waiting: _Waiting, now: float) -> AppendStatus | None:
        """Return what is to be said of replicas; None: that is not clear yet."""
        assert self._replicas is not None
        if waiting.verdict is not AppendStatus.PUT_OK:
            return waiting.verdict
        if self._replicas.reached(waiting.end_offset, waiting.copies):
            return AppendStatus.PUT_OK
        return AppendStatus.FLUSH_SLAVE_TIMEOUT if now >= waiting.copies_deadline_ms else None

    def _set_timer(self, looked_ms: float) -> None:
        """See to the next look. A deadline that has passed since the last one was not seen: it is due."""
        if self._timer is None and self._waiting:
            first = self._waiting[0]
            deadline_ms = first.deadline_ms
            if self._replicas is not None and first.copies_deadline_ms > looked_ms:
                deadline_ms = min(deadline_ms, first.copies_deadline_ms)
            wait_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(wait_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._timer = None
        self._set_timer(self.look())


def _tell(done: Done, status: AppendStatus) -> None:
    try:
        done(status)
    except Exception:
        logger.exception("an answer after a flush failed")
