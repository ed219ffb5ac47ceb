"""When queues and index reach the disk, and the checkpoint that says so.

Every second a round flushes queues with enough dirty pages; every minute one is thorough: everything is
written and synced, then the snapshot is replaced, then the checkpoint names it. A crash at any point in
between leaves the last snapshot valid: what it does not know is dispatched again.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orbitmq.clock import Clock
from orbitmq.errors import StoreError, StoreFailedError, StoreIOError
from orbitmq.format.checkpoint import Extension
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.snapshot import SnapshotFile, StoreCapture, capture, encode_capture
from orbitmq.units import MINUTE_MS, SECOND_MS

log = logging.getLogger(__name__)

CLOSE_TRIES = 3
THOROUGH = 0  # least pages of a thorough round


@dataclass(slots=True)
class FlushSchedule:
    """When which kind of round is due; knows no files."""

    interval_ms: int = 1 * SECOND_MS  # flushIntervalConsumeQueue
    least_pages: int = 2  # flushConsumeQueueLeastPages
    thorough_ms: int = 1 * MINUTE_MS  # flushConsumeQueueThoroughInterval
    last_round_ms: float = 0
    last_thorough_ms: float = 0

    def due(self, now_ms: float) -> int | None:
        """Return the least pages of the round that is due now (0: thorough), None if none is."""
        if now_ms < self.last_round_ms + self.interval_ms:
            return None
        self.last_round_ms = now_ms
        if now_ms < self.last_thorough_ms + self.thorough_ms:
            return self.least_pages
        self.last_thorough_ms = now_ms
        return THOROUGH


class QueueFlusher:
    """Flushes queues and index of one store. Any thread may call it; rounds do not overlap."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        checkpoint: CheckpointFile,
        snapshot: SnapshotFile,
        clock: Clock,
        *,
        dispatched_offset: Callable[[], int],
        log_end: Callable[[], int],
        schedule: FlushSchedule | None = None,
    ) -> None:
        self.generation = 0  # of the last snapshot; recovery sets what it found
        self.own_from = 0  # all records from this log offset on are ours; recovery sets it too
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._snapshot = snapshot
        self._clock = clock
        self._dispatched_offset = dispatched_offset
        self._log_end = log_end
        self._schedule = schedule if schedule is not None else FlushSchedule()
        self._schedule.last_round_ms = self._schedule.last_thorough_ms = clock.monotonic_ms()
        self._lock = threading.Lock()  # one round at a time
        self._sync_failure: StoreFailedError | None = None

    def change(self, interval_ms: int, least_pages: int, thorough_ms: int) -> None:
        """Decide by these from the next round on."""
        schedule = self._schedule
        schedule.interval_ms, schedule.least_pages = interval_ms, least_pages
        schedule.thorough_ms = thorough_ms

    def tick(self) -> bool:
        """Do what is due by the clock; return whether anything was."""
        with self._lock:
            least_pages = self._schedule.due(self._clock.monotonic_ms())
            if least_pages is None:
                return False
            with self._no_sync_after_a_failed_one():
                if least_pages == THOROUGH:
                    self._flush_thoroughly()
                else:
                    self._flush_round(least_pages)
            return True

    def flush_all(self) -> None:
        """Flush everything now and write snapshot and checkpoint."""
        with self._lock, self._no_sync_after_a_failed_one():
            self._flush_thoroughly()

    @contextmanager
    def _no_sync_after_a_failed_one(self) -> Iterator[None]:
        """Let no snapshot be written any more once a sync has failed.

        A second sync may succeed although the pages of the first are lost. The last snapshot knows
        nothing of them, so after a restart everything since then is dispatched again.
        """
        if self._sync_failure is not None:
            raise self._sync_failure
        try:
            yield
        except StoreIOError as error:
            if error.operation.startswith("sync"):
                step = "Look at the disk (`dmesg`), then start the store again."
                self._sync_failure = StoreFailedError(
                    error.path, f"a {error.operation} failed", step
                )
            raise

    def close(self) -> None:
        """Do the same for the last time; try again twice if it fails, as RocketMQ does."""
        for attempt in range(1, CLOSE_TRIES + 1):
            try:
                self.flush_all()
            except StoreError as error:
                log.warning("flush of the queues at close, try %d: %s", attempt, error)
                if attempt == CLOSE_TRIES or self._sync_failure is not None:
                    raise
            else:
                return

    def _flush_round(self, least_pages: int) -> None:
        dispatcher = self._dispatcher
        if dispatcher.ext is not None:
            dispatcher.ext.write_out()
        dispatcher.queues.write_out(thorough=False)
        dispatcher.queues.flush(least_pages)
        dispatcher.batch_queues.flush(least_pages)
        if dispatcher.index.flush_full() != self._checkpoint.value.index_ms:
            self._checkpoint.update(index_ms=dispatcher.index.full_ms)
            self._checkpoint.write()

    def _flush_thoroughly(self) -> None:
        dispatcher = self._dispatcher
        with dispatcher.lock:
            captured = capture(dispatcher, self._dispatched_offset())
        log_end = self._log_end()
        dispatcher.write_and_sync()
        self.generation += 1
        names = dispatcher.queues.names
        self._snapshot.save(encode_capture(captured, names, self.generation))
        self._checkpoint.update(
            logics_ms=self._logics_ms(captured),
            index_ms=dispatcher.index.full_ms,
            extension=Extension(
                self.generation, captured.dispatched_offset, log_end, self.own_from
            ),
        )
        self._checkpoint.write()

    def _logics_ms(self, captured: StoreCapture) -> int:
        """Return the store time up to which units are on disk and keys in full, synced index files.

        A Java broker that opens the store after a crash dispatches from there on and throws away the
        index file that was being filled: with a later time it would not find those keys again.
        """
        if not captured.dispatched_ms:  # nothing was dispatched since the start
            return self._checkpoint.value.logics_ms
        if not self._dispatcher.index.enabled:
            return captured.dispatched_ms
        return min(captured.dispatched_ms, self._dispatcher.index.full_ms)
