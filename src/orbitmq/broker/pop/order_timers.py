"""OrderTimers: who waits for an ordered queue is told when it is free."""

import asyncio
from collections.abc import Sequence

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.engine import PopEngine
from orbitmq.broker.pop.polls import PopPolls
from orbitmq.broker.pop.progress import QueueKey


class OrderTimers:
    """One timer for each blocked queue. Belongs to the event loop's thread."""

    def __init__(
        self, context: BrokerContext, engine: PopEngine, polls: Sequence[PopPolls]
    ) -> None:
        self._context, self._clock = context, context.clock
        self._engine, self._polls = engine, polls
        self._timers: dict[QueueKey, asyncio.TimerHandle] = {}
        engine.on_order_change.append(self.set)

    def start(self) -> None:
        """Set a timer for each queue that an earlier run left blocked."""
        for key in self._engine.order.queues():
            self.set(key)

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def set(self, key: QueueKey) -> None:
        """Tell those who wait for this queue when it is free, perhaps at once."""
        old = self._timers.pop(key, None)
        if old is not None:
            old.cancel()
        info = self._engine.order.get(key)
        free_ms = info.free_ms() if info is not None else 0
        wait_ms = free_ms - self._clock.now_ms()
        if wait_ms > 0 and self._context.config.pop_order_notify:
            self._timers[key] = self._context.loop.call_later(wait_ms / 1000, self.wake, key)
        elif wait_ms <= 0:
            self._context.loop.call_soon(self.wake, key)

    def wake(self, key: QueueKey) -> None:
        """Try those who wait for this queue."""
        self._timers.pop(key, None)
        group, topic, queue_id = key
        for polls in self._polls:
            polls.wake_queue(group, topic, queue_id)
