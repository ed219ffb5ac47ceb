"""Consumer: read topics as a member of a group, in any code.

with Consumer(namesrv="127.0.0.1:9876", group="demo", topics={"Orders": "TagA || TagB"}) as consumer:
    for message in consumer:      # acknowledged when the next one is asked for
        print(message.body)       # an exception gives it back: it comes again later

def handle(message):              # returns: acknowledged; raises: comes again later
    print(message.body)

with Consumer(namesrv="127.0.0.1:9876", group="demo", topics="Orders", handler=handle) as consumer:
    consumer.wait()               # until close() or Ctrl-C; handlers run in 20 threads
"""

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from orbitmq.client.consumer.consumer import (
    ITERATING_WORKERS,
    Topics,
    push_consumer,
    require_no_handler,
    require_open,
)
from orbitmq.client.consumer.delivery import Deliveries, Delivery, settle_left
from orbitmq.client.consumer.handling import Handler, UserFunction, make_handler
from orbitmq.client.consumer.push_consumer import AsyncPushConsumer
from orbitmq.client.consumer.settings import StartWish, consumer_settings
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.wire.bodies.message_queue import MessageQueue


class Consumer:
    """A member of a group for any code. Any thread may use it.

    With a `handler` messages go there, in at most `workers` threads at a time; without one, iterate over
    the consumer. Several threads may do so.
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
        **settings: Any,
    ) -> None:
        if handler is None:
            settings.setdefault("workers", ITERATING_WORKERS)
        self.settings = consumer_settings(
            namesrv, group, topics, orderly, broadcasting, start_from, config, settings
        )
        self._handler = handler
        self._ready: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._deliveries: Deliveries | None = None
        self._inner: AsyncPushConsumer | None = None
        self._loop: BackgroundLoop | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._ended = threading.Event()

    # --- life ---

    def open(self) -> Self:
        """Join the group; messages come from now on."""
        if self._inner is None:
            self._ready, self._ended = queue.SimpleQueue(), threading.Event()
            loop = acquire_loop()
            try:
                self._inner = loop.run(self._start(loop))
            except BaseException:
                self._stop_threads()
                release_loop()
                raise
            self._loop = loop
        return self

    async def _start(self, loop: BackgroundLoop) -> AsyncPushConsumer:
        inner = push_consumer(self.settings, self._make_handler(loop), None)
        await inner.start()
        return inner

    def _make_handler(self, loop: BackgroundLoop) -> Handler:
        config = self.settings.consumer
        if self._handler is None:
            ended = self._ended

            def call(function: Callable[[], None]) -> None:
                if not ended.is_set():
                    loop.call(function)

            self._deliveries = Deliveries(self._ready, call)
            return self._deliveries.handle
        name = f"orbitmq-{config.group}"
        self._threads = ThreadPoolExecutor(config.workers, thread_name_prefix=name)
        return make_handler(self._handler, batch=config.batch_size > 1, executor=self._threads)

    def close(self) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops and `wait` end."""
        loop, self._loop = self._loop, None
        inner, self._inner = self._inner, None
        if loop is None or inner is None:
            return
        try:
            loop.run(self._stop(inner))
        finally:
            self._ended.set()
            self._stop_threads()
            release_loop()

    async def _stop(self, inner: AsyncPushConsumer) -> None:
        if self._deliveries is not None:
            self._deliveries.close()
        self._ready.put(None)
        await inner.close()

    def _stop_threads(self) -> None:
        if self._threads is not None:
            # Handlers had their time; one that hangs must not keep the caller.
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._deliveries is not None and self._loop is not None:
            self._loop.call(self._deliveries.close)
            self._loop.call(self._deliveries.retry_taken)
        self.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is closed, from another thread or by Ctrl-C; False: time is over."""
        return self._ended.wait(timeout)

    # --- messages ---

    def __iter__(self) -> Iterator[Delivery]:
        require_no_handler(self._handler)
        require_open(self._inner)
        return _Loop(self)

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message, None after the time or when closed. Settle it: ack() or retry()."""
        require_no_handler(self._handler)
        try:
            while (delivery := self._ready.get(timeout=timeout)) is not None:
                if delivery.take():
                    return delivery
        except queue.Empty:
            return None
        self._ready.put(None)  # for the other threads that wait
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
        self._call(require_open(self._inner).pause)

    def resume(self) -> None:
        self._call(require_open(self._inner).resume)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call(function)


class _Loop:
    """One `for` over a consumer."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._current: Delivery | None = None

    def __iter__(self) -> "_Loop":
        return self

    def __next__(self) -> Delivery:
        if self._current is not None:
            self._current.ack()
            self._current = None
        delivery = self._consumer.receive()
        if delivery is None:
            raise StopIteration
        self._current = delivery
        return delivery

    def __del__(self) -> None:
        settle_left(self._current, sys._getframe().f_back)
