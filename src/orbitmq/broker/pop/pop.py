"""Pop: the parts of pop consumption of one broker, and what they do beside requests."""

import asyncio
import logging
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.pop.engine import PopEngine
from orbitmq.broker.pop.order_timers import OrderTimers
from orbitmq.broker.pop.polls import PopPolls
from orbitmq.broker.pop.revive import ReviveService
from orbitmq.wire.bodies.topic_config import TopicConfig

logger = logging.getLogger(__name__)

TICK_MS: Final = 100
"""How often it is looked whether consumer offsets may move on, or check points have waited long enough."""


class Pop:
    """Engine, long polls and services. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._clock = context, context.clock
        self.engine = PopEngine(context)
        self.polls = PopPolls(context)
        self.notices = PopPolls(context, newest_first=True)
        self.revive = ReviveService(context, self.engine)
        self._order_timers = OrderTimers(context, self.engine, (self.polls, self.notices))
        self._revive_ms = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running = False
        context.topics.on_change.append(self._on_topic)

    def _on_topic(self, topic: str, config: TopicConfig | None) -> None:
        if config is None:
            self.engine.forget_topic(topic)

    def start(self) -> None:
        """Begin; what an earlier run left is worked through."""
        self._running = True
        self._order_timers.start()
        self._set_timer(0)

    def stop(self) -> None:
        """Write what is only in memory, and make it durable, so that offsets can be saved."""
        self._running = False
        self._order_timers.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.engine.buffer.write_due(everything=True)
        if not self.engine.progress.is_settled:
            self._context.store.wait_flushed()
        self.engine.progress.settle_all()

    def tick(self) -> None:
        """Do what is due, and come back."""
        wait_ms = float(TICK_MS)
        try:
            self.engine.buffer.write_due()
            self.engine.progress.settle_all()
            self.revive.look()
            now_ms = self._clock.monotonic_ms()
            if now_ms >= self._revive_ms:
                more = self.revive.tick()
                self._revive_ms = now_ms + (0 if more else self._context.config.revive_ms)
                wait_ms = 0 if more else wait_ms
        except Exception:
            logger.exception("pop: failed; it is tried again")
        self._set_timer(wait_ms)

    def _set_timer(self, wait_ms: float) -> None:
        if self._running:
            self._timer = self._context.loop.call_later(wait_ms / 1000, self.tick)
