"""TimerStore: wheel, timer log and checkpoint of one store, joined. What a broker sees of them.

Messages wait in the commit log, as records of topic rmq_sys_wheel_timer; the wheel only knows where. One
thread does everything in turns (`turn`); only the disk is written to by another (`flush`).
"""

import random
from pathlib import Path
from typing import NamedTuple, Self

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk
from orbitmq.format.columns import Ints
from orbitmq.format.timer_checkpoint import TimerCheckpoint
from orbitmq.format.timer_wheel import WHEEL_SLOTS, WINDOW_SLOTS
from orbitmq.message import TIMER_TOPIC
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.checkpoint import TimerCheckpointFile
from orbitmq.store.timer.due import Due
from orbitmq.store.timer.enqueue import Enqueue
from orbitmq.store.timer.metrics import TimerMetrics
from orbitmq.store.timer.recovery import BLANK_SLOTS, Progress, TimerRecovery
from orbitmq.store.timer.timer_log import TimerLog
from orbitmq.store.timer.wheel import Pages, TimerWheel


class FlushPlan(NamedTuple):
    """What is to be on disk, in this order, before progress may be saved: as all was at one moment."""

    log_end: int  # the commit log up to here: it has what was delivered
    files: set[Path]  # of the timer log
    pages: Pages  # of the wheel
    checkpoint: TimerCheckpoint


