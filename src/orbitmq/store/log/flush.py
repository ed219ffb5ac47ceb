"""When the commit log's bytes reach the disk, and who waits for that.

mode                 | an append is answered               | the bytes are synced
async (default)      | when they are in the page cache     | every 500 ms if 4 pages are dirty, all every 10 s
sync                 | when they are on disk               | by whoever waits first, for all who wait
transient pool       | when they are in a private buffer   | committed every 200 ms, then as above

After a failed sync nothing is synced again: the kernel may have dropped the pages that it could not
write, so a second sync can succeed over lost bytes. The flags refuse appends from then on.

A close tries a stubborn disk ten times (`finish`). What was not written is written again from memory, and
that is as good as the first time. A sync is repeated too, for what it may still save, but proves nothing
any more: the failure stands, the store is not stopped cleanly, and the next start recovers.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from orbitmq.clock import Clock
from orbitmq.errors import StoreError, StoreFailedError
from orbitmq.message import AppendStatus
from orbitmq.store.flags import RunningFlags
from orbitmq.store.listeners import tell
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.transient_pool import TransientPool
from orbitmq.store.service import PageSchedule
from orbitmq.store.statistics import Counters

_log = logging.getLogger(__name__)

CLOSE_TRIES: Final = 10  # RocketMQ's
CLOSE_PAUSE_MS: Final = 100


class LogFlusher:
    """Commits and syncs the segments of a log. Any thread may call it; one works at a time."""

    def __init__(
        self, log: CommitLog, *, flags: RunningFlags, counters: Counters, clock: Clock
    ) -> None:
        self._log, self._flags, self._counters, self._clock = log, flags, counters, clock
        self._flush_lock = threading.Lock()  # one sync at a time
        self._commit_lock = threading.Lock()  # one commit at a time; taken inside _flush_lock
        self.failure: StoreError | None = None
        self.flushed_store_ms = 0
        """Store time of a record that is on disk, as are all before it (checkpoint: physicMsgTimestamp)."""
        self.on_flushed: list[Callable[[], None]] = []  # called when the flushed offset has moved
        self.on_committed: Callable[[], None] | None = None

    def flush(self, least_pages: int = 0) -> int:
        """Sync what has enough dirty pages; return the flushed offset. StoreFailedError after a failure."""
        with self._flush_lock:
            self._require_sound()
            before = self._log.flushed_offset
            store_ms = self._log.last_store_ms
            if self._log.pool is not None and least_pages == 0:
                self.commit(0)
            self._sync_segments(least_pages)
            flushed = self._log.flushed_offset
            if least_pages == 0:
                self.flushed_store_ms = max(self.flushed_store_ms, store_ms)
        if flushed > before:
            tell(self.on_flushed)
        return flushed

    def _sync_segments(self, least_pages: int) -> None:
        segments = self._log.segments
        offset = segments.flushed_offset
        segment = segments.find(offset)
        while segment is not None and segment.flush_due(least_pages):
            started = time.perf_counter_ns()
            try:
                segment.flush(least_pages)
            except StoreError as error:
                self._fail(error)
                raise
            self._counters.flush_time.add(time.perf_counter_ns() - started)
            if segment.flushed < segment.size:
                return
            segment = segments.find(segment.end_offset)

    def commit(self, least_pages: int = 0) -> bool:
        """Hand transient buffers to their files; tell whether anything moved."""
        if self._log.pool is None:
            return False
        with self._commit_lock:
            self._require_sound()
            try:
                moved = self._commit_segments(self._log.pool, least_pages)
            except StoreError as error:
                self._fail(error)
                raise
        if moved and self.on_committed is not None:
            self.on_committed()
        return moved

    def _commit_segments(self, pool: TransientPool, least_pages: int) -> bool:
        moved = False
        for segment in self._log.segments:
            if segment.buffer is None:
                continue
            before = segment.committed
            started = time.perf_counter_ns()
            moved |= segment.commit(least_pages) > before
            self._counters.commit_time.add(time.perf_counter_ns() - started)
            buffer = segment.detach_buffer()
            if buffer is not None:
                pool.give_back(buffer)
        return moved

    # The end

    def finish(self) -> None:
        """Bring everything to the disk before a close. StoreError: not all of it is surely there."""
        pool = self._log.pool
        if pool is not None:
            with self._commit_lock:
                self._insist("write", lambda: self._commit_segments(pool, 0), CLOSE_TRIES)
        if self.failure is None:
            try:
                self.flush(0)
            except StoreError as error:
                _log.warning("flush at close, try 1: %s", error)
                self._clock.sleep(CLOSE_PAUSE_MS)
                self._insist("sync", self._sync_unsure, CLOSE_TRIES - 1)
        else:
            self._insist("sync", self._sync_unsure, CLOSE_TRIES)
        if self.failure is not None:
            raise self.failure

    def _insist(self, what: str, step: Callable[[], object], tries: int) -> None:
        """Do it until it succeeds, so many times at most; then the log has failed."""
        for left in reversed(range(tries)):
            try:
                step()
            except StoreError as error:
                _log.warning("%s at close, try %d: %s", what, CLOSE_TRIES - left, error)
                if not left:
                    self._fail(error)
                    return
                self._clock.sleep(CLOSE_PAUSE_MS)
            else:
                return

    def _sync_unsure(self) -> None:
        """Sync what is not surely on disk; it does not count as flushed, see above."""
        for segment in self._log.segments:
            if segment.flushed < segment.readable:
                segment.sync(segment.flushed, segment.readable - segment.flushed)

    def _require_sound(self) -> None:
        if self.failure is not None:
            raise StoreFailedError(
                self.failure.path,
                f"nothing is written any more after an earlier failure ({self.failure.what})",
                "Look at the disk, then restart: recovery tells what is safe.",
            ) from self.failure

    def _fail(self, error: StoreError) -> None:
        if self.failure is None:
            self.failure = error
        self._flags.fail(error)


class AsyncFlush:
    """The rounds of asynchronous flush. `tick` belongs to one thread."""

    def __init__(self, flusher: LogFlusher, schedule: PageSchedule, clock: Clock) -> None:
        self._flusher, self._schedule, self._clock = flusher, schedule, clock

    def tick(self) -> None:
        """Do a round if it is time."""
        now_ms = self._clock.monotonic_ms()
        pages = self._schedule.due(now_ms)
        if pages is not None and self._flusher.failure is None:
            self._round(pages, now_ms)

    def run(self) -> None:
        """Do a round now: the caller has waited for the interval, or was woken."""
        now_ms = self._clock.monotonic_ms()
        if self._flusher.failure is None:
            self._round(self._schedule.pages(now_ms), now_ms)

    def _round(self, pages: int, _now_ms: float) -> None:
        self._flusher.flush(pages)


class CommitRounds(AsyncFlush):
    """The rounds of the commit thread of a transient pool."""

    def _round(self, pages: int, now_ms: float) -> None:
        if self._flusher.commit(pages):
            self._schedule.moved(now_ms)


class _Waiter:
    """One append that waits for its bytes."""

    __slots__ = ("done", "leads", "status", "target")

    def __init__(self, target: int) -> None:
        self.target = target
        self.status: AppendStatus | None = None
        self.leads = False  # it was woken to lead the next round
        self.done = threading.Event()


class GroupCommit:
    """Synchronous flush: one sync answers everybody whose bytes were written before it began.

    Who comes first leads: it syncs in its own thread, without waking another. Who comes meanwhile joins
    the list of the next round; when the leader is done the lists are swapped, and the first of them leads.

    A leader whose sync hangs in the kernel cannot be called back at its deadline; all others can.
    """

    def __init__(self, flusher: LogFlusher, clock: Clock, timeout_ms: float) -> None:
        self._flusher, self._clock, self.timeout_ms = flusher, clock, timeout_ms
        self._lock = threading.Lock()  # guards the two below
        self._arriving: list[_Waiter] = []
        self._led = False

    def wait(self, target: int) -> tuple[AppendStatus, str]:
        """Return when everything before log offset `target` is on disk, or cannot be; and why not."""
        deadline_ms = self._clock.monotonic_ms() + self.timeout_ms
        waiter = _Waiter(target)
        with self._lock:
            leads = not self._led
            if leads:
                self._led = True
            else:
                self._arriving.append(waiter)
        if not leads:
            self._follow(waiter, deadline_ms)
            if waiter.status is not None:
                return self._answer(waiter.status)
            if not waiter.leads:
                return self._answer(AppendStatus.FLUSH_DISK_TIMEOUT)
        self._lead(waiter)
        if waiter.status is None or self._clock.monotonic_ms() > deadline_ms:
            return self._answer(AppendStatus.FLUSH_DISK_TIMEOUT)
        return self._answer(waiter.status)

    def _follow(self, waiter: _Waiter, deadline_ms: float) -> None:
        self._clock.wait(waiter.done, deadline_ms - self._clock.monotonic_ms())
        with self._lock:
            # Whoever was made leader must lead, even past its deadline: others count on it.
            if waiter.status is None and not waiter.leads:
                self._arriving = [other for other in self._arriving if other is not waiter]

    def _lead(self, waiter: _Waiter) -> None:
        with self._lock:
            serving, self._arriving = self._arriving, []
        serving.append(waiter)
        flushed = -1
        try:
            flushed = self._flusher.flush(0)
        except StoreError:
            flushed = -1  # the flags know; nobody here may hear that all is well
        finally:
            self._finish(serving, flushed)

    def _finish(self, serving: list[_Waiter], flushed: int) -> None:
        for waiter in serving:
            fine = flushed >= waiter.target
            waiter.status = AppendStatus.PUT_OK if fine else AppendStatus.FLUSH_DISK_TIMEOUT
            waiter.done.set()
        with self._lock:
            if not self._arriving:
                self._led = False
                return
            successor = self._arriving.pop(0)
            successor.leads = True
        successor.done.set()

    def _answer(self, status: AppendStatus) -> tuple[AppendStatus, str]:
        if status is AppendStatus.PUT_OK:
            return status, ""
        if self._flusher.failure is not None:
            return status, f"the sync failed: {self._flusher.failure}"
        return status, f"the disk did not sync within {self.timeout_ms:g} ms (syncFlushTimeout)"
