"""AsyncProducer: send messages to topics, from asyncio code.

async with AsyncProducer(namesrv="127.0.0.1:9876", group="demo") as producer:
    result = await producer.send(Message("Orders", b"hello", tag="TagA", keys=["k1"]))
    futures = [producer.send_async(Message("Orders", b"hello")) for _ in range(1000)]
    results = await asyncio.gather(*futures)
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from orbitmq.client.core.config import ClientConfig, config_of
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.life import AsyncClient
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.core.name_rules import require_group
from orbitmq.client.core.route_cache import PublishRoute
from orbitmq.client.producer.faults import queue_by_key
from orbitmq.client.producer.request_reply import Requesting, Requests, reply_message, send_reply
from orbitmq.client.producer.send_engine import SendEngine
from orbitmq.client.producer.send_request import RequestMaker, SendRequest
from orbitmq.client.producer.send_result import SendResult, batch_results
from orbitmq.client.producer.sending import Outcome, QueueSelector, RetryRule, Sending
from orbitmq.client.producer.transaction import AsyncTransaction, Checker, Transactions
from orbitmq.client.producer.unique_id import unique_ids
from orbitmq.client.trace.send_tracer import SendTracer
from orbitmq.client.trace.writer import PRODUCE, TraceWriter, trace_config, trace_group
from orbitmq.clock import Clock
from orbitmq.errors import FormatError, InvalidMessageError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.headers.recall import RecallHandle, RecallHeader

DEFAULT_GROUP: Final = "orbitmq-producer"
INNER_PRODUCER: Final = "CLIENT_INNER_PRODUCER"
"""The group under which consumers send messages to their retry topic."""

Selector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of the queues of a topic, which come sorted by broker name and queue id."""


def make_selector(
    key: str | int | None, queue: MessageQueue | None, selector: Selector | None
) -> QueueSelector | None:
    """Return how the queue is chosen; None: in turn."""
    if key is None and queue is None and selector is None:
        return None
    if (key is not None) + (queue is not None) + (selector is not None) > 1:
        raise InvalidMessageError("give only one of key, queue and selector")
    if key is not None:
        return lambda route: queue_by_key(route.queues, key)
    if queue is not None:
        return lambda route: queue
    assert selector is not None
    return lambda route: _selected(selector, route)


def _selected(selector: Selector, route: PublishRoute) -> MessageQueue:
    queue = selector(route.queues)
    if not isinstance(queue, MessageQueue):
        raise InvalidMessageError("the selector must return one of the queues that it was given")
    return queue


