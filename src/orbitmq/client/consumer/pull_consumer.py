"""AsyncPullConsumer: read queues at one's own pace and position.

async with AsyncPullConsumer("127.0.0.1:9876", "audit") as consumer:
    await consumer.assign(await consumer.topic_queues("Orders"))
    await consumer.seek_to_begin()
    for message in await consumer.poll(timeout=1.0):
        ...

Either `assign` names the queues, or `subscribe` shares the queues of topics among the group's members.
What a poll returned counts as done when the next poll begins, or at `commit`. With `auto_commit` that is
told to the broker every 5 seconds and at the end; an exception that leaves the `async with` leaves out
what the last poll returned, so that it comes again.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from orbitmq.client.consumer.assignment import Assignment
from orbitmq.client.consumer.config import StartWish, consumer_settings, parse_topics
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.fetcher import pull_header
from orbitmq.client.consumer.offset_store import RemoteOffsets
from orbitmq.client.consumer.pulled_queues import PulledQueues
from orbitmq.client.consumer.running_info import describe
from orbitmq.client.consumer.subscription import EVERYTHING, Expression, subscription
from orbitmq.client.core.broker_api import PullResult
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.client.core.periodic import PeriodicJob
from orbitmq.clock import Clock
from orbitmq.errors import ClientClosedError, ClientError, ConfigError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.heartbeat import ConsumerData
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult
from orbitmq.wire.pull_flags import PullFlag

PULL_TYPE: Final = "CONSUME_ACTIVELY"
POLL_SECONDS: Final = 5.0
SUSPEND_MS: Final = 20 * SECOND_MS
Topics = str | Sequence[str] | Mapping[str, Expression]


class AsyncPullConsumer:
    """A consumer that reads only when it is asked. Belongs to the loop in which it was opened."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        *,
        start_from: StartWish = "last",
        auto_commit: bool = True,
        config: ClientConfig | None = None,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        settings.setdefault("suspend_ms", SUSPEND_MS)
        self.settings = consumer_settings(
            namesrv, group, topics, False, False, start_from, config, settings
        )
        self.auto_commit = auto_commit
        self._clock = clock
        self._context: ConsumerContext | None = None
        self._queues: PulledQueues | None = None
        self._assignment: Assignment | None = None
        self._job: PeriodicJob | None = None
        self._started_ms = 0

    # --- life ---

    async def open(self) -> Self:
        """Get ready; with `topics` given, join the group."""
        if self._context is not None:
            return self
        core = await ClientCore.acquire(self.settings.client, self._clock)
        config = self.settings.consumer
        offsets = RemoteOffsets(config.group, core.brokers, core.routes)
        context = self._context = ConsumerContext(core, config, offsets, {})
        self._queues = PulledQueues(context)
        try:
            core.add_consumer(self)
            core.routes.on_changed(self._route_changed)
            if self.settings.filters:
                await self.subscribe(self.settings.filters)
        except BaseException:
            await self.close()
            raise
        self._started_ms = core.clock.now_ms()
        if self.auto_commit:
            interval = config.persist_interval_ms
            self._job = core.every("commit offsets", self._commit_quietly, interval)
        return self

    async def close(self) -> None:
        """Commit what is done, if that is automatic, and leave the group."""
        if self._queues is not None:
            self._queues.finish_returned()
        await self._close()

    async def _close(self) -> None:
        context, queues = self._context, self._queues
        if context is None or queues is None:
            return
        if self._assignment is not None:
            await self._assignment.stop()
        if self._job is not None:
            await self._job.stop()
        await queues.stop()
        if self.auto_commit:
            await self._commit_quietly(retry=True)
        self._context = self._queues = self._assignment = self._job = None
        queues.came.set()
        for topic in context.subscriptions:
            context.core.routes.unwatch(topic)
        await context.core.remove_consumer(self)
        await context.core.release()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After an exception, what the last poll returned was perhaps not handled: it comes again.
        await (self.close() if kind is None else self._close())

    def _opened(self) -> tuple[ConsumerContext, PulledQueues]:
        if self._context is None or self._queues is None:
            raise ClientClosedError(
                "the consumer is not open: use it inside `async with`, or call open() first"
            )
        return self._context, self._queues

    # --- which queues ---

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic that may be read."""
        context, _ = self._opened()
        return await context.core.routes.subscribe_queues(topic)

    async def assign(
        self, queues: Iterable[MessageQueue] | str, expression: Expression = EVERYTHING
    ) -> None:
        """Read exactly these queues from now on, or all of a topic; those that stay keep their position."""
        context, pulled = self._opened()
        if self._assignment is not None:
            raise ClientError(
                "this consumer has subscribed to topics: it cannot be assigned queues"
            )
        wanted = set(await self.topic_queues(queues) if isinstance(queues, str) else queues)
        for topic in sorted({queue.topic for queue in wanted}):
            await context.core.routes.subscribe_queues(topic)  # NoRouteError: here and now
        await context.core.heartbeat()
        pulled.finish_returned()
        await self._commit_quietly()
        await pulled.remove(set(pulled.names) - wanted)
        now_ms = context.core.clock.now_ms()
        for queue in sorted(wanted - set(pulled.names)):
            offset = await context.start_offset(queue)
            pulled.add(queue, offset, subscription(queue.topic, expression, now_ms))

    async def subscribe(self, topics: Topics) -> None:
        """Share the queues of these topics among the members of the group."""
        context, pulled = self._opened()
        if pulled.names and self._assignment is None:
            raise ClientError(
                "this consumer was assigned queues: it cannot subscribe to topics too"
            )
        filters = parse_topics(topics)
        if not filters:
            raise ConfigError("topics", topics, "name at least one topic")
        now_ms = context.core.clock.now_ms()
        for topic, expression in filters.items():
            context.subscriptions[topic] = subscription(topic, expression, now_ms)
            context.core.routes.watch(topic)
            await context.core.routes.refresh(topic)
        await context.core.heartbeat()
        if self._assignment is None:
            self._assignment = Assignment(context, self, lambda: list(context.subscriptions))
            self._assignment.start()
        else:
            self._assignment.wake()

    async def hold(self, topic: str, queues: set[MessageQueue], *, shared: bool) -> bool:
        """Hold exactly these queues of a topic; see `QueueHolder`."""
        context, pulled = self._opened()
        lost = pulled.of_topic(topic) - queues
        if lost:
            await self._commit_quietly()
            await pulled.remove(lost)
        new = queues - pulled.of_topic(topic)
        if new and shared:
            # The member that had the queues stores its offsets first.
            await asyncio.sleep(context.config.handover_wait_ms / 1000)
        for queue in sorted(new):
            offset = await context.start_offset(queue)
            pulled.add(queue, offset, context.subscriptions[topic])
        return True

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that are read at the moment."""
        return self._opened()[1].names

    # --- messages ---

    async def poll(
        self, timeout: float | None = POLL_SECONDS, count: int | None = None
    ) -> list[Delivery]:
        """Return the next messages, at most `count`; empty after the time. None: wait for ever."""
        _, queues = self._opened()
        queues.finish_returned()
        count = count or self.settings.consumer.pull_count
        try:
            async with asyncio.timeout(timeout):
                while not (messages := queues.take(count)):
                    queues.came.clear()
                    await queues.came.wait()
                    self._opened()  # ClientClosedError: that is what woke us
        except TimeoutError:
            return []
        return messages

    def put_back(self, messages: Sequence[Delivery]) -> None:
        """Have messages of the last poll given out again that nobody saw."""
        if self._queues is not None:
            self._queues.put_back(messages)

    def __aiter__(self) -> Self:
        self._opened()
        return self

    async def __anext__(self) -> Delivery:
        """Return the next message; the one before counts as done."""
        try:
            return (await self.poll(None, 1))[0]
        except ClientClosedError:
            raise StopAsyncIteration from None

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        *,
        count: int | None = None,
        expression: Expression = EVERYTHING,
        wait: bool = False,
    ) -> PullResult:
        """Read one queue at one place, without any position; `wait` for a message if there is none.

        The tags of what comes are the broker's guess by hash: check them.
        """
        context, _ = self._opened()
        await context.core.routes.subscribe_queues(queue.topic)
        flags = PullFlag.SUBSCRIPTION | (PullFlag.SUSPEND if wait else PullFlag(0))
        wish = subscription(queue.topic, expression, 0)
        header = pull_header(context.config, queue, wish, offset, flags)
        header.max_msg_nums = count or context.config.pull_count
        address = await self._address(queue)
        timeout_ms = context.config.pull_timeout_ms
        return await context.core.brokers.pull(address, header, timeout_ms=timeout_ms)

    # --- positions ---

    def position(self, queue: MessageQueue) -> int:
        """Return the offset of the message that is returned next."""
        return self._opened()[1].position(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset."""
        self._opened()[1].seek(queue, offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on at the first message that is still there; all queues if none is named."""
        for queue in queues or self.queues:
            address = await self._address(queue)
            await self.seek(queue, await self._opened()[0].core.brokers.min_offset(address, queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last message; all queues if none is named."""
        for queue in queues or self.queues:
            address = await self._address(queue)
            await self.seek(queue, await self._opened()[0].core.brokers.max_offset(address, queue))

    async def seek_to_time(self, epoch_ms: int, *queues: MessageQueue) -> None:
        """Go on at the first message stored at this time or later; all queues if none is named."""
        for queue in queues or self.queues:
            await self.seek(queue, await self.offset_at(queue, epoch_ms))

    async def offset_at(self, queue: MessageQueue, epoch_ms: int) -> int:
        """Return the offset of the first message stored at this time or later."""
        address = await self._address(queue)
        return await self._opened()[0].core.brokers.search_offset(address, queue, epoch_ms)

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues until `resume`; of all if none is named."""
        for queue in queues or self.queues:
            self._opened()[1].pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        for queue in queues or self.queues:
            self._opened()[1].resume(queue)

    async def _address(self, queue: MessageQueue) -> str:
        return await self._opened()[0].primary(queue.broker_name, queue.topic)

    # --- offsets of the group ---

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group is: everything that was returned, or what is given.

        WireError: a broker did not take it.
        """
        context, queues = self._opened()
        if offsets is None:
            queues.finish_returned()
            offsets = queues.done
        for queue, offset in offsets.items():
            await context.core.brokers.update_consumer_offset(
                await self._address(queue), self.group, queue, offset, oneway=False
            )
            context.offsets.note_stored(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return how far the group is, as the broker knows it; None: nowhere."""
        offset = await self._opened()[0].offsets.read(queue)
        return None if offset < 0 else offset

    async def _commit_quietly(self, *, retry: bool = False) -> None:
        context, queues = self._opened()
        if self.auto_commit:
            for queue, offset in queues.done.items():
                context.offsets.update(queue, offset, forward_only=False)
            await context.offsets.persist(retry=retry)

    # --- what brokers ask: see ConsumerRole ---

    @property
    def group(self) -> str:
        return self.settings.consumer.group

    @property
    def client_id(self) -> str:
        return self.settings.client.client_id

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=PULL_TYPE,
            message_model=self.settings.consumer.model.value,
            consume_from_where=self.settings.consumer.start_from.value,
            subscription_data_set=list(self._opened()[0].subscriptions.values()),
        )

    def on_members_changed(self) -> None:
        if self._assignment is not None:
            self._assignment.wake()

    def _route_changed(self, topic: str) -> None:
        if self._context is not None and topic in self._context.subscriptions:
            self.on_members_changed()

    def on_reset_offsets(
        self, topic: str, offsets: Mapping[MessageQueue, int], *, force: bool
    ) -> None:
        if self._queues is not None:
            for queue in self._queues.of_topic(topic) & set(offsets):
                self._queues.seek(queue, offsets[queue])

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        done = self._opened()[1].done
        return {
            queue: offset for queue, offset in done.items() if not topic or queue.topic == topic
        }

    def running_info(self) -> ConsumerRunningInfo:
        context, queues = self._opened()
        return describe(context, queues.held, PULL_TYPE, self._started_ms)

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> DirectConsumeResult:
        remark = "a pull consumer has no handler"
        return DirectConsumeResult(consume_result="CR_THROW_EXCEPTION", remark=remark)
