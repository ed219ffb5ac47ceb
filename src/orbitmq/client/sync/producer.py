"""Producer: send messages to topics, from any thread.

with Producer(namesrv="127.0.0.1:9876", group="demo") as producer:
    result = producer.send(Message("Orders", b"hello", tag="TagA", keys=["k1"]))
    future = producer.send_async(Message("Orders", b"hello"))
    producer.send_oneway(Message("Clicks", b"x"))
    producer.send_batch([Message("Orders", b"a"), Message("Orders", b"b")])
    producer.send(Message("Orders", b"step 2"), key="order-17")   # one queue for each key
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.producer.producer import DEFAULT_GROUP, AsyncProducer, Selector, make_selector
from orbitmq.client.producer.send_request import RequestMaker, SendRequest
from orbitmq.client.producer.send_result import SendResult, batch_results
from orbitmq.client.producer.sending import QueueSelector, RetryRule
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.client.sync.light_future import LightFuture
from orbitmq.errors import ClientClosedError, RequestTimeoutError
from orbitmq.wire.bodies.message_queue import MessageQueue


class Producer:
    """A producer for any code. Any thread may use it.

    Enter it with `with`, or call `open` and `close`. `send_async` waits when `pending_sends_max`
    messages are on their way.
    """

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = DEFAULT_GROUP,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        self._inner = AsyncProducer(namesrv, group, config=config, **settings)
        self._config = self._inner.config
        self._rule = RetryRule(1 + self._config.retries)
        self._async_rule = RetryRule(1 + self._config.async_retries, frozenset())
        self._loop: BackgroundLoop | None = None

    # --- life ---

    @property
    def group(self) -> str:
        return self._inner.group

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._loop is None:
            loop = acquire_loop()
            try:
                loop.run(self._inner.open())
            except BaseException:
                release_loop()
                raise
            self._loop = loop
        return self

    def close(self) -> None:
        """Wait for what is on its way, leave the group and close the connections."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run(self._inner.close())
        finally:
            release_loop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _opened(self) -> BackgroundLoop:
        if self._loop is None:
            raise ClientClosedError(
                "the producer is not open: use it inside `with`, or call open() first"
            )
        return self._loop

    # --- sending ---

    def send(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored it; see AsyncProducer.send."""
        choice = make_selector(key, queue, selector)
        request = self._requests().single(message)
        return self._start(request, self._rule, timeout_ms, choice).result()

    def send_async(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> "Future[SendResult]":
        """Send; the future gets the result. See AsyncProducer.send_async."""
        choice = make_selector(key, queue, selector)
        request = self._requests().single(message)
        return self._start(request, self._async_rule, timeout_ms, choice)

    def send_oneway(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without an answer: fast, and nobody knows whether it was stored."""
        work = self._inner.send_oneway(message, key=key, queue=queue, selector=selector)
        self._opened().run(work)

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in one request; return the result of each."""
        request = self._requests().batch(messages)
        choice = make_selector(key, queue, None)
        result = self._start(request, self._rule, timeout_ms, choice).result()
        return batch_results(result, request.message_ids or [])

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic to which messages may be sent, in the order of selectors."""
        return self._opened().run(self._inner.queues(topic))

    def _requests(self) -> RequestMaker:
        self._opened()
        return self._inner.request_maker

    def _start(
        self,
        request: SendRequest,
        rule: RetryRule,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> "Future[SendResult]":
        loop, inner = self._opened(), self._inner
        timeout = self._config.send_timeout_ms if timeout_ms is None else timeout_ms
        if self._pending_count(loop) >= self._config.pending_sends_max:
            self._wait_for_room(loop, timeout)
        outcome: Future[SendResult] = LightFuture()
        loop.call(lambda: inner.start_prepared(request, outcome, rule, timeout, selector))
        return outcome

    def _pending_count(self, loop: BackgroundLoop) -> int:
        return self._inner.pending_count + loop.waiting_count

    def _wait_for_room(self, loop: BackgroundLoop, timeout_ms: float) -> None:
        # Looking again every millisecond costs less than telling every sender of every answer.
        until = time.monotonic() + timeout_ms / 1000
        while self._pending_count(loop) >= self._config.pending_sends_max:
            if time.monotonic() > until:
                what = f"{self._pending_count(loop)} messages wait for answers already"
                raise RequestTimeoutError("", what, "Send more slowly.")
            time.sleep(0.001)
