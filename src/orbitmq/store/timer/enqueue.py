"""Enqueue: from the queue of topic rmq_sys_wheel_timer into the wheel.

message                                     | what becomes of it
its slot is over                            | delivered at once, unless it cancels another: too late
further away than the wheel's window        | waits in an earlier slot, marked as rolled
any other                                   | waits in its slot

Simple ones (`format.waiting`) are read by kernels, many at once; the rest one by one.
"""

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_DTYPE, CqUnit
from orbitmq.format.java_hash import java_hash
from orbitmq.message import TIMER_TOPIC, AppendRequest
from orbitmq.store.timer.appends import append_due
from orbitmq.store.timer.metrics import TimerMetrics
from orbitmq.store.timer.put import Puts, put
from orbitmq.store.timer.recovery import Progress
from orbitmq.store.timer.run import LEAST, RUN_MAX, Places, WaitingRun
from orbitmq.store.timer.timer_log import TimerLog
from orbitmq.store.timer.waiting import (
    NEVER_ENQUEUED,
    Waiting,
    delivery,
    read_record,
    read_waiting,
)
from orbitmq.store.timer.wheel import TimerWheel

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

_log = logging.getLogger(__name__)

FEW: Final = 64  # are handled one by one in one turn

_Found = tuple[CqUnit, Waiting | None]


class _Now(NamedTuple):
    write_ms: int  # the slot of now
    active_ms: int  # the last slot whose units have been read
    over_ms: int  # slots before this time are over
    now_ms: int


