"""Consumer: read topics as a member of a group, in any code.

with Consumer(namesrv="127.0.0.1:9876", group="demo", topics={"Orders": "TagA || TagB"}) as consumer:
    for message in consumer:      # acknowledged when the next one is asked for
        print(message.body)       # left by an exception, or by break: it comes again later

def handle(message):              # returns: acknowledged; raises: comes again later
    print(message.body)

with Consumer(namesrv="127.0.0.1:9876", group="demo", topics="Orders", handler=handle) as consumer:
    consumer.wait()               # until close() or Ctrl-C; handlers run in 20 threads

Say message.ack() before a `break` behind a message that is done with; otherwise it comes again.
"""

import queue
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from orbitmq.client.consumer.config import StartWish
from orbitmq.client.consumer.consumer import AsyncConsumer, Topics, put_all
from orbitmq.client.consumer.delivery import Batch, Delivery, delivery_of
from orbitmq.client.consumer.handling import UserFunction, call_function, is_coroutine_function
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.clock import SystemClock
from orbitmq.wire.bodies.message_queue import MessageQueue


class Consumer:
    """A member of a group for any code: `AsyncConsumer` on the client thread. Any thread may use it.

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
        self._inner = AsyncConsumer(
            namesrv,
            group,
            topics,
            handler,
            orderly=orderly,
            broadcasting=broadcasting,
            start_from=start_from,
            config=config,
            **settings,
        )
        self.settings = self._inner.settings
        self._ready: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._loop: BackgroundLoop | None = None
        self._executor: ThreadPoolExecutor | None = None
        self._threads: HandlerThreads | None = None
        self._ended = threading.Event()

    # --- life ---

    def open(self) -> Self:
        """Join the group; messages come from now on."""
        if self._loop is None:
            self._ready, self._ended = queue.SimpleQueue(), threading.Event()
            loop = acquire_loop()
            try:
                loop.run(self._join(loop))
            except BaseException:
                self._stop_threads()
                release_loop()
                raise
            self._loop = loop
        return self

    def _join(self, loop: BackgroundLoop) -> Coroutine[Any, Any, None]:
        handler, config, call = self._inner.handler, self.settings.consumer, self._call_of(loop)
        if handler is None:
            return self._inner.join(put_all(self._ready.put), call)
        name = f"orbitmq-{self.group}"
        if config.orderly or is_coroutine_function(handler):
            self._executor = ThreadPoolExecutor(config.workers, thread_name_prefix=name)
            return self._inner.join(None, call, self._executor)
        threads = HandlerThreads(handler, config.workers, config.batch_size, name)
        self._threads = threads
        return self._inner.join(threads.put, call)

    def _call_of(self, loop: BackgroundLoop) -> Callable[[Callable[[], None]], None]:
        ended = self._ended

        def call(function: Callable[[], None]) -> None:
            if not ended.is_set():  # a message that is settled too late comes again
                loop.call(function)

        return call

    def close(self) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops and `wait` end."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        self._ready.put(None)
        try:
            loop.run(self._inner.leave())
        finally:
            self._ended.set()
            self._stop_threads()
            release_loop()

    def _stop_threads(self) -> None:
        # Handlers had their time; one that hangs must not keep the caller.
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        if self._threads is not None:
            self._threads.end()
        self._executor = self._threads = None

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._loop is not None:
            self._loop.call(self._inner.opened().retry_taken)
        self.close()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is closed, from another thread or by Ctrl-C; False: time is over."""
        return self._ended.wait(timeout)

    # --- messages ---

    def __iter__(self) -> Iterator[Delivery]:
        self._inner.require_no_handler()
        self._inner.opened()
        return self._take_all()

    def _take_all(self) -> Iterator[Delivery]:
        # Every message of every loop goes through here: it is counted in nanoseconds.
        ready, now_ms = self._ready, SystemClock().monotonic_ms
        current = batch = None
        try:
            while True:
                try:
                    message = ready.get_nowait()
                except queue.Empty:
                    if batch is not None:
                        batch.held.notify()
                    message = ready.get()
                if message is None:
                    ready.put(None)  # for the other threads that wait
                    return
                if not message.take(now_ms()):
                    continue
                if message._batch is not batch:
                    if batch is not None:
                        batch.held.notify()
                    batch = message._batch
                current = message
                yield message
                current = None
                message.finish(now_ms())
        finally:
            # Left by break, return or an exception, which cannot be told apart: it comes again.
            if current is not None:
                current.retry()
            if batch is not None:
                batch.held.notify()

    def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message, None after the time or when closed. Settle it: ack() or retry()."""
        self._inner.require_no_handler()
        try:
            while (message := self._ready.get(timeout=timeout)) is not None:
                if message.take(SystemClock().monotonic_ms()):
                    return message
        except queue.Empty:
            return None
        self._ready.put(None)  # for the other threads that wait
        return None

    # --- more ---

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has at the moment."""
        return self._inner.queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        self._call(self._inner.opened().pause)

    def resume(self) -> None:
        self._call(self._inner.opened().resume)

    def _call(self, function: Callable[[], None]) -> None:
        if self._loop is not None:
            self._loop.call(function)


class HandlerThreads:
    """Threads that take messages, call a function with them and settle them by what it said."""

    def __init__(self, function: UserFunction, count: int, batch_size: int, name: str) -> None:
        self._function, self._size = function, batch_size
        self._jobs: queue.SimpleQueue[list[Delivery] | None] = queue.SimpleQueue()
        for number in range(count):
            threading.Thread(target=self._work, name=f"{name}_{number}", daemon=True).start()

    def put(self, messages: list[Delivery]) -> None:
        """Have messages of one queue handled."""
        for at in range(0, len(messages), self._size):
            self._jobs.put(messages[at : at + self._size])

    def end(self) -> None:
        """Let each thread end when it is done with what it has."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (messages := self._jobs.get()) is not None:
            batch = messages[0]._batch
            if batch is not None and batch.held.begin(messages):
                self._handle(messages, batch)
        self._jobs.put(None)  # for the other threads

    def _handle(self, messages: list[Delivery], batch: Batch) -> None:
        started_ms = batch.held.monotonic_ms()
        outcome = call_function(self._function, messages, self._size > 1)
        for message in outcome.failed:
            delivery_of(message).retry(level=outcome.level, suspend_ms=outcome.suspend_ms)
        batch.held.finish(messages, batch.held.monotonic_ms() - started_ms)
