"""When queues and index reach the disk, and the checkpoint that says so.

Every second a round flushes queues with enough dirty pages; every minute one is thorough: everything is
written and synced, then the snapshot is replaced, then the checkpoint names it. A crash at any point in
between leaves the last snapshot valid: what it does not know is dispatched again.
"""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orbitmq.clock import Clock
from orbitmq.errors import StoreError, StoreFailedError, StoreIOError
from orbitmq.format.checkpoint import Extension
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.service import PageSchedule
from orbitmq.store.snapshot import SnapshotFile, StoreCapture, capture, encode_capture

log = logging.getLogger(__name__)

CLOSE_TRIES = 3
THOROUGH = 0  # least pages of a thorough round


class QueueFlusher:
    """Flushes queues and index of one store. Any thread may call it; rounds do not overlap."""

    def __init__(
        self,
        config: StoreConfig,
        dispatcher: Dispatcher,
        checkpoint: CheckpointFile,
        snapshot: SnapshotFile,
        clock: Clock,
        *,
        dispatched_offset: Callable[[], int],
        log_end: Callable[[], int],
    ) -> None:
        self.generation = 0  # of the last snapshot; recovery sets what it found
        self.own_from = 0  # all records from this log offset on are ours; recovery sets it too
        self._dispatcher = dispatcher
        self._checkpoint = checkpoint
        self._snapshot = snapshot
        self._clock = clock
        self._dispatched_offset = dispatched_offset
        self._log_end = log_end
        self._schedule = PageSchedule(clock.monotonic_ms(), *_rounds(config))
        self._lock = threading.Lock()  # one round at a time
        self._sync_failure: StoreFailedError | None = None

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next round on."""
        self._schedule.change(*_rounds(config))

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


def _rounds(config: StoreConfig) -> tuple[int, int, int]:
    """Return interval, least pages and thorough interval of the rounds."""
    return (
        config.queue_flush_interval_ms,
        config.queue_flush_least_pages,
        config.queue_flush_thorough_ms,
    )
