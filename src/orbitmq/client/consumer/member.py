"""GroupMember: what a consumer is for its group and its brokers, whoever takes the messages.

`AsyncConsumer` and `AsyncPullConsumer` say how queues come and go; this is what both have: joining,
leaving, and the answers to what brokers ask (see `ConsumerRole`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import ClassVar

from orbitmq import __version__
from orbitmq.client.consumer.assignment import Assignment, QueueHolder
from orbitmq.client.consumer.config import Settings
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.offset_store import LocalOffsets, OffsetStore, RemoteOffsets
from orbitmq.client.consumer.process_queue import Call, ProcessQueue, call_now
from orbitmq.client.consumer.subscription import Expression, subscription
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.life import AsyncClient
from orbitmq.client.core.roles import ConsumerRole
from orbitmq.client.producer.producer import trace_writer
from orbitmq.client.rebalance.report import NOTES_PROPERTY, RebalanceListener
from orbitmq.client.rebalance.reporter import RebalanceReporter
from orbitmq.client.trace.consume_tracer import ConsumeTracer
from orbitmq.client.trace.writer import CONSUME
from orbitmq.clock import Clock, SystemClock
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.units import MiB
from orbitmq.wire.bodies.heartbeat import ConsumerData
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo


class GroupMember(AsyncClient, ConsumerRole, ABC):
    """One member of a consumer group. Belongs to its loop's thread."""

    noun = "consumer"
    consume_type: ClassVar[str]
    _context: ConsumerContext  # of the last `open`

    def __init__(self, settings: Settings, clock: Clock | None) -> None:
        super().__init__(settings.client, clock)
        self.settings = settings
        self._call: Call = call_now
        self._started_ms = 0
        self.on_rebalance: RebalanceListener | None = None
        self._in_threads = False  # the user's functions may block: not in the loop's thread
        self._assignment: Assignment | None = None
        self._jobs = PeriodicJobs()
        self.tracer = self._make_tracer()

    def _make_tracer(self) -> ConsumeTracer | None:
        config, client = self.settings.consumer, self._config
        writer = trace_writer(client, config.group, CONSUME)
        if writer is None:
            return None
        clock, timeout_ms = self._clock or SystemClock(), config.consume_timeout_ms
        return ConsumeTracer(config.group, writer, clock, client.client_ip, timeout_ms)

    # --- life ---

    async def _start(self, core: ClientCore) -> None:
        """Join the group. ClientError, WireError: that was not possible; nothing is left behind."""
        config = self.settings.consumer
        offsets: OffsetStore = (
            RemoteOffsets(config.group, core.brokers, core.routes)
            if config.clustering
            else LocalOffsets(config.offsets_directory, core.client_id, config.group)
        )
        self._context = ConsumerContext(core, config, offsets, {}, self._call)
        self._reporter = RebalanceReporter(
            core,
            config.group,
            self._context.changes,
            self.on_rebalance,
            self._queue_names,
            in_thread=self._in_threads,
        )
        await offsets.load()
        self._prepare()
        self._started_ms = core.clock.now_ms()
        core.add_consumer(self)
        try:
            if self.tracer is not None:
                await self.tracer.writer.open(self._call)
            core.routes.on_changed(self._route_changed)
            await self._join()
        except BaseException:
            await self._stop(core)
            raise

    async def _stop(self, core: ClientCore) -> None:
        """Leave the group: what runs may end, the offsets are stored."""
        assignment, self._assignment = self._assignment, None
        if assignment is not None:
            await assignment.stop()
        await self._jobs.stop()
        started_ms = core.clock.monotonic_ms()
        await self._give_up_queues()
        await self._reporter.close(started_ms)
        if self.tracer is not None:
            await self.tracer.writer.close()
        for topic in self._context.subscriptions:
            core.routes.unwatch(topic)
        await core.remove_consumer(self)

    @abstractmethod
    def _prepare(self) -> None:
        """Make the parts, when there is a context and before brokers can ask anything."""

    @abstractmethod
    async def _join(self) -> None:
        """Make ourselves known, and begin to read."""

    @abstractmethod
    async def _give_up_queues(self) -> None:
        """Read nothing more, and store the offsets."""

    # --- for these steps ---

    def _subscribe(self, filters: Mapping[str, Expression]) -> None:
        """Want these topics; their routes are kept fresh."""
        context = self._context
        now_ms = context.core.clock.now_ms()
        for topic, expression in filters.items():
            wish = subscription(topic, expression, now_ms)
            if topic not in context.subscriptions:
                context.core.routes.watch(topic)
            context.subscriptions[topic] = wish

    def _start_assignment(self, holder: QueueHolder) -> None:
        """Share the queues of the topics among the members from now on."""
        self._assignment = Assignment(self._context, holder, self._reporter.round_done)
        self._assignment.start()

    # --- what brokers ask: see ConsumerRole ---

    @property
    def group(self) -> str:
        return self.settings.consumer.group

    def consumer_data(self) -> ConsumerData:
        config = self.settings.consumer
        return ConsumerData(
            group_name=config.group,
            consume_type=self.consume_type,
            message_model=config.model.value,
            consume_from_where=config.start_from.value,
            subscription_data_set=list(self._context.subscriptions.values()),
        )

    def on_members_changed(self) -> None:
        self._rebalance("notice")

    def _route_changed(self, topic: str) -> None:
        if topic in self._context.subscriptions:
            self._rebalance("route")

    def _rebalance(self, reason: str) -> None:
        if self._assignment is not None:
            self._assignment.wake(reason)

    def running_info(self) -> ConsumerRunningInfo:
        context = self._context
        config, core = context.config, context.core
        properties = {
            "PROP_NAMESERVER_ADDR": ";".join(core.config.namesrv),
            "PROP_THREADPOOL_CORE_SIZE": str(config.workers),
            "PROP_CONSUMEORDERLY": str(config.orderly).lower(),
            "PROP_CONSUME_TYPE": self.consume_type,
            "PROP_CLIENT_VERSION": f"OrbitMQ {__version__}",
            "PROP_CONSUMER_START_TIMESTAMP": str(self._started_ms),
            "consumerGroup": config.group,
            "messageModel": config.model.value,
            "consumeFromWhere": config.start_from.value,
            "allocateMessageQueueStrategy": config.strategy.name,
            "consumeMessageBatchMaxSize": str(config.batch_size),
            "pullBatchSize": str(config.pull_count),
            "pullThresholdForQueue": str(config.prefetch_count),
            "maxReconsumeTimes": str(config.reconsume_times_max),
            NOTES_PROPERTY: context.changes.notes(core.clock.monotonic_ms()),
        }
        return ConsumerRunningInfo(
            properties=properties,
            subscription_set=list(context.subscriptions.values()),
            mq_table={held.queue: _queue_info(context, held) for held in self._held()},
            status_table=context.rates.status(core.clock.monotonic_ms()),
        )

    def _queue_names(self) -> list[MessageQueue]:
        return sorted(held.queue for held in self._held())

    @abstractmethod
    def _held(self) -> Iterable[ProcessQueue]:
        """Return what is held of each queue."""


def _queue_info(context: ConsumerContext, held: ProcessQueue) -> ProcessQueueInfo:
    offset = context.offsets.get(held.queue)
    return ProcessQueueInfo(
        commit_offset=-1 if offset is None else offset,
        cached_msg_min_offset=held.first_offset or 0,
        cached_msg_max_offset=held.last_offset or 0,
        cached_msg_count=held.count,
        cached_msg_mib=held.body_bytes // MiB,
        locked=held.locked,
        last_lock_timestamp=_wall_ms(context, held.locked_ms) if held.locked else 0,
        droped=held.dropped,
        last_pull_timestamp=held.pulled_ms,
        last_consume_timestamp=held.consumed_ms,
    )


def _wall_ms(context: ConsumerContext, monotonic_ms: float) -> int:
    clock = context.core.clock
    return round(clock.now_ms() - (clock.monotonic_ms() - monotonic_ms))