class AsyncProducer(AsyncClient):
    """A producer for asyncio code. Belongs to the loop in which it was opened.

    Enter it with `async with`, or call `open` and `close`. Any number of sends may be on their way;
    `pending_sends_max` of them at once, the next ones wait.
    """

    noun = "producer"
    _engine: SendEngine  # of the last `open`
    _requests: Requests

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = DEFAULT_GROUP,
        *,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        checker: Checker | None = None,
        **settings: Any,
    ) -> None:
        """`checker` says what became of transactions that a broker asks about."""
        require_group(group)
        super().__init__(config_of(namesrv, config, settings), clock)
        self._group = group
        self.rule = RetryRule(1 + self._config.retries)
        self.async_rule = RetryRule(1 + self._config.async_retries, frozenset())
        self._traces = trace_writer(self._config, group, PRODUCE)
        self._transactions = Transactions(self, checker)

    @classmethod
    def on_core(cls, core: ClientCore, group: str) -> "AsyncProducer":
        """Return an open producer on a core that somebody else keeps."""
        producer = cls(group=group, config=core.config, trace=False)
        producer._core, producer._owns_core = core, False
        producer._use(core)
        return producer

    # --- life ---

    @property
    def group(self) -> str:
        return self._group

    @property
    def config(self) -> ClientConfig:
        return self._config

    async def _start(self, core: ClientCore) -> None:
        self._use(core)
        if self._traces is not None:
            await self._traces.open()

    def _use(self, core: ClientCore) -> None:
        core.add_producer(self)
        ids = unique_ids(core.config.client_ip)
        requests = RequestMaker(self._group, core.config, ids, core.clock)
        tracer = SendTracer(self._group, self._traces, core.clock) if self._traces else None
        self._engine = SendEngine(core, requests, tracer)
        self._requests = Requests(self, core)

    async def _stop(self, core: ClientCore) -> None:
        """Wait for what is on its way, and leave the group."""
        self._requests.close()
        await self._engine.pending.drain(self._config.send_timeout_ms)
        await self._transactions.stop()
        if self._traces is not None:
            await self._traces.close()
        await core.remove_producer(self)

    @property
    def engine(self) -> SendEngine:
        """What sends of this producer share. ClientClosedError: it is not open."""
        if self._core is None:
            self.require_open()
        return self._engine

    # --- sending ---

    async def send(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored it; retried on another broker.

        `key`: all messages with the same key go to the same queue, in order, without retries.
        NoRouteError, InvalidMessageError, SendFailedError, ResponseError, RequestTimeoutError.
        """
        choice = make_selector(key, queue, selector)
        request = self.engine.requests.single(message)
        return await self.send_request(request, self.rule, timeout_ms, choice)

    def send_async(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> "asyncio.Future[SendResult]":
        """Send at once; the future gets the result. The fastest way: `await asyncio.gather(*futures)`.

        Retried on another broker only when there was no answer. Nothing limits how many are on their
        way: wait for some of them now and then.
        """
        choice = make_selector(key, queue, selector)
        request = self.engine.requests.single(message)
        outcome: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.sending(request, outcome, self.async_rule, timeout_ms, choice).start()
        return outcome

    async def send_oneway(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
    ) -> None:
        """Send without an answer: fast, and nobody knows whether it was stored."""
        engine, choice = self.engine, make_selector(key, queue, selector)
        request = engine.requests.single(message)
        route = await engine.routes.publish_route(message.topic)
        chosen = engine.chooser.choose(route) if choice is None else choice(route)
        address = engine.routes.primary(chosen.broker_name)
        if address is None:
            raise engine.routes.no_route(request.topic)
        fields = engine.requests.fields(request, chosen)
        await engine.calls.oneway(engine.calls.vip(address), request.code, fields, request.body)

    async def send_batch(
        self,
        messages: Sequence[Message],
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        timeout_ms: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in one request; return the result of each.

        They are stored one behind the other in one queue. Larger amounts: `split_batch`.
        """
        choice = make_selector(key, queue, None)
        request = self.engine.requests.batch(messages)
        result = await self.send_request(request, self.rule, timeout_ms, choice)
        return batch_results(result, request.message_ids or [])

    def transaction(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        check_after_s: int | None = None,
    ) -> AsyncTransaction:
        """Return a transaction: `async with` it; its end commits, an exception rolls back.

        `check_after_s`: a broker asks the checker so much later at the earliest, and takes no end without
        having asked from then on (6 s, if its settings do not say otherwise).
        """
        choice = make_selector(key, queue, selector)
        return self._transactions.transaction(message, choice, check_after_s)

    async def send_request(
        self,
        request: SendRequest,
        rule: RetryRule,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> SendResult:
        """Send what was made already, when there is room for it, and wait for the answer."""
        if not self.engine.pending.has_room():
            await self.wait_for_room(timeout_ms)
        outcome: asyncio.Future[SendResult] = asyncio.get_running_loop().create_future()
        self.sending(request, outcome, rule, timeout_ms, selector).start()
        return await outcome

    # --- requests and replies ---

    async def request(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> ReceivedMessage:
        """Send, and wait for the reply of the consumer that handles it; see `reply` and `replies`.

        RequestTimeoutError: no reply came in this time; whether anybody handles the request is not known.
        """
        return await self.request_async(
            message, key=key, queue=queue, selector=selector, timeout_ms=timeout_ms
        )

    def request_async(
        self,
        message: Message,
        *,
        key: str | int | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        timeout_ms: float | None = None,
    ) -> "asyncio.Future[ReceivedMessage]":
        """Send a request at once; the future gets the reply."""
        choice = make_selector(key, queue, selector)
        outcome: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
        self.requesting(message, outcome, timeout_ms, choice).start()
        return outcome

    async def reply(
        self, request: ReceivedMessage, reply: bytes | Message, *, timeout_ms: float | None = None
    ) -> SendResult:
        """Send the reply to a request: a body, or what `reply_message` made of it.

        ResponseError, SendFailedError: who asked did not get it (`code` 1: it is gone).
        """
        message = reply if isinstance(reply, Message) else reply_message(request, reply)
        return await send_reply(self, request, message, timeout_ms)

    async def recall(self, topic: str, handle: str) -> str:
        """Take back a message that waits for its time (`SendResult.recall_handle`); return its id.

        InvalidMessageError: that is no handle. ResponseError: it is due, or the broker does not allow it
        (recallMessageEnable).
        """
        try:
            named = RecallHandle.decode(handle)
        except FormatError as cause:
            raise InvalidMessageError(f"{cause.reason}: take that of its SendResult") from cause
        routes = self.engine.routes
        address = routes.primary(named.broker_name)
        if address is None:
            await routes.publish_route(topic)
            address = await routes.find_address(named.broker_name, topic)
        header = RecallHeader(
            producer_group=self._group,
            bname=named.broker_name,
            topic=topic,
            recall_handle=handle,
        )
        is_recalled = False
        try:
            message_id = await self.require_open().brokers.recall(address, header)
            is_recalled = True
        finally:
            if self.engine.tracer is not None:
                self.engine.tracer.recalled(topic, named.unique_key, success=is_recalled)
        return message_id

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues of a topic to which messages may be sent, in the order of selectors."""
        return list((await self.engine.routes.publish_route(topic)).queues)

    async def announce(self, queues: Iterable[MessageQueue]) -> None:
        """Let the brokers of queues know this client before it sends anything. UnreachableError."""
        await self.require_open().announce(queues)

    # --- what the synchronous producer uses too ---

    async def wait_for_room(self, timeout_ms: float | None) -> None:
        """Wait until another message may be on its way. RequestTimeoutError."""
        if timeout_ms is None:
            timeout_ms = self._config.send_timeout_ms
        await self.engine.pending.wait_for_room(timeout_ms)

    def sending(
        self,
        request: SendRequest,
        outcome: Outcome,
        rule: RetryRule,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> Sending:
        """Return what sends this, once it is started; the outcome gets a SendResult or an exception."""
        if timeout_ms is None:
            timeout_ms = self._config.send_timeout_ms
        return Sending(self.engine, request, outcome, rule, timeout_ms, selector)

    def requesting(
        self,
        message: Message,
        outcome: Outcome,
        timeout_ms: float | None,
        selector: QueueSelector | None,
    ) -> Requesting:
        """Return what sends this request, once it is started; the outcome gets the reply."""
        self.require_open()
        if timeout_ms is None:
            timeout_ms = self._config.send_timeout_ms
        return self._requests.prepare(message, outcome, timeout_ms, selector)

    # --- what brokers ask; see ProducerRole ---

    def on_check_transaction(
        self, address: str, request: Command, message: ReceivedMessage
    ) -> None:
        """Ask the checker, unless the transaction is still open here."""
        self._transactions.on_check(address, request, message)

    def on_reply(self, message: ReceivedMessage) -> None:
        """A reply came to this client, perhaps to a request of ours."""
        self._requests.on_reply(message)


def trace_writer(config: ClientConfig, group: str, kind: str) -> TraceWriter | None:
    """Return what writes the traces of a producer or consumer; None: it is not traced."""
    if not config.trace_topic:
        return None
    producer = AsyncProducer(group=trace_group(group, kind), config=trace_config(config))
    return TraceWriter(producer, config)


async def send_inner(core: ClientCore, message: Message) -> SendResult:
    """Send a message of a consumer, to its retry topic for example. The core closes the producer."""

    def make() -> AsyncProducer:
        return AsyncProducer.on_core(core, INNER_PRODUCER)

    return await core.part(AsyncProducer, make).send(message)
