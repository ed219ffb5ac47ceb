"""AsyncPushConsumer: a member of a group that pulls its queues and hands every message to a handler.

one fetcher per queue -> ProcessQueue -> consumption (concurrent, orderly, by loops) -> handler
                              |                |-> failed: back to the broker
                              |-> offset store, every 5 s to the broker
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from orbitmq.client.consumer.assigned_queues import AssignedQueues
from orbitmq.client.consumer.assignment import Assignment
from orbitmq.client.consumer.concurrent_consumption import (
    ConcurrentConsumption,
    LoopConsumption,
    Ready,
)
from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import RETRY_TOPIC, Delivery, Outcome, delivery_of
from orbitmq.client.consumer.handling import Handler, RetryLater
from orbitmq.client.consumer.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from orbitmq.client.consumer.orderly_consumption import OrderlyConsumption
from orbitmq.client.consumer.process_queue import Call, ProcessQueue, call_now
from orbitmq.client.consumer.running_info import describe
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.client.consumer.subscription import EVERYTHING, Expression, subscription
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.core.periodic import PeriodicJob
from orbitmq.clock import Clock
from orbitmq.errors import ConfigError, WireError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.heartbeat import ConsumerData
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult

_log = logging.getLogger(__name__)

PUSH_TYPE: Final = "CONSUME_PASSIVELY"


class AsyncPushConsumer:
    """One member of a consumer group. Belongs to its loop's thread."""

    def __init__(
        self,
        client: ClientConfig,
        config: ConsumerConfig,
        handler: Handler | None,
        *,
        ready: Ready | None = None,
        call: Call = call_now,
        filters: Mapping[str, Expression] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Messages go to the handler, or by `ready` to where loops, or threads, take them from."""
        self._client, self.config, self._clock = client, config, clock
        self._ready, self._call = ready, call
        self._handler = self._hand_out if handler is None else handler
        self._filters: dict[str, Expression] = dict(filters or config.topics)
        if not self._filters:
            raise ConfigError("topics", {}, "a consumer needs at least one topic to read")
        self._jobs: list[PeriodicJob] = []
        self._started_ms = 0
        self._closed = False

    # --- life ---

    async def start(self) -> None:
        """Join the group. ClientError, WireError: that was not possible; nothing is left behind."""
        core = await ClientCore.acquire(self._client, self._clock)
        try:
            self._build(core)
            await self._context.offsets.load()
            core.add_consumer(self)
            await self._join()
        except BaseException:
            if core.consumer(self.group) is self:
                await core.remove_consumer(self)
            await core.release()
            raise
        self._started_ms = core.clock.now_ms()
        self._consumption.start()
        self._assignment.start()
        self._start_jobs()

    def _build(self, core: ClientCore) -> None:
        config, now_ms = self.config, core.clock.now_ms()
        offsets: OffsetStore = (
            RemoteOffsets(config.group, core.brokers, core.routes)
            if config.clustering
            else LocalOffsets(config.offsets_directory, core.client_id, config.group)
        )
        subscriptions = {
            topic: subscription(topic, expression, now_ms)
            for topic, expression in self._filters.items()
        }
        context = self._context = ConsumerContext(core, config, offsets, subscriptions, self._call)
        if config.clustering:
            retry = context.retry_topic
            subscriptions[retry] = subscription(retry, EVERYTHING, now_ms)
        self._consumption = self._make_consumption(context)
        self._assigned = AssignedQueues(context, self._consumption, self.on_members_changed)
        self._assignment = Assignment(context, self._assigned, lambda: list(context.subscriptions))

    def _make_consumption(
        self, context: ConsumerContext
    ) -> ConcurrentConsumption | OrderlyConsumption:
        send_back = SendBack(context)
        if self.config.orderly:
            return OrderlyConsumption(context, self._handler, send_back)
        if self._ready is not None:
            return LoopConsumption(context, self._ready, self._handler, send_back)
        return ConcurrentConsumption(context, self._handler, send_back)

    async def _join(self) -> None:
        """Learn the routes, have filters checked, and make ourselves known."""
        core = self._context.core
        for topic in self._context.subscriptions:
            core.routes.watch(topic)
        asked = (core.routes.refresh(topic) for topic in self._filters)
        results = await asyncio.gather(*asked, return_exceptions=True)
        # A topic that nobody knows yet may appear; a name server that nobody reaches is an error.
        failures = [result for result in results if isinstance(result, WireError)]
        if len(failures) == len(results):
            raise failures[0]
        await self._check_filters()
        core.routes.on_changed(self._route_changed)
        await core.heartbeat()

    async def _check_filters(self) -> None:
        context = self._context
        for wanted in context.subscriptions.values():
            address = context.core.routes.any_address(wanted.topic)
            if not wanted.is_tag and address is not None:
                await context.core.brokers.check_subscription(
                    address, context.core.client_id, context.group, wanted
                )

    def _start_jobs(self) -> None:
        config, core = self.config, self._context.core
        self._jobs = [
            core.every("persist offsets", self._persist, config.persist_interval_ms),
            core.every("overdue messages", self._give_back_overdue, config.consume_timeout_ms),
        ]
        if config.orderly and config.clustering:
            renew = self._assigned.renew_locks
            self._jobs.append(core.every("renew locks", renew, config.lock_interval_ms, SECOND_MS))

    async def close(self) -> None:
        """Leave the group: end or hand back what runs, store the offsets, unlock, unregister."""
        was_closed, self._closed = self._closed, True
        if was_closed or not self._started_ms:
            return
        await self._assignment.stop()
        for job in self._jobs:
            await job.stop()
        await self._assigned.stop_pulls()
        if not await self._consumption.stop(self.config.close_wait_ms):
            _log.warning("group %s: closed while handlers are still at work", self.group)
        await self._assigned.hand_over_all()
        core = self._context.core
        for topic in self._context.subscriptions:
            core.routes.unwatch(topic)
        await core.remove_consumer(self)
        await core.release()

    async def __aenter__(self) -> "AsyncPushConsumer":
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    # --- what users may ask ---

    @property
    def client_id(self) -> str:
        return self._context.core.client_id

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member has at the moment."""
        return self._assigned.queues

    def pause(self) -> None:
        """Pull nothing more; what was pulled is handled."""
        self._assigned.resumed.clear()

    def resume(self) -> None:
        self._assigned.resumed.set()

    def retry_taken(self) -> None:
        """Give back what was taken and never settled."""
        for held in self._assigned.held:
            for message in held.taken():
                message.retry()

    async def _hand_out(self, messages: list[Delivery], held: ProcessQueue | None) -> Outcome:
        """Wait until a loop took the message and settled it."""
        message, context = messages[0], self._context
        if held is None:  # it came by itself
            held = ProcessQueue(message.queue, 0, context.core.clock, context.call)
            held.put([message], message.queue_offset + 1)
        held.put_back([message])
        assert self._ready is not None
        self._ready([message])
        await held.wait_until(lambda: message.is_settled or (held.dropped and not held.running))
        return message.outcome if message.is_settled else Outcome(abandoned=True)

    # --- jobs ---

    async def _persist(self) -> None:
        self._assigned.note_progress()
        await self._context.offsets.persist()
        self._context.rates.sample(self._context.core.clock.monotonic_ms())

    async def _give_back_overdue(self) -> None:
        if self.config.clustering:
            for held in self._assigned.held:
                await self._consumption.give_back_overdue(held)

    # --- what brokers ask: see ConsumerRole ---

    @property
    def group(self) -> str:
        return self.config.group

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=PUSH_TYPE,
            message_model=self.config.model.value,
            consume_from_where=self.config.start_from.value,
            subscription_data_set=list(self._context.subscriptions.values()),
        )

    def on_members_changed(self) -> None:
        if self._started_ms and not self._closed:
            self._assignment.wake()

    def _route_changed(self, topic: str) -> None:
        if topic in self._context.subscriptions:
            self.on_members_changed()

    def on_reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int], *, force: bool
    ) -> None:
        if self._started_ms and not self._closed:
            _log.info("group %s: offsets of topic %s are reset", self.group, topic)
            self._assigned.move({q: offset for q, offset in offsets.items() if q.topic == topic})

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        self._assigned.note_progress()
        return self._context.offsets.of_topic(topic)

    def running_info(self) -> ConsumerRunningInfo:
        self._assigned.note_progress()
        return describe(self._context, self._assigned.held, PUSH_TYPE, self._started_ms)

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
            order=self.config.orderly,
            remark=None if outcome.error is None else repr(outcome.error),
            spent_time_mills=round(clock.monotonic_ms() - started_ms),
        )


def _direct_result(outcome: Outcome) -> str:
    if outcome.abandoned or isinstance(outcome.error, RetryLater):
        return "CR_LATER"
    if outcome.error is not None:
        return "CR_THROW_EXCEPTION"
    return "CR_SUCCESS" if outcome.ok else "CR_LATER"
