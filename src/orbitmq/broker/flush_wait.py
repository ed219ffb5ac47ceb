"""Answers that wait until what they speak of is on disk (flushDiskType=SYNC_FLUSH).

The store's flush thread tells that it has synced; the event loop then answers everybody whose bytes are
covered, in the order in which they were appended.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.message import AppendStatus

if TYPE_CHECKING:
    from orbitmq.broker.context import BrokerContext

logger = logging.getLogger(__name__)

Done = Callable[[AppendStatus], None]
"""Called once with PUT_OK, or with FLUSH_DISK_TIMEOUT where the disk did not sync in time, or failed."""


class _Waiting(NamedTuple):
    end_offset: int
    deadline_ms: float
    done: Done


class FlushWait:
    """Who waits for the disk. Belongs to the event loop's thread."""

    def __init__(self, context: "BrokerContext") -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        self._timeout_ms = context.store.config.sync_flush_timeout_ms
        # Both log offsets and deadlines rise from the first to the last.
        self._waiting: deque[_Waiting] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._told = False
        context.store.on_flushed(self._on_flushed)
        context.owed.append(lambda: self.count)

    @property
    def count(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, done: Done) -> None:
        """Call `done` when everything before the log offset is on disk, perhaps at once."""
        if self._waiting and end_offset < self._waiting[-1].end_offset:
            end_offset = self._waiting[-1].end_offset
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        self._waiting.append(_Waiting(end_offset, deadline_ms, done))
        # A flush that ended before the line above saw nobody waiting and told nobody.
        if self._store.flushed_offset >= end_offset or self._store.failure is not None:
            self.look()
        self._set_timer()

    def _on_flushed(self) -> None:
        """Called in the thread that flushed."""
        if self._told or not self._waiting:
            return
        self._told = True
        try:
            self._loop.call_soon_threadsafe(self.look)
        except RuntimeError:
            self._told = False  # the loop is closed: nobody waits any more

    def look(self) -> None:
        """Answer all that are on disk, and those whose time is over."""
        self._told = False
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
