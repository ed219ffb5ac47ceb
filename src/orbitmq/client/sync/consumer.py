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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from orbitmq.client.consumer.config import StartWish, Topics
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.consumer.delivery import Batch, Delivery, delivery_of
from orbitmq.client.consumer.handling import UserFunction, call_function, is_coroutine_function
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.rebalance.report import RebalanceListener
from orbitmq.client.sync.background_loop import BackgroundLoop
from orbitmq.client.sync.face import SyncClient
from orbitmq.client.trace.consume_tracer import ConsumeTracer
from orbitmq.clock import SystemClock
from orbitmq.wire.bodies.message_queue import MessageQueue


class Consumer(SyncClient[AsyncConsumer]):
    """A member of a group for any code: `AsyncConsumer` on the client thread. Any thread may use it.

    With a `handler` messages go there, in at most `workers` threads at a time; without one, iterate over
    the consumer. Several threads may do so. `on_rebalance` is called, in a thread, with a `RebalanceReport`
    whenever queues came or went.
    """

    noun = "consumer"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        handler: UserFunction | None = None,
        *,
        on_rebalance: RebalanceListener | None = None,
        orderly: bool = False,
        broadcasting: bool = False,
        start_from: StartWish = "last",
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        inner = AsyncConsumer(
            namesrv,
            group,
            topics,
            handler,
            on_rebalance=on_rebalance,
            orderly=orderly,
            broadcasting=broadcasting,
            start_from=start_from,
            config=config,
            **settings,
        )
        super().__init__(inner)
        self.settings = inner.settings
        self._ready: queue.SimpleQueue[Delivery | None] = queue.SimpleQueue()
        self._executor: ThreadPoolExecutor | None = None
        self._threads: HandlerThreads | None = None
        self._ended = threading.Event()

    # --- life ---

    def _open_on(self, loop: BackgroundLoop) -> None:
        """Join the group; messages come from now on."""
        self._ready, self._ended = queue.SimpleQueue(), threading.Event()
        try:
            self._serve_threads(loop)
            super()._open_on(loop)
        except BaseException:
            self._stop_threads()
            raise

    def _serve_threads(self, loop: BackgroundLoop) -> None:
        inner, config, call = self._inner, self.settings.consumer, self._call_of(loop)
        if inner.handler is None:
            inner.serve_threads(call, self._put_all, None)
            return
        name = f"orbitmq-{self.group}"
        if config.orderly or is_coroutine_function(inner.handler):
            self._executor = ThreadPoolExecutor(config.workers, thread_name_prefix=name)
            inner.serve_threads(call, None, self._executor)
        else:
            self._threads = HandlerThreads(
                inner.handler, config.workers, config.batch_size, name, inner.tracer
            )
            inner.serve_threads(call, self._threads.put, None)

    def _put_all(self, messages: list[Delivery]) -> None:
        put = self._ready.put
        for message in messages:
            put(message)

    def _call_of(self, loop: BackgroundLoop) -> Callable[[Callable[[], None]], None]:
        ended = self._ended

        def call(function: Callable[[], None]) -> None:
            if not ended.is_set():  # a message that is settled too late comes again
                loop.call(function)

        return call

    def _close_on(self, loop: BackgroundLoop, kind: type[BaseException] | None) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops and `wait` end."""
        self._ready.put(None)
        try:
            super()._close_on(loop, kind)
        finally:
            self._ended.set()
            self._stop_threads()

    def _stop_threads(self) -> None:
        # Handlers had their time; one that hangs must not keep the caller.
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)
        if self._threads is not None:
            self._threads.end()
        self._executor = self._threads = None

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the consumer is closed, from another thread or by Ctrl-C; False: time is over."""
        return self._ended.wait(timeout)

    # --- messages ---

    def __iter__(self) -> Iterator[Delivery]:
        self._inner.require_no_handler()
        self._require_open()
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
                taken_ms = now_ms()
                if not message.take(taken_ms):
                    continue
                if message._batch is not batch:
                    if batch is not None:
                        batch.held.notify()
                    batch = message._batch
                current = message
                yield message
                current = None
                message.finish(now_ms(), taken_ms)
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
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has at the moment."""
        self._require_open()
        return self._inner.queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        self.opened_loop.call(self._inner.pause)

    def resume(self) -> None:
        self.opened_loop.call(self._inner.resume)

    def _require_open(self) -> None:
        _ = self.opened_loop  # ClientClosedError


class HandlerThreads:
    """Threads that take messages, call a function with them and settle them by what it said."""

    def __init__(
        self,
        function: UserFunction,
        count: int,
        batch_size: int,
        name: str,
        tracer: ConsumeTracer | None = None,
    ) -> None:
        self._function, self._size, self._tracer = function, batch_size, tracer
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
        tracer = self._tracer
        call = None if tracer is None else tracer.before(messages)
        outcome = call_function(self._function, messages, self._size > 1)
        if tracer is not None:
            tracer.after(call, outcome)
        for message in outcome.failed:
            delivery_of(message).retry(level=outcome.level, suspend_ms=outcome.suspend_ms)
        batch.held.finish(messages, batch.held.monotonic_ms() - started_ms)
