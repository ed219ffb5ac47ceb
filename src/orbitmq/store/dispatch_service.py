"""Keep dispatch close behind the log: in a thread of its own, or whenever the owner says so."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import StoreError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import BadPlace, ReadState, Segment, Skip, chunks
from orbitmq.store.dispatch import Dispatcher, QueueNumbers
from orbitmq.store.listeners import tell
from orbitmq.store.log.log_reader import LogReader
from orbitmq.store.service import thread_state
from orbitmq.units import SECOND_MS, MiB

log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 4 * MiB
LINGER_MS: Final = 1
"""So far apart are two rounds at least: one kernel call for many appends, and no wait for a lone one."""
IDLE_DELAY_MS: Final = 40
"""So long a round waits when nobody waits for it: each one costs the appender a switch of threads."""
RETRY_MS: Final = 1 * SECOND_MS
RETRIES: Final = 30
"""So often a failed round is tried again before the store is told (as RocketMQ does)."""


OnDispatched = Callable[[Iterable[int]], None]
"""Told after each chunk which queues have grown; each number once."""


_LIVE: Final = Path("commitlog")  # a segment of the running log


def _log_bad(place: BadPlace) -> None:
    """Tell of bytes that are no record.

    Recovery repairs such places before a store is opened, so this means that the file was damaged
    under a running store.
    """
    behind = place.log_offset + place.length
    log.error("log offset %d: %s; dispatch goes on at %d", place.log_offset, place.reason, behind)


class DispatchService:
    """Dispatches from `dispatched_offset` up to what the log shows. Any thread may call it."""

    def __init__(
        self,
        log_reader: LogReader,
        dispatcher: Dispatcher,
        kernels: Kernels,
        *,
        start: int,
        options: ScanOptions | None = None,
        clock: Clock | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._log = log_reader
        self._dispatcher = dispatcher
        self._kernels = kernels
        self._options = options if options is not None else ScanOptions()
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._chunk_bytes = chunk_bytes
        self._on_error = on_error
        self.on_dispatched: list[OnDispatched] = []
        self._bad = Skip(_log_bad, growing=True)
        self._stuck_at = -1  # where no record was found when this was last told
        self._records = 0  # dispatched since the start
        self._call_at: tuple[int, Callable[[], None]] | None = None
        self._running = threading.Lock()  # held by the one who dispatches
        self._offset = start
        self._progress = threading.Condition()  # told whenever `_offset` has moved
        self._wake = threading.Event()
        self._no_linger = threading.Event()  # somebody waits for the round that lingers
        self._watched: Callable[[], bool] = lambda: True
        self._taken_over: Callable[[], bool] = lambda: False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def dispatched_offset(self) -> int:
        """The log offset up to which all records are in queues and index."""
        return self._offset

    @property
    def behind_bytes(self) -> int:
        return max(self._log.visible_offset() - self._offset, 0)

    def use(self, kernels: Kernels) -> None:
        """Work with other kernels from now on."""
        with self._running:
            self._kernels = kernels
            self._dispatcher.use(kernels)

    def watch(self, watched: Callable[[], bool]) -> None:
        """Ask `watched` before each round whether anybody waits for what it shows.

        If not, rounds come rarely. Whoever wants to see everything calls `wake_now` or `dispatch_now`.
        """
        self._watched = watched

    def offer(self, taken_over: Callable[[], bool]) -> None:
        """Ask `taken_over`, after each append, whether its caller sees to a round itself, by `catch_up`.

        Then the thread is left asleep. Who took a round over and cannot do it calls `wake_now`.
        """
        self._taken_over = taken_over

    def call_after(self, records: int, act: Callable[[], None]) -> None:
        """Call `act` once, in the dispatching thread, when so many records were dispatched."""
        self._call_at = records, act

    def dispatch_now(self) -> int:
        """Dispatch everything that is visible now, in the caller's thread; return how many records."""
        with self._running:
            return self._dispatch_visible()

    def alone(self) -> AbstractContextManager[None]:
        """Keep others from writing queues and index meanwhile: here there are none."""
        return nullcontext()

    def catch_up(self, bytes_max: int) -> bool:
        """Dispatch what is visible now if that is little and nobody is at it; tell whether that was done."""
        if not 0 < self.behind_bytes <= bytes_max or not self._running.acquire(blocking=False):
            return False
        try:
            return self._dispatch_visible() > 0
        except StoreError as error:
            log.warning("dispatch at log offset %d failed: %s", self._offset, error)
            return False  # the thread tries it again, and counts
        finally:
            self._running.release()

    def _dispatch_visible(self) -> int:
        count = 0
        end = self._log.visible_offset()
        while self._offset < end:
            done = self._step(end)
            if done is None:
                break
            count += done
        return count

    # --- one step ---

    def _step(self, end: int) -> int | None:
        """Dispatch about one chunk; return its number of records, None if there is nothing to go on with."""
        start = max(self._offset, self._log.min_offset)
        for base, data, first, last in self._log.iter_ranges(start, end):
            return self._dispatch(Segment(base, _LIVE, data), base + first, base + last)
        return None

    def _dispatch(self, segment: Segment, start: int, visible: int) -> int | None:
        before, count, state = self._offset, 0, ReadState(start)
        for chunk in chunks(
            segment,
            start,
            start + self._chunk_bytes,
            kernels=self._kernels,
            options=self._options,
            limit=visible,
            bad=self._bad,
            state=state,
        ):
            filled = self._dispatcher.apply(chunk)
            self._move_to(state.at)
            if self.on_dispatched and filled:
                self._tell(filled)
            self._count(len(chunk.rows))
            count += len(chunk.rows)
        behind = state.next_offset(segment.end_offset)
        if behind != self._offset:
            self._move_to(behind)
        if not state.is_whole and self._stuck_at != behind:
            self._stuck_at = behind
            log.error("log offset %d: no valid record, and none behind it yet", behind)
        return count if self._offset != before else None

    def _count(self, records: int) -> None:
        self._records += records
        if self._call_at is not None and self._records >= self._call_at[0]:
            act = self._call_at[1]
            self._call_at = None
            act()

    def _tell(self, filled: list[QueueNumbers]) -> None:
        numbers = np.unique(np.concatenate(filled)).astype(np.int32, copy=False)
        if len(numbers):
            tell(self.on_dispatched, numbers)

    def _move_to(self, offset: int) -> None:
        with self._progress:
            self._offset = offset
            self._progress.notify_all()

    # --- the thread ---

    def notify(self) -> None:
        """Say that the log shows more; cheap enough for every append."""
        if not self._wake.is_set() and not self._taken_over():
            self._wake.set()

    def wake_now(self) -> None:
        """Say that somebody waits for what has been appended."""
        self._no_linger.set()
        self._wake.set()

    def wait_no_longer(self) -> None:
        """Say that somebody waits for what comes: a round that lingers begins now.

        It may linger for records that `catch_up` has dispatched; what is appended now would wait with it.
        """
        if self._wake.is_set():
            self._no_linger.set()

    def start(self) -> None:
        """Start dispatching in the background."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name="orbitmq-dispatch", daemon=True)
        self._thread.start()
        self.notify()

    def stop(self, timeout_ms: float = 5 * SECOND_MS) -> bool:
        """Dispatch the rest and stop; return whether nothing was left behind in that time."""
        self._stopping.set()
        self.wake_now()
        if self._thread is not None:
            self._thread.join(timeout_ms / 1000)
            alive = self._thread.is_alive()
            self._thread = None
            return not alive and self.behind_bytes == 0
        return self.behind_bytes == 0

    @property
    def state(self) -> str:
        return thread_state(self._thread)

    def wait_dispatched(self, offset: int, timeout_ms: float) -> bool:
        """Wait until everything before this log offset is dispatched; return whether it is."""
        deadline = time.monotonic() + timeout_ms / 1000
        if self._offset < offset:
            self.wake_now()
        with self._progress:
            while self._offset < offset:
                left = deadline - time.monotonic()
                if left <= 0 or not self._progress.wait(left):
                    return self._offset >= offset
        return True

    def _run(self) -> None:
        failures = 0
        last_ms = 0.0
        while True:
            self._clock.wait(self._wake, 1 * SECOND_MS)
            if not self._wake.is_set():
                linger_ms = 0.0  # the second is over; look whether a notice was missed
            elif self._watched():
                linger_ms = last_ms + LINGER_MS - self._clock.monotonic_ms()
            else:
                linger_ms = IDLE_DELAY_MS
            if linger_ms > 0:
                self._clock.wait(self._no_linger, linger_ms)
            self._no_linger.clear()
            self._wake.clear()
            stopping = self._stopping.is_set()
            before = self._offset
            failures = 0 if self._try_round() else failures + 1
            last_ms = self._clock.monotonic_ms()
            if stopping and (failures or self.behind_bytes == 0 or self._offset == before):
                return
            if failures:
                self._after_failure(failures)

    def _try_round(self) -> bool:
        try:
            self.dispatch_now()
        except StoreError as error:
            log.warning("dispatch at log offset %d failed: %s", self._offset, error)
            self._last_error: Exception = error
            return False
        except Exception as error:
            log.exception("dispatch at log offset %d failed", self._offset)
            self._last_error = error
            return False
        return True

    def _after_failure(self, failures: int) -> None:
        if failures == RETRIES and self._on_error is not None:
            self._on_error(self._last_error)
        self._clock.wait(self._stopping, RETRY_MS)
        self._wake.set()
