"""SendEngine: what all messages of one producer have in common on their way; see `sending`."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from orbitmq.client.core.core import ClientCore
from orbitmq.client.producer.faults import BrokerFaults, QueueChooser
from orbitmq.client.producer.send_request import RequestMaker, SendRequest
from orbitmq.errors import ClientClosedError, RequestTimeoutError, WireError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.command import Encoding
from orbitmq.wire.frame import encode_command

if TYPE_CHECKING:
    from orbitmq.client.trace.send_tracer import SendTracer

Step = Callable[[], None]


class SingleFlight:
    """One question at a time for each key; who wants the same answer waits, in order. Of the loop."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Step]] = {}

    def join(self, key: str, step: Step) -> bool:
        """Wait behind those who wait already; False if nobody does."""
        line = self.waiting.get(key)
        if line is None:
            return False
        line.append(step)
        return True

    def begin(self, key: str) -> None:
        """Ask, as the first; `end` has to follow, however the question ends."""
        self.waiting.setdefault(key, [])

    def end(self, key: str) -> None:
        """Let everybody go on, in order. One of them may ask again; the rest then waits for that."""
        for step in self.waiting.pop(key, []):
            step()


class Abandonable(Protocol):
    """Something on its way."""

    def abandon(self) -> None:
        """End it now."""


class PendingSends:
    """What is on its way, and who waits for room among it: the one back-pressure. Of the loop's thread."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._sends: set[Abandonable] = set()
        self.add: Callable[[Abandonable], None] = self._sends.add
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._idle: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._sends)

    def remove(self, sending: Abandonable) -> None:
        """Make room for the next one."""
        self._sends.discard(sending)
        if self._waiting and len(self._sends) < self._count_max:
            self._let_in()
        if self._idle is not None and not self._sends and not self._idle.done():
            self._idle.set_result(None)

    def _let_in(self) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():  # else its time is over: the next one
                waiting.set_result(None)
                return

    def has_room(self, more: int = 0) -> bool:
        """Return whether another one may be on its way beside these `more`."""
        return len(self._sends) + more < self._count_max

    async def wait_for_room(self, timeout_ms: float) -> None:
        """Wait until fewer than the allowed number are on their way. RequestTimeoutError."""
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_ms / 1000
        while not self.has_room():
            room: asyncio.Future[None] = loop.create_future()
            self._waiting.append(room)
            try:
                async with asyncio.timeout_at(until):
                    await room
            except TimeoutError:
                what = f"{len(self._sends)} messages wait for answers already"
                raise RequestTimeoutError("", what, "Send more slowly.") from None

    async def drain(self, timeout_ms: float) -> None:
        """Wait until nothing is on its way; what is left after this time fails."""
        if self._sends:
            self._idle = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._idle
            except TimeoutError:
                for sending in list(self._sends):
                    sending.abandon()


class SendEngine:
    """Where messages go and how. Belongs to the loop's thread."""

    def __init__(
        self, core: ClientCore, requests: RequestMaker, tracer: "SendTracer | None" = None
    ) -> None:
        config, self.tracer = core.config, tracer
        self.clock, self.routes = core.clock, core.routes
        self.calls, self.channels, self.spawn = core.calls, core.channels, core.spawn
        self.try_timeout_ms = config.send_try_timeout_ms
        self.retry_when_not_flushed = config.retry_when_not_flushed
        self.faults = BrokerFaults(core.clock) if config.fault_avoidance else None
        self.chooser = QueueChooser(self.faults)
        self.requests = requests
        self.route_flights, self.connection_flights = SingleFlight(), SingleFlight()
        self.pending = PendingSends(config.pending_sends_max)
        has_templates = config.encoding is Encoding.JSON and not config.access_key
        self.frame = requests.frame if has_templates else self._frame
        self._new_topics: set[str] = set()

    def _frame(self, request: SendRequest, queue: MessageQueue, opaque: int) -> bytes:
        """Return the frame of a request to this queue, in our encoding, signed where keys are set."""
        fields = self.requests.fields(request, queue)
        command = self.calls.command(request.code, fields, request.body)
        command.opaque = opaque
        return encode_command(command)

    def record(self, broker_name: str, started_ms: float, *, failed: bool = False) -> None:
        """Remember how fast a broker was, if slow ones are to be avoided."""
        if self.faults is not None:
            latency_ms = self.clock.monotonic_ms() - started_ms
            self.faults.record(broker_name, latency_ms, failed=failed)

    def learn(self, topic: str) -> None:
        """After the first message of a topic that did not exist: ask for its route, once."""
        route = self.routes.publish_route_nowait(topic)
        if route is not None and not route.created and topic not in self._new_topics:
            self._new_topics.add(topic)
            self.spawn(self._ask_for_route(topic))

    async def _ask_for_route(self, topic: str) -> None:
        with contextlib.suppress(WireError):  # the periodic refresh asks again
            await self.routes.refresh(topic)

    def closed_error(self) -> ClientClosedError:
        return ClientClosedError("the producer is closed: this message may not have been sent")
