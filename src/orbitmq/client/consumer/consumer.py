"""AsyncConsumer: read topics as a member of a group, in asyncio code.

async with AsyncConsumer("127.0.0.1:9876", group="demo", topics={"Orders": "TagA"}) as consumer:
    async for message in consumer:  # acknowledged when the next one is asked for
        print(message.body)         # left by an exception, or by break: it comes again later

async def handle(message):          # returns: acknowledged; raises: comes again later
    print(message.body)

async with AsyncConsumer("127.0.0.1:9876", group="demo", topics="Orders", handler=handle):
    await asyncio.sleep(60)

A loop that is left takes no word back: what was taken last and not acknowledged comes again. Say
message.ack() before a `break` behind a message that is done with.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Self

from orbitmq.client.consumer.concurrent_consumption import Ready
from orbitmq.client.consumer.config import StartWish, consumer_settings
from orbitmq.client.consumer.delivery import Batch, Delivery
from orbitmq.client.consumer.handling import UserFunction, make_handler
from orbitmq.client.consumer.process_queue import Call, call_now
from orbitmq.client.consumer.push_consumer import AsyncPushConsumer
from orbitmq.client.consumer.subscription import Expression
from orbitmq.client.core.config import ClientConfig
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ClientClosedError, ClientError
from orbitmq.wire.bodies.message_queue import MessageQueue

Topics = str | Sequence[str] | Mapping[str, Expression]


def put_all(put: Callable[[Delivery], None]) -> Ready:
    """Return what puts messages into an inbox one by one."""

    def ready(messages: list[Delivery]) -> None:
        for message in messages:
            put(message)

    return ready


class AsyncConsumer:
    """A member of a group for asyncio code. Belongs to the loop in which it was opened.

    With a `handler` (a coroutine function, at most `workers` at a time) messages go there; without one,
    iterate over the consumer. Several tasks may do so.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        handler: UserFunction | None = None,
        *,
        orderly: bool = False,
        broadcasting: bool = False,
        start_from: StartWish = "last",
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        if handler is None:
            settings["batch_size"] = 1  # a loop gets one after the other
        self.settings = consumer_settings(
            namesrv, group, topics, orderly, broadcasting, start_from, config, settings
        )
        self.handler, self._clock = handler, clock
        self._inner: AsyncPushConsumer | None = None
        self._ready: asyncio.Queue[Delivery | None] = asyncio.Queue()

    # --- life ---

    async def open(self) -> Self:
        """Join the group; messages come from now on."""
        if self._inner is None:
            ready = self._ready = asyncio.Queue()
            await self.join(put_all(ready.put_nowait) if self.handler is None else None)
        return self

    async def join(
        self, ready: Ready | None, call: Call = call_now, executor: Executor | None = None
    ) -> None:
        """Join the group. `ready`: for those who take messages by themselves; else the handler gets them.

        Other threads come in by `call`; a handler that is no coroutine function runs in `executor`.
        """
        settings, handler = self.settings, None
        if self.handler is not None:
            batch = settings.consumer.batch_size > 1
            handler = make_handler(self.handler, batch=batch, executor=executor)
        inner = AsyncPushConsumer(
            settings.client,
            settings.consumer,
            handler,
            ready=ready,
            call=call,
            filters=settings.filters,
            clock=self._clock,
        )
        await inner.start()
        self._inner = inner

    async def close(self) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops over it end."""
        self._ready.put_nowait(None)
        await self.leave()

    async def leave(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            await inner.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._inner is not None:
            self._inner.retry_taken()
        await self.close()

    # --- messages ---

    def __aiter__(self) -> AsyncIterator[Delivery]:
        self.require_no_handler()
        self.opened()
        return _AsyncLoop(self._ready, self._clock or SystemClock())

    async def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message, None after the time or when closed. Settle it: ack() or retry()."""
        self.require_no_handler()
        loop = _AsyncLoop(self._ready, self._clock or SystemClock())
        try:
            async with asyncio.timeout(timeout):
                return await loop.take()
        except TimeoutError:
            return None

    # --- more ---

    @property
    def group(self) -> str:
        return self.settings.consumer.group

    @property
    def client_id(self) -> str:
        return self.settings.client.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has at the moment."""
        return self.opened().queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        self.opened().pause()

    def resume(self) -> None:
        self.opened().resume()

    def opened(self) -> AsyncPushConsumer:
        """Return the member itself. ClientClosedError: it is not open."""
        if self._inner is None:
            raise ClientClosedError(
                "the consumer is not open: use it inside `with`, or call open() first"
            )
        return self._inner

    def require_no_handler(self) -> None:
        if self.handler is not None:
            raise ClientError(
                "this consumer has a handler, which gets the messages: nothing to iterate"
            )


class _AsyncLoop:
    """One `async for` over a consumer."""

    def __init__(self, ready: "asyncio.Queue[Delivery | None]", clock: Clock) -> None:
        self._ready, self._now_ms = ready, clock.monotonic_ms
        self._current: Delivery | None = None
        self._batch: Batch | None = None

    def __aiter__(self) -> "_AsyncLoop":
        return self

    async def __anext__(self) -> Delivery:
        if self._current is not None:
            self._current.finish(self._now_ms())
            self._current = None
        self._current = await self.take()
        if self._current is None:
            raise StopAsyncIteration
        return self._current

    async def take(self) -> Delivery | None:
        """Return the next message that nobody has; None: the consumer is closed."""
        while True:
            if self._ready.empty():
                self._tell(None)
            message = await self._ready.get()
            if message is None:
                self._ready.put_nowait(None)  # for the others who wait
                self._tell(None)
                return None
            if message.take(self._now_ms()):
                self._tell(message._batch)
                return message

    def _tell(self, batch: Batch | None) -> None:
        """Let the queue know what is done with, once for a batch."""
        before, self._batch = self._batch, batch
        if before is not None and before is not batch:
            before.held.notify()

    def __del__(self) -> None:
        if self._current is not None:
            self._current.retry()
