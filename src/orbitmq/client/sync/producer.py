"""Producer: send messages to topics, from any thread.

with Producer(namesrv="127.0.0.1:9876", group="demo") as producer:
    result = producer.send(Message("Orders", b"hello", tag="TagA", keys=["k1"]))
    future = producer.send_async(Message("Orders", b"hello"))
    producer.send_oneway(Message("Clicks", b"x"))
    producer.send_batch([Message("Orders", b"a"), Message("Orders", b"b")])
    producer.send(Message("Orders", b"step 2"), key="order-17")   # one queue for each key
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message
from orbitmq.client.producer.producer import DEFAULT_GROUP, AsyncProducer, Selector, make_selector
from orbitmq.client.producer.send_result import SendResult
from orbitmq.client.producer.sending import QueueSelector, RetryRule
from orbitmq.client.sync.face import SyncClient, forward
from orbitmq.client.sync.light_future import LightFuture
from orbitmq.wire.bodies.message_queue import MessageQueue


class Producer(SyncClient[AsyncProducer]):
    """A producer for any code. Any thread may use it.

    Enter it with `with`, or call `open` and `close`. Sends wait when `pending_sends_max` messages are on
    their way.
    """

    noun = "producer"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = DEFAULT_GROUP,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(AsyncProducer(namesrv, group, config=config, **settings))

    @property
    def group(self) -> str:
        return self._inner.group

    # These two make the request in the caller's thread, and hand it over without a coroutine.

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
        loop, choice = self.opened_loop, make_selector(key, queue, selector)
        outcome: LightFuture[SendResult] = LightFuture(loop)
        loop.call(self._prepare(message, outcome, self._inner.rule, timeout_ms, choice))
        return outcome.result()

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
        loop, choice = self.opened_loop, make_selector(key, queue, selector)
        outcome: LightFuture[SendResult] = LightFuture(loop)
        loop.call(self._prepare(message, outcome, self._inner.async_rule, timeout_ms, choice))
        return outcome

    def _prepare(
        self,
        message: Message,
        outcome: LightFuture[SendResult],
        rule: RetryRule,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> Callable[[], None]:
        """Wait for room, and return what starts the send when the loop calls it."""
        loop, inner = self.opened_loop, self._inner
        request = inner.engine.requests.single(message)
        if not inner.has_room(loop.waiting_count):
            loop.run(inner.wait_for_room(timeout_ms))

        def start() -> None:
            try:
                inner.start(request, outcome, rule, timeout_ms, selector)
            except Exception as failure:
                outcome.set_exception(failure)

        return start

    send_oneway = forward(AsyncProducer.send_oneway)
    send_batch = forward(AsyncProducer.send_batch)
    queues = forward(AsyncProducer.queues)
