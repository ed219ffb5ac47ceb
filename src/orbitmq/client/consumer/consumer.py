"""AsyncConsumer: read topics as a member of a group, in asyncio code.

async with AsyncConsumer("127.0.0.1:9876", group="demo", topics={"Orders": "TagA"}) as consumer:
    async for message in consumer:  # acknowledged when the next one is asked for
        print(message.body)         # an exception gives it back: it comes again later

async def handle(message):          # returns: acknowledged; raises: comes again later
    print(message.body)

async with AsyncConsumer("127.0.0.1:9876", group="demo", topics="Orders", handler=handle):
    await asyncio.sleep(60)
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from orbitmq.client.consumer.delivery import Deliveries, Delivery, settle_left
from orbitmq.client.consumer.handling import Handler, UserFunction, make_handler
from orbitmq.client.consumer.push_consumer import AsyncPushConsumer
from orbitmq.client.consumer.settings import Settings, StartWish, consumer_settings
from orbitmq.client.consumer.subscription import Expression
from orbitmq.client.core.config import ClientConfig
from orbitmq.clock import Clock
from orbitmq.errors import ClientClosedError, ClientError
from orbitmq.wire.bodies.message_queue import MessageQueue

Topics = str | Sequence[str] | Mapping[str, Expression]

ITERATING_WORKERS: Final = 8
"""How many messages wait for a loop's body at a time."""


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
            settings.setdefault("workers", ITERATING_WORKERS)
        self.settings = consumer_settings(
            namesrv, group, topics, orderly, broadcasting, start_from, config, settings
        )
        self._handler, self._clock = handler, clock
        self._ready: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._deliveries: Deliveries | None = None
        self._inner: AsyncPushConsumer | None = None

    # --- life ---

    async def open(self) -> Self:
        """Join the group; messages come from now on."""
        if self._inner is None:
            self._ready = asyncio.Queue()
            inner = push_consumer(self.settings, self._make_handler(), self._clock)
            await inner.start()
            self._inner = inner
        return self

    def _make_handler(self) -> Handler:
        if self._handler is not None:
            return make_handler(self._handler, batch=self.settings.consumer.batch_size > 1)
        self._deliveries = Deliveries(_AsyncSink(self._ready))
        return self._deliveries.handle

    async def close(self) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops over it end."""
        inner, self._inner = self._inner, None
        if inner is None:
            return
        if self._deliveries is not None:
            self._deliveries.close()
        self._ready.put_nowait(None)
        await inner.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._deliveries is not None:
            self._deliveries.close()
            self._deliveries.retry_taken()
        await self.close()

    # --- messages ---

    def __aiter__(self) -> AsyncIterator[Delivery]:
        require_no_handler(self._handler)
        require_open(self._inner)
        return _AsyncLoop(self)

    async def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message, None after the time or when closed. Settle it: ack() or retry()."""
        require_no_handler(self._handler)
        try:
            async with asyncio.timeout(timeout):
                while (delivery := await self._ready.get()) is not None:
                    if delivery.take():
                        return delivery
        except TimeoutError:
            return None
        self._ready.put_nowait(None)  # for the others who wait
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
        return require_open(self._inner).queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        require_open(self._inner).pause()

    def resume(self) -> None:
        require_open(self._inner).resume()


class _AsyncSink:
    def __init__(self, ready: "asyncio.Queue[Delivery | None]") -> None:
        self._ready = ready

    def put(self, delivery: Delivery) -> None:
        self._ready.put_nowait(delivery)


class _AsyncLoop:
    """One `async for` over a consumer."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer
        self._current: Delivery | None = None

    def __aiter__(self) -> "_AsyncLoop":
        return self

    async def __anext__(self) -> Delivery:
        if self._current is not None:
            self._current.ack()
            self._current = None
        delivery = await self._consumer.receive()
        if delivery is None:
            raise StopAsyncIteration
        self._current = delivery
        return delivery

    def __del__(self) -> None:
        settle_left(self._current, sys._getframe().f_back)


def push_consumer(settings: Settings, handler: Handler, clock: Clock | None) -> AsyncPushConsumer:
    """Return the consumer behind both faces."""
    return AsyncPushConsumer(
        settings.client, settings.consumer, handler, filters=settings.filters, clock=clock
    )


def require_open(inner: AsyncPushConsumer | None) -> AsyncPushConsumer:
    if inner is None:
        raise ClientClosedError(
            "the consumer is not open: use it inside `with`, or call open() first"
        )
    return inner


def require_no_handler(handler: UserFunction | None) -> None:
    if handler is not None:
        raise ClientError(
            "this consumer has a handler, which gets the messages: nothing to iterate"
        )
