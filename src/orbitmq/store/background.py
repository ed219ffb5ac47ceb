"""What a store does beside its callers: flush, commit, dispatch, checkpoint, cleaning, kernels.

The same rounds run in threads, or one after another in `tick`.
"""

import logging
import threading
from collections.abc import Callable

from orbitmq.clock import Clock
from orbitmq.errors import StoreError, StoreIOError
from orbitmq.format import kernels as kernel_sets
from orbitmq.store.assembly import StoreParts
from orbitmq.store.config import StoreConfig
from orbitmq.store.flags import Flag
from orbitmq.store.log.flush import AsyncFlush, CommitRounds
from orbitmq.store.service import PageSchedule, Service
from orbitmq.units import SECOND_MS

_log = logging.getLogger(__name__)

CHECKPOINT_INTERVAL_MS = 1 * SECOND_MS


class Background:
    """The rounds of one store. `tick` belongs to one thread; the rest to any."""

    def __init__(self, config: StoreConfig, parts: StoreParts, clock: Clock) -> None:
        self._config, self._parts, self._clock = config, parts, clock
        self._running = False
        now_ms = clock.monotonic_ms()
        self._flush_schedule = PageSchedule(now_ms, *_flush_rounds(config))
        self._flush = AsyncFlush(parts.flusher, self._flush_schedule, clock)
        self._commit_schedule = PageSchedule(now_ms, *_commit_rounds(config))
        self._commit = CommitRounds(parts.flusher, self._commit_schedule, clock)
        self._checkpoint_at_ms = now_ms + CHECKPOINT_INTERVAL_MS
        self._kernel_thread: threading.Thread | None = None
        self._kernel_lock = threading.Lock()  # kernels are not changed while the store is closed
        # Another one: the dispatching thread takes it, for whom the holder of the first one waits.
        self._kernel_start_lock = threading.Lock()
        self._flush_service = self._service("flush", self._flush.run, config.flush_interval_ms)
        self._commit_service = self._service("commit", self._commit.run, config.commit_interval_ms)
        self._queue_service = self._service(
            "flush-queues", self.flush_queues_if_due, config.queue_flush_interval_ms / 4
        )
        self._clean_service = self._service("clean", parts.cleaner.tick, 1 * SECOND_MS)
        self._published_by_flush = parts.log.follows_flush
        self._decide_wakes(config)

    def _decide_wakes(self, config: StoreConfig) -> None:
        """Decide what an append has to wake."""
        # A timed flush thread sleeps out its interval, whoever calls.
        by_append = config.wake_flush_on_append and not config.flush_timed
        self._wakes_flush = config.sync_flush or (by_append and not config.uses_pool)
        self._wakes_commit = config.uses_pool and config.wake_commit_on_append

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next round on."""
        self._config = config
        self._decide_wakes(config)
        self._flush_schedule.change(*_flush_rounds(config))
        self._commit_schedule.change(*_commit_rounds(config))
        self._parts.queue_flusher.use(config)
        for service, interval_ms in (
            (self._flush_service, config.flush_interval_ms),
            (self._commit_service, config.commit_interval_ms),
            (self._queue_service, config.queue_flush_interval_ms / 4),
        ):
            service.interval_ms = interval_ms
            service.wake()  # it may be in the middle of a long old one

    def _service(self, name: str, act: Callable[[], object], interval_ms: float) -> Service:
        return Service(name, act, interval_ms=interval_ms, clock=self._clock, on_bug=self._on_bug)

    def _services(self) -> list[Service]:
        services = [self._flush_service, self._queue_service, self._clean_service]
        if self._parts.log.pool is not None:
            services.insert(0, self._commit_service)
        return services

    # Threads

    def start(self) -> None:
        self._running = True
        self._parts.log.allocator.start()
        for service in self._services():
            service.start()
        self._parts.dispatch.start()
        if self._config.plain_records:
            self._parts.dispatch.call_after(self._config.plain_records, self._start_kernels)
        else:
            self._start_kernels()

    def stop(self) -> None:
        """End all threads but dispatch and the allocator, which have their own order."""
        with self._kernel_lock:
            if not self._running:
                return
            self._running = False  # kernels that are still being loaded come too late
        for service in reversed(self._services()):
            service.stop()

    def states(self) -> dict[str, str]:
        """Return what each part of the work is doing, by name, as its thread says."""
        parts = self._parts
        dispatch = parts.dispatch.state
        if self._config.follows_spark:
            dispatch += ", follows a Spark job"
        return {
            "allocate": parts.log.allocator.state,
            "dispatch": dispatch,
            "index": f"{dispatch}, in dispatch" if self._config.index_enabled else "off",
            **{service.name: service.state for service in self._services()},
        }

    def wait_kernels(self) -> None:
        self._start_kernels()
        if self._kernel_thread is not None:
            self._kernel_thread.join()

    def _start_kernels(self) -> None:
        """Load the compiled kernels in a thread, unless they are in use or on their way."""
        with self._kernel_start_lock:
            if not self._running or self._kernel_thread or self._parts.kernels.name != "plain":
                return
            self._kernel_thread = threading.Thread(
                target=self._load_kernels, name="orbitmq-kernels", daemon=True
            )
            self._kernel_thread.start()

    def _load_kernels(self) -> None:
        # Importing the compiler takes most of a second; the plain kernels serve meanwhile.
        try:
            compiled = kernel_sets.compiled()
        except Exception:  # the plain ones do the same, slowly
            _log.exception("compiled kernels: not loaded, the plain ones stay")
            return
        with self._kernel_lock:
            if self._running:
                self._parts.dispatch.use(compiled)
                self._parts.log.appender.kernels = self._parts.kernels = compiled

    def _on_bug(self, name: str, error: Exception) -> None:
        root = self._config.root
        step = "Restart; if it comes again, run `orbitmq store check` and report this."
        self._parts.flags.fail(StoreError(root, f"thread {name} ended: {error!r}", step))

    # What appends ask for

    def appended(self) -> None:
        """Say that the log has grown."""
        self.grown()
        if self._wakes_flush:
            self._flush_service.wake()

    def grown(self) -> None:
        """Say that the log has grown, and that somebody else sees to its flush."""
        if (
            not self._published_by_flush
        ):  # else the flush tells dispatch, and now it would see nothing
            self._parts.dispatch.notify()
        if self._wakes_commit:
            self._commit_service.wake()

    def committed(self) -> None:
        """Say that a transient buffer was handed to its file: it can be dispatched and synced."""
        self._parts.dispatch.notify()
        if not self._config.flush_timed:
            self._flush_service.wake()

    def wake_flush(self) -> None:
        self._flush_service.wake()

    def wake_dispatch(self) -> None:
        """Bring what was appended into sight of dispatch soon."""
        if self._parts.log.pool is not None:
            self._commit_service.wake()
        if self._config.sync_flush:
            self._flush_service.wake()

    def wake_cleaner(self) -> None:
        self._clean_service.wake()

    # Rounds

    def tick(self) -> None:
        """Do what is due, in the order in which data moves."""
        self._parts.log.allocator.make_wanted()
        self._commit.tick()
        self._flush.tick()
        self._parts.dispatch.dispatch_now()
        self.flush_queues_if_due()
        self._parts.cleaner.tick()

    def flush_queues_if_due(self) -> None:
        """Flush queues and index by their own schedule; write the checkpoint once a second."""
        parts = self._parts
        if parts.flags.failure is not None:
            return
        now_ms = self._clock.monotonic_ms()
        self._guarded(parts.queue_flusher.tick)
        if now_ms >= self._checkpoint_at_ms:
            self._checkpoint_at_ms = now_ms + CHECKPOINT_INTERVAL_MS
            if parts.flusher.flushed_store_ms > parts.checkpoint.value.physic_ms:
                parts.checkpoint.update(physic_ms=parts.flusher.flushed_store_ms)
            self._guarded(parts.checkpoint.write)

    def flush_queues(self) -> None:
        """Flush queues and index thoroughly now."""
        if self._parts.flusher.flushed_store_ms:
            self._parts.checkpoint.update(physic_ms=self._parts.flusher.flushed_store_ms)
        self._guarded(self._parts.queue_flusher.flush_all)

    def _guarded(self, act: Callable[[], object]) -> None:
        """Tell the flags what the disk says.

        A failed write is tried again in the next round. A failed sync is not: the kernel may have
        dropped the pages, and a snapshot written later would claim units that are not there.
        """
        flags = self._parts.flags
        try:
            act()
        except StoreIOError as error:
            if error.operation.startswith("sync"):
                flags.fail(error, Flag.QUEUE_ERROR)
            else:
                flags.set(Flag.QUEUE_ERROR)
            raise
        if flags.failure is None:
            flags.clear(Flag.QUEUE_ERROR)


def _flush_rounds(config: StoreConfig) -> tuple[int, int, int]:
    """Return interval, least pages and thorough interval of the log's flush."""
    pages = 0 if config.sync_flush else config.flush_least_pages
    return config.flush_interval_ms, pages, config.flush_thorough_ms


def _commit_rounds(config: StoreConfig) -> tuple[int, int, int]:
    return config.commit_interval_ms, config.commit_least_pages, config.commit_thorough_ms