class TimerStore:
    """The waiting messages of an open store. Belongs to one thread; see `is_full` and `flush`."""

    def __init__(
        self,
        store: MessageStore,
        wheel: TimerWheel,
        log: TimerLog,
        checkpoint: TimerCheckpointFile,
        progress: Progress,
        clock: Clock,
    ) -> None:
        """Use `TimerStore.open`."""
        self._store, self._clock = store, clock
        self._wheel, self._timer_log, self._file = wheel, log, checkpoint
        self._progress, self._config = progress, store.config
        self.metrics = TimerMetrics(clock.now_ms)
        parts = store, wheel, log, self.metrics, progress
        self._enqueue = Enqueue(*parts, window_slots=window_slots(store.config))
        self._due = Due(*parts)
        self._write_ms = 0
        self._move_write_time()
        self._saved: tuple[int, ...] | None = self._state()

    @classmethod
    def open(cls, store: MessageStore, clock: Clock, disk: Disk | None = None) -> Self:
        """Open the wheel of a store and bring it up to date; from now on the store takes timer messages."""
        config, layout, disk = store.config, store.config.layout(), disk or Disk()
        wheel = TimerWheel(layout.timer_wheel, disk, config.timer_precision_ms)
        log = TimerLog(layout.timer_log, config.timer_log_file_bytes, disk)
        checkpoint = TimerCheckpointFile(layout.config("timercheck"), disk)
        recovery = TimerRecovery(
            store,
            wheel,
            log,
            checkpoint,
            file_bytes=config.timer_log_file_bytes,
            now_ms=clock.now_ms(),
        )
        timers = cls(store, wheel, log, checkpoint, recovery.run(), clock)
        store.use_timer(timers)
        return timers

    def close(self) -> None:
        self._timer_log.close()

    # What the store asks of each message

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def is_full(self, slot_ms: int) -> bool:
        """Tell whether so many wait for this time that another one is refused. Any thread may ask.

        From the limit on more and more are refused, from twice the limit on all.
        """
        limit = self._store.config.timer_slot_count_max
        count = self._wheel.count(slot_ms)
        if count <= limit:
            return False
        return random.randrange(limit or 1) < count - limit

    def have_room(self, slots: Ints) -> bool:
        """Tell whether none of these slots has reached the limit of `is_full`. Any thread may ask."""
        return self._wheel.most(slots) <= self._store.config.timer_slot_count_max

    # Turns

    def turn(self, enqueue_max: int, deliver_max: int) -> int | None:
        """Do a piece of work; return how much, 0: there is none, None: the store takes nothing now."""
        self._move_write_time()
        config, now_ms, handled = self._store.config, self._clock.now_ms(), 0
        waits = False
        if not config.timer_stop_enqueue and not self._is_far_behind():
            done = self._enqueue.turn(self._write_ms, self._due.active_ms, now_ms, enqueue_max)
            handled, waits = done or 0, done is None
        if not config.timer_stop_dequeue:
            done = self._due.turn(self._write_ms, now_ms, deliver_max)
            handled, waits = handled + (done or 0), waits or done is None
        return None if waits else handled

    def _move_write_time(self) -> None:
        precision = self._wheel.precision_ms
        self._write_ms = max(self._write_ms, self._clock.now_ms() // precision * precision)

    def _is_far_behind(self) -> bool:
        """Tell whether a new unit could take a slot away from one that was not delivered yet."""
        behind_ms = self._write_ms - self._progress.read_ms
        return behind_ms >= (WHEEL_SLOTS - WINDOW_SLOTS) * self._wheel.precision_ms

    @property
    def wait_ms(self) -> int:
        """How long until the next slot is over."""
        return max(1, self._write_ms + self._wheel.precision_ms - self._clock.now_ms())

    # Figures

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """How far all is now."""
        progress = self._progress
        return self._file.value._replace(
            read_ms=progress.read_ms,
            timer_log_end=self._timer_log.end,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever put into this wheel, as of a replica that has become a primary."""
        return self._timer_log.end == 0

    @property
    def enqueued(self) -> int:
        return self._enqueue.count

    @property
    def delivered(self) -> int:
        return self._due.count

    @property
    def read_behind_ms(self) -> int:
        return max(0, self._write_ms - self._progress.read_ms)

    @property
    def queue_behind(self) -> int:
        return max(0, self._store.max_offset(TIMER_TOPIC, 0) - self._progress.queue_offset)

    def waiting(self) -> int:
        """Return how many messages wait in the wheel."""
        return self._wheel.waiting(self._progress.read_ms)

    def first_needed(self) -> int | None:
        """Return the log offset of the first message that waits in the wheel. Any thread may ask."""
        position = self._wheel.first_position(self._progress.read_ms)
        return None if position is None else self._timer_log.log_offset(position)

    @property
    def queue_offset(self) -> int:
        """Next message of the wheel's topic to be put into the wheel."""
        return self._progress.queue_offset

    # Files

    def plan_flush(self) -> FlushPlan | None:
        """Return what is to be written, None: nothing has changed. To be followed by `flush` or `give_up`."""
        if self._saved == self._state():
            return None
        self._saved = self._state()
        now = self.checkpoint
        checkpoint = now._replace(
            version_ms=self._clock.now_ms(), version_counter=now.version_counter + 1
        )
        return FlushPlan(
            self._store.max_log_offset,
            self._timer_log.unsynced(),
            self._wheel.changed(),
            checkpoint,
        )

    def _state(self) -> tuple[int, ...]:
        """Return what is different whenever there is something to save; that time passes is nothing."""
        due = self._due
        return self._timer_log.end, self._progress.queue_offset, due.slots, due.count

    def flush(self, plan: FlushPlan) -> None:
        """Write what a plan says, each part when the one before is on disk. Any thread, one at a time.

        StoreError: not all of it is there; see `give_up`.
        """
        if not self._store.wait_flushed(plan.log_end):
            step = "Look at the disk; it is tried again."
            raise StoreError(self._config.root, "the commit log was not flushed in time", step)
        self._timer_log.sync(plan.files)
        self._wheel.write(plan.pages)
        self._file.write(plan.checkpoint)

    def give_up(self, plan: FlushPlan) -> None:
        """Say that a plan could not be written: the next one has everything of it."""
        self._timer_log.keep(plan.files)
        self._wheel.keep(plan.pages)
        self._saved = None

    def flush_now(self) -> None:
        """Write everything that changed. StoreError: it could not be."""
        plan = self.plan_flush()
        if plan is None:
            return
        try:
            self.flush(plan)
        except StoreError:
            self.give_up(plan)
            raise

    def clean(self) -> None:
        """Delete files of the timer log whose messages are gone from the commit log."""
        self._timer_log.delete_before(self._store.min_log_offset)


def window_slots(config: StoreConfig) -> int:
    """Return for how many slots a message waits in one go; a setting that makes no sense means the most."""
    most = WINDOW_SLOTS - BLANK_SLOTS
    return config.timer_window_slots if 2 <= config.timer_window_slots <= most else most