class Enqueue:
    """Puts messages into the wheel, in the order of their queue. Belongs to one thread."""

    def __init__(
        self,
        store: "MessageStore",
        wheel: TimerWheel,
        log: TimerLog,
        metrics: TimerMetrics,
        progress: Progress,
        *,
        window_slots: int,
    ) -> None:
        self._store, self._wheel, self._timer_log, self._metrics = store, wheel, log, metrics
        self._progress, self._window_slots = progress, window_slots
        self._run, self._many = WaitingRun(store), FEW
        self.count = 0  # messages handled since the start

    def turn(self, write_ms: int, active_ms: int, now_ms: int, count_max: int) -> int | None:
        """Handle up to so many messages; return how many, None: the store takes nothing now.

        `write_ms` is the slot of now, `active_ms` the last one whose units have been read.
        """
        precision, progress = self._wheel.precision_ms, self._progress
        over_ms = now_ms // precision * precision  # before `write_ms` if the clock was set back
        first = self._store.min_offset(TIMER_TOPIC, 0)
        if progress.queue_offset < first:
            _log.warning(
                "timer messages %d to %d are gone before they were put into the wheel",
                progress.queue_offset,
                first - 1,
            )
            progress.queue_offset = first
        now = _Now(write_ms, active_ms, over_ms, now_ms)
        is_again = progress.known or progress.queue_offset < progress.redo_end
        if is_again or not self._run.is_quick:
            return self._turn_by_few(now, min(count_max, FEW))
        done = self._turn_by_many(now, min(count_max, self._many))
        # Where neighbours are of different kinds it is of no use to look far ahead.
        self._many = min(RUN_MAX, 2 * self._many) if done else FEW
        return done or self._turn_by_few(now, min(count_max, FEW))

    # By kernels

    def _turn_by_many(self, now: "_Now", count_max: int) -> int:
        """Handle the next messages if they are simple and of one kind; return how many."""
        raw = self._store.raw_units(TIMER_TOPIC, 0, self._progress.queue_offset, count_max)
        units = np.frombuffer(raw, dtype=UNIT_DTYPE)
        if len(units) < LEAST:
            return 0
        offsets, sizes = units["log_offset"].astype(np.int64), units["size"].astype(np.int64)
        places, run = Places(offsets, sizes, np.full(len(units), NEVER_ENQUEUED)), self._run
        try:
            if run.read(places, now.now_ms, check_crc=False) < LEAST:
                return 0
            slot_ms, cancels = run.rows["slot_ms"], run.rows["cancels"].astype(np.bool_)
            is_over = (slot_ms < now.over_ms) & (~cancels | (slot_ms <= now.active_ms))
            is_other = (is_over != is_over[0]) | (is_over & cancels)
            count = int(np.argmax(is_other)) if is_other.any() else run.count
            if count < LEAST:
                return 0
            places = places.first(count)
            if not is_over[0]:
                hashes = run.rows["topic_hash"][:count].copy()
                slots = slot_ms[:count].copy()
                puts = Puts(slots, cancels[:count], places.offsets, places.sizes, hashes)
                self._put_many(puts, now.write_ms)
            elif not self._deliver_many(places, now.now_ms):
                return 0
        finally:
            run.release()
        self._progress.queue_offset += count
        self.count += count
        return count

    def _deliver_many(self, places: Places, now_ms: int) -> bool:
        count = self._run.read(places, now_ms, check_crc=True)
        return count == len(places.offsets) and self._store.append_due_nowait(self._run)

    def _put_many(self, puts: Puts, write_ms: int) -> None:
        read_ms = self._progress.read_ms
        put(puts, self._wheel, self._timer_log, write_ms, read_ms, self._window_slots)
        if len(puts.slot_ms) == self._run.count:
            for queue in self._run.queues:
                self._metrics.add(queue.topic, queue.messages - 2 * queue.cancels)
            return
        rows = self._run.rows[: len(puts.slot_ms)]
        changes = np.where(puts.cancels, -1, 1)
        for number, queue in enumerate(self._run.queues):
            change = int(changes[rows["queue"] == number].sum())
            if change:
                self._metrics.add(queue.topic, change)

    # One by one

    def _turn_by_few(self, now: "_Now", count_max: int) -> int | None:
        progress = self._progress
        units = self._store.units(TIMER_TOPIC, 0, progress.queue_offset, count_max)
        run: list[_Found] = []
        run_is_over = False
        for queue_offset, unit in enumerate(units, progress.queue_offset):
            waiting = self._read(unit, queue_offset)
            is_over = waiting is not None and waiting.slot_ms < now.over_ms
            if is_over and waiting is not None and waiting.cancels:
                is_over = waiting.slot_ms <= now.active_ms  # else its message still waits there
            if run and is_over != run_is_over:
                if not self._finish(run, run_is_over, now.write_ms, now.now_ms):
                    return None
                run = []
            run.append((unit, waiting))
            run_is_over = is_over
        if run and not self._finish(run, run_is_over, now.write_ms, now.now_ms):
            return None
        return len(units)

    def _read(self, unit: CqUnit, queue_offset: int) -> Waiting | None:
        """Return what the message of a queue unit says; None: nothing is to be done with it."""
        progress, log_offset, size = self._progress, unit[0], unit[1]
        if size == PADDING_SIZE or log_offset in progress.known:
            return None
        raw = self._store.record_of(log_offset, size)
        waiting = None if raw is None else read_waiting(raw)
        if waiting is None:
            _log.error("timer message at log offset %d cannot be read, passed over", log_offset)
        elif queue_offset < progress.redo_end and waiting.slot_ms < progress.redo_ms:
            return None  # delivered before the timer log lost it
        return waiting

    def _finish(self, run: list[_Found], is_over: bool, write_ms: int, now_ms: int) -> bool:
        """Do what a run of messages of one kind needs; then, and only then, progress is behind it."""
        progress = self._progress
        found = [(unit, waiting) for unit, waiting in run if waiting is not None]
        if is_over:
            if not self._deliver(found, now_ms):
                return False
        elif found:
            self._put(found, write_ms)
        progress.queue_offset += len(run)
        self.count += len(found)
        if progress.known and run[-1][0][0] >= progress.known_end:
            progress.known = frozenset()
        return True

    def _deliver(self, found: list[tuple[CqUnit, Waiting]], now_ms: int) -> bool:
        requests: list[AppendRequest] = []
        asked: list[int] = []
        for (log_offset, size, _), waiting in found:
            record = read_record(self._store.record_of(log_offset, size))
            if record is None or waiting.cancels:
                continue
            request = delivery(record, NEVER_ENQUEUED, now_ms)
            if request is not None:
                requests.append(request)
                asked.append(log_offset)
        done = append_due(self._store, requests) if requests else []
        if all(done):
            return True
        # They come again, and those that are stored must not.
        progress = self._progress
        progress.known |= {offset for offset, is_done in zip(asked, done, strict=True) if is_done}
        return False

    def _put(self, found: list[tuple[CqUnit, Waiting]], write_ms: int) -> None:
        puts = Puts(
            np.array([waiting.slot_ms for _, waiting in found], dtype=np.int64),
            np.array([waiting.cancels for _, waiting in found], dtype=np.bool_),
            np.array([unit.log_offset for unit, _ in found], dtype=np.int64),
            np.array([unit.size for unit, _ in found], dtype=np.int64),
            np.array([java_hash(waiting.topic) for _, waiting in found], dtype=np.int64),
        )
        read_ms = self._progress.read_ms
        put(puts, self._wheel, self._timer_log, write_ms, read_ms, self._window_slots)
        for _, waiting in found:
            self._metrics.add(waiting.topic, -1 if waiting.cancels else 1)
