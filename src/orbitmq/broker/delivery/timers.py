"""Timers: has the messages of the timer wheel delivered when they are due, in turns of the event loop.

A turn is a few milliseconds; between two turns everybody else is served. Progress is saved once a second,
by a thread of its own, and never ahead of the disk: first the commit log, then the timer log, the wheel,
the checkpoint. After a crash some messages are delivered once more, none is lost.
"""

import asyncio
import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.errors import StoreError
from orbitmq.store.timer.timer_store import FlushPlan, TimerStore
from orbitmq.units import SECOND_MS

logger = logging.getLogger(__name__)

ENQUEUE_COUNT: Final = 1024  # messages put into the wheel in one turn
DELIVER_COUNT: Final = 512  # messages delivered in one turn
RETRY_MS: Final = 100  # when the store takes nothing
CLEAN_MS: Final = 30 * SECOND_MS


class Timers:
    """The timer messages of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, store: TimerStore) -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        self.store = store
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="orbitmq-timers")
        self._plan: FlushPlan | None = None
        self._flushing: Future[None] | None = None
        self._running = False
        now_ms = self._clock.monotonic_ms()
        self._flush_at_ms, self._clean_at_ms = now_ms, now_ms + CLEAN_MS
        self._sampled = now_ms, store.enqueued, store.delivered
        self.rates = 0.0, 0.0
        """Messages a second that were put into the wheel, and delivered, when last looked at."""

    # --- running ---

    def start(self) -> None:
        """Begin to deliver."""
        self._running = True
        self._set_timer(0)

    def stop(self) -> None:
        """Deliver no more, and make what was delivered durable, with its progress."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._thread.shutdown(wait=True)
        self._flushed()
        if self._plan is not None:
            self.store.give_up(self._plan)
            self._plan = None
        try:
            self.store.flush_now()
        except StoreError as error:
            logger.warning("timer messages: progress is not saved, some come again: %s", error)
        self.store.close()

    def tick(self) -> None:
        """Do a piece of work, and come back when there is more."""
        try:
            handled = self.store.turn(ENQUEUE_COUNT, DELIVER_COUNT)
            self._care()
        except Exception:
            logger.exception("timer messages: a turn failed; it is tried again")
            handled = None
        if handled is None:
            self._set_timer(RETRY_MS)
        else:
            self._set_timer(0 if handled else self.store.wait_ms)

    def _set_timer(self, wait_ms: float) -> None:
        if self._running:
            self._timer = self._loop.call_later(wait_ms / 1000, self.tick)

    # --- saving ---

    def _care(self) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._flushing is not None:
            return
        if self._plan is None and now_ms >= self._flush_at_ms:
            self._flush_at_ms = now_ms + self._store.config.timer_flush_interval_ms
            self._sample(now_ms)
            self._plan = self.store.plan_flush()
        if self._plan is not None:
            self._flushing = self._thread.submit(self.store.flush, self._plan)
            self._flushing.add_done_callback(self._tell_loop)
        elif now_ms >= self._clean_at_ms:
            self._clean_at_ms = now_ms + CLEAN_MS
            self.store.clean()

    def _tell_loop(self, done: "Future[None]") -> None:
        """Called in the thread that flushed."""
        try:
            self._loop.call_soon_threadsafe(self._flushed)
        except RuntimeError:
            logger.debug("the loop is closed, nobody hears of the flush")

    def _flushed(self) -> None:
        """See what became of a flush that is over, if there is one."""
        if self._flushing is None or not self._flushing.done():
            return
        plan, error = self._plan, self._flushing.exception()
        self._plan = self._flushing = None
        if error is not None and plan is not None:
            logger.warning("timer messages: progress is not saved, tried again: %s", error)
            self.store.give_up(plan)

    def _sample(self, now_ms: float) -> None:
        before_ms, enqueued, delivered = self._sampled
        passed = max(1.0, now_ms - before_ms) / SECOND_MS
        counts = self.store.enqueued, self.store.delivered
        self.rates = (counts[0] - enqueued) / passed, (counts[1] - delivered) / passed
        self._sampled = now_ms, *counts
