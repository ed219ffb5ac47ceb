"""SendEngine: what all messages of one producer have in common on their way; see `sending`."""

import asyncio
import contextlib
from collections import deque

from orbitmq.client.core.core import ClientCore
from orbitmq.client.producer.faults import BrokerFaults, QueueChooser
from orbitmq.client.producer.lines import Lines
from orbitmq.client.producer.send_request import SendRequest
from orbitmq.client.producer.sending import Outcome, QueueSelector, RetryRule, Sending
from orbitmq.errors import ClientClosedError, RequestTimeoutError, WireError


class SendEngine:
    """Counts what is on its way and starts it. Belongs to the loop's thread."""

    def __init__(self, core: ClientCore) -> None:
        config = core.config
        self.clock, self.routes = core.clock, core.routes
        self.calls, self.channels, self.spawn = core.calls, core.channels, core.spawn
        self.try_timeout_ms = config.send_try_timeout_ms
        self.retry_when_not_flushed = config.retry_when_not_flushed
        self._faults = BrokerFaults(core.clock) if config.fault_avoidance else None
        self.chooser = QueueChooser(self._faults)
        self.lines = Lines()
        self._pending_max = config.pending_sends_max
        self._pending: set[Sending] = set()
        self._waiting: deque[asyncio.Future[None]] = deque()  # for room among the pending
        self._idle: asyncio.Future[None] | None = None
        self._new_topics: set[str] = set()

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def start(
        self,
        request: SendRequest,
        outcome: Outcome,
        rule: RetryRule,
        timeout_ms: float,
        selector: QueueSelector | None = None,
    ) -> None:
        """Send; the outcome gets a SendResult or an exception."""
        sending = Sending(self, request, outcome, rule, timeout_ms, selector)
        self._pending.add(sending)
        sending.start()

    def finished(self, sending: Sending) -> None:
        """Make room for the next one."""
        self._pending.discard(sending)
        if self._waiting and len(self._pending) < self._pending_max:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
        if self._idle is not None and not self._pending and not self._idle.done():
            self._idle.set_result(None)

    async def wait_for_room(self, timeout_ms: float) -> None:
        """Wait until fewer than the allowed number of messages are on their way."""
        until = self.clock.monotonic_ms() + timeout_ms
        while len(self._pending) >= self._pending_max:
            room: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(room)
            left_ms = until - self.clock.monotonic_ms()
            try:
                async with asyncio.timeout(max(left_ms, 0) / 1000):
                    await room
            except TimeoutError:
                what = f"{len(self._pending)} messages wait for answers already"
                raise RequestTimeoutError("", what, "Send more slowly.") from None

    def record(self, broker_name: str, started_ms: float, *, failed: bool = False) -> None:
        """Remember how fast a broker was, if slow ones are to be avoided."""
        if self._faults is not None:
            latency_ms = self.clock.monotonic_ms() - started_ms
            self._faults.record(broker_name, latency_ms, failed=failed)

    def stored(self, topic: str) -> None:
        """After the first message of a topic that did not exist: ask for its route, once."""
        route = self.routes.publish_route_nowait(topic)
        if route is not None and not route.created and topic not in self._new_topics:
            self._new_topics.add(topic)
            self.spawn(self._learn(topic))

    async def _learn(self, topic: str) -> None:
        with contextlib.suppress(WireError):  # the periodic refresh asks again
            await self.routes.refresh(topic)

    def closed_error(self) -> ClientClosedError:
        return ClientClosedError("the producer is closed: this message may not have been sent")

    async def drain(self, timeout_ms: float) -> None:
        """Wait until nothing is on its way; what is left after this time fails."""
        if self._pending:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle
            except TimeoutError:
                for sending in list(self._pending):
                    sending.abandon()
