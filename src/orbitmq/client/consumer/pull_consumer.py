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
from typing import Any, Final, Self

from orbitmq.client.consumer.config import StartWish, Topics, consumer_settings, parse_topics
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.fetcher import pull_header
from orbitmq.client.consumer.member import GroupMember
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.pulled_queues import PulledQueues
from orbitmq.client.consumer.subscription import EVERYTHING, Expression, subscription
from orbitmq.client.core.broker_api import PullResult
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.clock import Clock
from orbitmq.errors import ClientClosedError, ClientError, ConfigError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import DirectConsumeResult
from orbitmq.wire.pull_flags import PullFlag

POLL_SECONDS: Final = 5.0
SUSPEND_MS: Final = 20 * SECOND_MS


class AsyncPullConsumer(GroupMember):
    """A consumer that reads only when it is asked. Belongs to the loop in which it was opened."""

    consume_type = "CONSUME_ACTIVELY"
    _queues: PulledQueues  # of the last `open`

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
        given = consumer_settings(
            namesrv, group, topics, False, False, start_from, config, settings
        )
        super().__init__(given, clock)
        self.auto_commit = auto_commit

    # --- life ---

    def _prepare(self) -> None:
        self._queues = PulledQueues(self._context)

    async def _join(self) -> None:
        if self.settings.filters:
            await self._share(self.settings.filters)
        if self.auto_commit:
            interval_ms = self.settings.consumer.persist_interval_ms
            self._jobs.add("commit offsets", interval_ms, self._commit_quietly)

    async def close(self) -> None:
        """Commit what is done, if that is automatic, and leave the group."""
        if self._core is not None:
            self._queues.finish_returned()
        await super().close()

    async def _give_up_queues(self) -> None:
        await self._queues.stop()
        await self._commit_quietly(retry=True)
        self._queues.came.set()  # whoever waits sees that it is closed

    def _failed(self) -> None:
        # What the last poll returned was perhaps not handled: it comes again.
        for held in self._held():
            held.put_back(held.taken())

    # --- which queues ---

    async def topic_queues(self, topic: str) -> list[MessageQueue]:
        """Return all queues of a topic that may be read."""
        return await self.require_open().routes.subscribe_queues(topic)

    async def assign(
        self, queues: Iterable[MessageQueue] | str, expression: Expression = EVERYTHING
    ) -> None:
        """Read exactly these queues from now on, or all of a topic; those that stay keep their position."""
        self.require_open()
        context, pulled = self._context, self._queues
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
        self.require_open()
        if self._queues.names and self._assignment is None:
            raise ClientError(
                "this consumer was assigned queues: it cannot subscribe to topics too"
            )
        filters = parse_topics(topics)
        if not filters:
            raise ConfigError("topics", topics, "name at least one topic")
        await self._share(filters)

    async def _share(self, filters: Mapping[str, Expression]) -> None:
        self._subscribe(filters)
        core = self._context.core
        for topic in filters:
            await core.routes.refresh(topic)
        await core.heartbeat()
        if self._assignment is None:
            self._start_assignment(self)
        else:
            self._assignment.wake("route")

    async def hold(self, topic: str, queues: set[MessageQueue], *, shared: bool) -> bool:
        """Hold exactly these queues of a topic; see `QueueHolder`."""
        context, pulled = self._context, self._queues
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
        self.require_open()
        return self._queues.names

    # --- messages ---

    async def poll(
        self, timeout: float | None = POLL_SECONDS, count: int | None = None
    ) -> list[Delivery]:
        """Return the next messages, at most `count`; empty after the time. None: wait for ever."""
        self.require_open()
        queues = self._queues
        queues.finish_returned()
        count = count or self.settings.consumer.pull_count
        try:
            async with asyncio.timeout(timeout):
                while not (messages := queues.take(count)):
                    queues.came.clear()
                    await queues.came.wait()
                    self.require_open()  # ClientClosedError: that is what woke us
        except TimeoutError:
            return []
        if self.tracer is not None:
            self.tracer.polled(messages)
        return messages

    def put_back(self, messages: Sequence[Delivery]) -> None:
        """Have messages of the last poll given out again that nobody saw."""
        if self._core is not None:
            self._queues.put_back(messages)

    def __aiter__(self) -> Self:
        self.require_open()
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
        self.require_open()
        context = self._context
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
        self.require_open()
        return self._queues.position(queue)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on at this offset."""
        self.require_open()
        self._queues.seek(queue, offset)

    async def seek_to_begin(self, *queues: MessageQueue) -> None:
        """Go on at the first message that is still there; all queues if none is named."""
        for queue in queues or self.queues:
            address = await self._address(queue)
            await self.seek(queue, await self._context.core.brokers.min_offset(address, queue))

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Go on behind the last message; all queues if none is named."""
        for queue in queues or self.queues:
            address = await self._address(queue)
            await self.seek(queue, await self._context.core.brokers.max_offset(address, queue))

    async def seek_to_time(self, epoch_ms: int, *queues: MessageQueue) -> None:
        """Go on at the first message stored at this time or later; all queues if none is named."""
        for queue in queues or self.queues:
            await self.seek(queue, await self.offset_at(queue, epoch_ms))

    async def offset_at(self, queue: MessageQueue, epoch_ms: int) -> int:
        """Return the offset of the first message stored at this time or later."""
        address = await self._address(queue)
        return await self._context.core.brokers.search_offset(address, queue, epoch_ms)

    def pause(self, *queues: MessageQueue) -> None:
        """Return nothing of these queues until `resume`; of all if none is named."""
        self.require_open()
        for queue in queues or self.queues:
            self._queues.pause(queue)

    def resume(self, *queues: MessageQueue) -> None:
        self.require_open()
        for queue in queues or self.queues:
            self._queues.resume(queue)

    async def _address(self, queue: MessageQueue) -> str:
        routes = self.require_open().routes
        return await routes.find_address(queue.broker_name, queue.topic)

    # --- offsets of the group ---

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Tell the brokers how far the group is: everything that was returned, or what is given.

        WireError: a broker did not take it.
        """
        self.require_open()
        context = self._context
        if offsets is None:
            self._queues.finish_returned()
            offsets = self._queues.done
        for queue, offset in offsets.items():
            await context.core.brokers.update_consumer_offset(
                await self._address(queue), self.group, queue, offset
            )
            context.offsets.note_stored(queue, offset)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return how far the group is, as the broker knows it; None: nowhere."""
        self.require_open()
        offset = await self._context.offsets.read(queue)
        return None if offset < 0 else offset

    async def _commit_quietly(self, *, retry: bool = False) -> None:
        if self.auto_commit:
            offsets = self._context.offsets
            for queue, offset in self._queues.done.items():
                offsets.update(queue, offset, forward_only=False)
            await offsets.persist(retry=retry)

    # --- what brokers ask: see ConsumerRole ---

    def on_reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        if self._core is not None:
            for queue in self._queues.of_topic(topic) & set(offsets):
                self._queues.seek(queue, offsets[queue])

    def offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        done = self._queues.done
        return {
            queue: offset for queue, offset in done.items() if not topic or queue.topic == topic
        }

    def _held(self) -> list[ProcessQueue]:
        return self._queues.held

    async def consume_directly(
        self, message: ReceivedMessage, broker_name: str
    ) -> DirectConsumeResult:
        remark = "a pull consumer has no handler"
        return DirectConsumeResult(consume_result="CR_THROW_EXCEPTION", remark=remark)
