"""Producer: send messages to topics, from any thread.

with Producer(namesrv="127.0.0.1:9876", group="demo") as producer:
    result = producer.send(Message("Orders", b"hello", tag="TagA", keys=["k1"]))
    future = producer.send_async(Message("Orders", b"hello"))
    producer.send_oneway(Message("Clicks", b"x"))
    producer.send_batch([Message("Orders", b"a"), Message("Orders", b"b")])
    producer.send(Message("Orders", b"step 2"), key="order-17")   # one queue for each key
    reply = producer.request(Message("Questions", b"how many?"), timeout_ms=3000)
"""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.producer import DEFAULT_GROUP, AsyncProducer, Selector, make_selector
from orbitmq.client.producer.send_result import SendResult
from orbitmq.client.producer.sending import QueueSelector, RetryRule
from orbitmq.client.producer.transaction import Checker
from orbitmq.client.sync.face import SyncClient, forward
from orbitmq.client.sync.light_future import LightFuture
from orbitmq.client.sync.transaction import Transaction
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
        checker: Checker | None = None,
        **settings: Any,
    ) -> None:
        """`checker` says what became of transactions that a broker asks about; a thread calls it."""
        inner = AsyncProducer(namesrv, group, config=config, checker=checker, **settings)
        super().__init__(inner)

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
        choice = make_selector(key, queue, selector)
        return self._start(message, self._inner.rule, timeout_ms, choice).result()

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
        return self._start(message, self._inner.async_rule, timeout_ms, choice)

    def _start(
        self,
        message: Message,
        rule: RetryRule,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> LightFuture[SendResult]:
        """Wait for room, and have the loop start the send."""
        loop, inner = self.opened_loop, self._inner
        engine = inner.engine
        request = engine.requests.single(message)
        if not engine.pending.has_room(loop.waiting_count):
            loop.run(inner.wait_for_room(timeout_ms))
        outcome: LightFuture[SendResult] = LightFuture(loop)
        loop.call(inner.sending(request, outcome, rule, timeout_ms, selector).start)
        return outcome

    def transaction(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        check_after_s: int | None = None,
    ) -> Transaction:
        """Return a transaction: `with` it; its end commits, an exception rolls back.

        See AsyncProducer.transaction.
        """
        inner = self._inner.transaction(
            message, key=key, queue=queue, selector=selector, check_after_s=check_after_s
        )
        return Transaction(self.opened_loop, inner)

    def request(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> ReceivedMessage:
        """Send, and wait for the reply of the consumer that handles it; see AsyncProducer.request."""
        return self.request_async(
            message, key=key, queue=queue, selector=selector, timeout_ms=timeout_ms
        ).result()

    def request_async(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> "Future[ReceivedMessage]":
        """Send a request; the future gets the reply. See AsyncProducer.request_async."""
        choice, loop = make_selector(key, queue, selector), self.opened_loop
        outcome: LightFuture[ReceivedMessage] = LightFuture(loop)
        loop.call(self._inner.requesting(message, outcome, timeout_ms, choice).start)
        return outcome

    reply = forward(AsyncProducer.reply)
    send_oneway = forward(AsyncProducer.send_oneway)
    send_batch = forward(AsyncProducer.send_batch)
    recall = forward(AsyncProducer.recall)
    queues = forward(AsyncProducer.queues)
    announce = forward(AsyncProducer.announce)
