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

one fetcher per queue -> ProcessQueue -> consumption (concurrent, orderly, by loops) -> handler
                              |                |-> failed: back to the broker
                              |-> offset store, every 5 s to the broker
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Self

from orbitmq.client.consumer.assigned_queues import AssignedQueues
from orbitmq.client.consumer.concurrent_consumption import (
    ConcurrentConsumption,
    LoopConsumption,
    Ready,
)
from orbitmq.client.consumer.config import StartWish, Topics, consumer_settings
from orbitmq.client.consumer.delivery import RETRY_TOPIC, Batch, Delivery, Outcome, delivery_of
from orbitmq.client.consumer.handling import Handler, RetryLater, UserFunction, make_handler
from orbitmq.client.consumer.member import GroupMember
from orbitmq.client.consumer.orderly_consumption import OrderlyConsumption
from orbitmq.client.consumer.process_queue import Call, ProcessQueue
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.client.consumer.subscription import EVERYTHING
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.rebalance.report import RebalanceListener
from orbitmq.client.trace.delivery import TracedDelivery, traced
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ClientError, ConfigError, WireError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult

_log = logging.getLogger(__name__)


class AsyncConsumer(GroupMember):
    """A member of a group for asyncio code. Belongs to the loop in which it was opened.

    With a `handler` (a coroutine function, at most `workers` at a time) messages go there; without one,
    iterate over the consumer. Several tasks may do so. `on_rebalance`, a function or a coroutine function, is
    called with a `RebalanceReport` whenever queues came or went.
    """

    consume_type = "CONSUME_PASSIVELY"

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
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        if handler is None:
            settings["batch_size"] = 1  # a loop gets one after the other
        given = consumer_settings(
            namesrv, group, topics, orderly, broadcasting, start_from, config, settings
        )
        super().__init__(given, clock)
        self.handler = handler
        self.on_rebalance = on_rebalance
        self._inbox: asyncio.Queue[Delivery | None] = asyncio.Queue()
        self._ready: Ready | None = None if handler else self._put_all
        self._executor: Executor | None = None
        self._leaving = False

    # --- life ---

    def serve_threads(self, call: Call, ready: Ready | None, executor: Executor | None) -> None:
        """Before `open`: say how other threads take part.

        They come in by `call`. `ready`: they take messages by themselves; else the handler gets them, in
        `executor` if it is no coroutine function.
        """
        self._call, self._ready, self._executor = call, ready, executor
        self._in_threads = True

    async def open(self) -> Self:
        """Join the group; messages come from now on."""
        if not self.settings.filters:
            raise ConfigError("topics", {}, "a consumer needs at least one topic to read")
        return await super().open()

    def _prepare(self) -> None:
        context, send_back = self._context, SendBack(self._context)
        self._inbox, self._leaving = asyncio.Queue(), False
        self._handler: Handler = self._hand_out
        if self.handler is not None:
            batch = context.config.batch_size > 1
            self._handler = make_handler(self.handler, batch=batch, executor=self._executor)
        self._consumption: ConcurrentConsumption | OrderlyConsumption
        handler = self._handler if self.tracer is None else self.tracer.around(self._handler)
        if context.config.orderly:
            self._consumption = OrderlyConsumption(context, handler, send_back)
        elif self._ready is not None:
            ready = self._ready
            if self.tracer is not None and self.handler is None:
                context.delivery_kind, ready = TracedDelivery, traced(ready, self.tracer)
            self._consumption = LoopConsumption(context, ready, self._handler, send_back)
        else:
            self._consumption = ConcurrentConsumption(context, handler, send_back)
        self._assigned = AssignedQueues(context, self._consumption, self._rebalance)

    async def _join(self) -> None:
        """Learn the routes, have filters checked, make ourselves known, and begin."""
        context, filters = self._context, self.settings.filters
        core, config = context.core, context.config
        self._subscribe(filters)
        if config.clustering:
            self._subscribe({context.retry_topic: EVERYTHING})
        asked = (core.routes.refresh(topic) for topic in filters)
        results = await asyncio.gather(*asked, return_exceptions=True)
        # A topic that nobody knows yet may appear; a name server that nobody reaches is an error.
        failures = [result for result in results if isinstance(result, WireError)]
        if len(failures) == len(results):
            raise failures[0]
        await self._check_filters()
        await core.heartbeat()
        self._consumption.start()
        self._start_assignment(self._assigned)
        self._start_jobs()

    async def _check_filters(self) -> None:
        context = self._context
        for wanted in context.subscriptions.values():
            address = context.core.routes.any_address(wanted.topic)
            if not wanted.is_tag and address is not None:
                await context.core.brokers.check_subscription(
                    address, context.core.client_id, context.group, wanted
                )

    def _start_jobs(self) -> None:
        config, add, renew = self._context.config, self._jobs.add, self._assigned.renew_locks
        add("persist offsets", config.persist_interval_ms, self._persist)
        add("overdue messages", config.consume_timeout_ms, self._give_back_overdue)
        if config.orderly and config.clustering:
            add("renew locks", config.lock_interval_ms, renew, first_ms=SECOND_MS)

    async def close(self) -> None:
        """Leave the group: what runs may end, the offsets are stored. Loops over it end."""
        self._inbox.put_nowait(None)
        await super().close()

    async def _give_up_queues(self) -> None:
        """End or hand back what runs, store the offsets, unlock."""
        await self._assigned.stop_pulls()
        self._leaving = True
        if not await self._consumption.stop(self._context.config.close_wait_ms):
            _log.warning("group %s: closed while handlers are still at work", self.group)
        await self._assigned.hand_over_all()

    def _failed(self) -> None:
        """Give back what was taken and never settled."""
        for held in self._held():
            for message in held.taken():
                message.retry()

    # --- messages ---

    def __aiter__(self) -> AsyncIterator[Delivery]:
        self.require_no_handler()
        self.require_open()
        return self._loop()

    async def receive(self, timeout: float | None = None) -> Delivery | None:
        """Return the next message, None after the time or when closed. Settle it: ack() or retry()."""
        self.require_no_handler()
        try:
            async with asyncio.timeout(timeout):
                return await self._loop().take()
        except TimeoutError:
            return None

    def _put_all(self, messages: list[Delivery]) -> None:
        put = self._inbox.put_nowait
        for message in messages:
            put(message)

    def _loop(self) -> "_AsyncLoop":
        return _AsyncLoop(self._inbox, self._clock or SystemClock())

    def require_no_handler(self) -> None:
        if self.handler is not None:
            raise ClientError(
                "this consumer has a handler, which gets the messages: nothing to iterate"
            )

    async def _hand_out(self, messages: list[Delivery], held: ProcessQueue | None) -> Outcome:
        """Wait until a loop took the message and settled it."""
        message, context = messages[0], self._context
        if held is None:  # it came by itself
            held = ProcessQueue(message.queue, 0, context.core.clock, context.call)
            held.put([message], message.queue_offset + 1)
        message._outcome = None  # what was said the last time says nothing now
        held.put_back([message])
        assert self._ready is not None
        self._ready([message])

        def is_over() -> bool:
            # What no loop has taken when we leave, none will.
            return message.is_settled or ((held.dropped or self._leaving) and not held.running)

        await held.wait_until(is_over)
        return message.outcome if message.is_settled else Outcome(abandoned=True)

    # --- queues ---

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has at the moment."""
        self.require_open()
        return self._assigned.queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        self.require_open()
        self._assigned.resumed.clear()

    def resume(self) -> None:
        self.require_open()
        self._assigned.resumed.set()

    def _held(self) -> list[ProcessQueue]:
        return self._assigned.held

    # --- jobs ---

    async def _persist(self) -> None:
        self._assigned.note_progress()
        await self._context.offsets.persist()
        self._context.rates.sample(self._context.core.clock.monotonic_ms())

    async def _give_back_overdue(self) -> None:
        if self._context.config.clustering:
            for held in self._held():
                await self._consumption.give_back_overdue(held)

    # --- what brokers ask: see ConsumerRole ---

    def on_reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self._core is not None:
            _log.info("group %s: offsets of topic %s are reset", self.group, topic)
            self._assigned.move({q: offset for q, offset in offsets.items() if q.topic == topic})

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        self._assigned.note_progress()
        return self._context.offsets.of_topic(topic)

    def running_info(self) -> ConsumerRunningInfo:
        self._assigned.note_progress()
        return super().running_info()

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> DirectConsumeResult:
        """Handle this one message now (309), outside of all queues: no offset moves."""
        message.broker_name = message.broker_name or broker_name
        message.topic = message.properties.get(RETRY_TOPIC, message.topic)
        clock = self._context.core.clock
        started_ms = clock.monotonic_ms()
        outcome = await self._handler([delivery_of(message)], None)
        return DirectConsumeResult(
            consume_result=_direct_result(outcome),
            order=self.settings.consumer.orderly,
            remark=None if outcome.error is None else repr(outcome.error),
            spent_time_mills=round(clock.monotonic_ms() - started_ms),
        )


def _direct_result(outcome: Outcome) -> str:
    if outcome.abandoned or isinstance(outcome.error, RetryLater):
        return "CR_LATER"
    if outcome.error is not None:
        return "CR_THROW_EXCEPTION"
    return "CR_SUCCESS" if outcome.ok else "CR_LATER"


class _AsyncLoop:
    """One `async for` over a consumer."""

    def __init__(self, ready: "asyncio.Queue[Delivery | None]", clock: Clock) -> None:
        self._ready, self._now_ms = ready, clock.monotonic_ms
        self._current: Delivery | None = None
        self._taken_ms = 0.0
        self._batch: Batch | None = None

    def __aiter__(self) -> "_AsyncLoop":
        return self

    async def __anext__(self) -> Delivery:
        if self._current is not None:
            self._current.finish(self._now_ms(), self._taken_ms)
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
            self._taken_ms = self._now_ms()
            if message.take(self._taken_ms):
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
