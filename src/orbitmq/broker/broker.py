"""Broker: one broker process's work, from opening its store to closing it.

Order of opening: ports, tables, store, servers, jobs, name servers. Closing goes the other way: clients
are sent elsewhere first, what is on its way is answered, then state and store are written.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self, cast

from orbitmq.broker._ports import Ports
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.context import BrokerContext, Service
from orbitmq.broker.delivery.long_poll import LongPoll
from orbitmq.broker.delivery.readers import GroupReaders
from orbitmq.broker.delivery.schedule import DELAY_FILE, Schedule
from orbitmq.broker.delivery.timers import Timers
from orbitmq.broker.pop.order import ORDER_FILE
from orbitmq.broker.pop.pop import Pop
from orbitmq.broker.processors.acks import AckProcessor
from orbitmq.broker.processors.assignment import AssignmentProcessor
from orbitmq.broker.processors.clients import ClientsProcessor
from orbitmq.broker.processors.connections import ConnectionsProcessor
from orbitmq.broker.processors.groups_admin import GroupsAdminProcessor
from orbitmq.broker.processors.offsets import OffsetsProcessor
from orbitmq.broker.processors.pop import PopProcessor
from orbitmq.broker.processors.progress import ProgressProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.replication import ReplicationProcessor
from orbitmq.broker.processors.reply import ReplyProcessor
from orbitmq.broker.processors.reset import ResetProcessor
from orbitmq.broker.processors.runtime import RuntimeProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.processors.timers import TimersProcessor
from orbitmq.broker.processors.topics_admin import TopicsAdminProcessor
from orbitmq.broker.processors.transaction import TransactionProcessor
from orbitmq.broker.registration import Registration
from orbitmq.broker.replication.in_sync import InSync
from orbitmq.broker.replication.members import Members, follow_successor, take_back
from orbitmq.broker.replication.primary import HaServer
from orbitmq.broker.replication.replica import Replica
from orbitmq.broker.replication.state_sync import StateSync
from orbitmq.broker.replication.succession import Followers, Succession
from orbitmq.broker.router import BrokerHandler, Router
from orbitmq.broker.routes import Routes
from orbitmq.broker.statistics import BrokerStatistics
from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
from orbitmq.broker.tables.consumers import ConsumerTable
from orbitmq.broker.tables.groups import GroupTable
from orbitmq.broker.tables.producers import ProducerTable
from orbitmq.broker.tables.queue_locks import QueueLocks
from orbitmq.broker.tables.request_modes import MODES_FILE, RequestModeTable
from orbitmq.broker.tables.state_files import GROUPS_FILE, OFFSETS_FILE, TOPICS_FILE, StateFiles
from orbitmq.broker.tables.topics import TopicTable
from orbitmq.broker.transactions.counts import COUNTS_FILE
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import OrbitError
from orbitmq.files.disk import Disk
from orbitmq.net.server import Server
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.store.config import Role
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.metrics import METRICS_FILE
from orbitmq.store.timer.of_primary import PrimaryTimers
from orbitmq.store.timer.timer_store import TimerStore
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode

if TYPE_CHECKING:
    from orbitmq.broker.failover.coordinator import Coordinator
    from orbitmq.broker.failover.failover import Failover
    from orbitmq.logs.server_log import ServerLog
    from orbitmq.store.memory.store_with_memory import StoreWithMemory

logger = logging.getLogger(__name__)

LAST_WORDS: Final = frozenset(
    (
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.UNREGISTER_CLIENT,
        RequestCode.UNLOCK_BATCH_MQ,
    )
)
"""What a client says before it leaves; a broker that sends it away listens to that."""


class Broker:
    """A broker of one store directory. Belongs to the event loop in which it was started."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        log: "ServerLog | None" = None,
        coordinator: "Coordinator | None" = None,
    ) -> None:
        """`disk` is what the store's files lie on, `coordinator` who decides; tests give some that fail."""
        self.config, self._disk, self._log = config, disk, log
        self._clock = clock or SystemClock()
        self._context: BrokerContext | None = None
        self._sends: SendProcessor | None = None
        self._servers: list[Server] = []
        self._jobs = PeriodicJobs()
        self._state: StateFiles | None = None
        self._opening: asyncio.Future[MessageStore] | None = None
        self._timer_store: TimerStore | None = None
        self._primary_timers: PrimaryTimers | None = None
        self._ha_server: HaServer | None = None
        self._succession = Succession(config, disk)
        self._succession.on_restart(self._restart_soon)
        self._failover = self._make_failover(coordinator) if config.failover else None
        self._starting = self._restart_wanted = False
        self._restarting: asyncio.Task[None] | None = None
        self.failure: OrbitError | None = None
        """Why a broker that took another role could not be started again."""
        self.on_failure: Callable[[], None] = lambda: None

    def _make_failover(self, coordinator: "Coordinator | None") -> "Failover":
        # Most brokers have none: they start sooner without its modules, and in less memory.
        from orbitmq.broker.failover.failover import Failover

        return Failover(self.config, self._succession, self._clock, coordinator)

    @property
    def context(self) -> BrokerContext:
        assert self._context is not None, "the broker was not started"
        return self._context

    @property
    def address(self) -> str:
        """What clients are told: "ip:port"."""
        return self.context.address

    @property
    def fast_address(self) -> str:
        """The second port (RocketMQ: VIP channel): as the first, for those who ask there."""
        host, _, port = self.address.rpartition(":")
        return f"{host}:{self._servers[1].port if len(self._servers) > 1 else port}"

    @property
    def ha_address(self) -> str:
        """Where replicas are served, "ip:port"; empty: nowhere."""
        server = self._ha_server
        return _address_text(self.config.host, server.port) if server is not None else ""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Opening

    async def start(self) -> None:
        """Open the store, serve clients and register. OrbitError: it cannot be; nothing stays open."""
        self._starting = True
        try:
            await self._start()
        except BaseException:
            await self._end_failover()
            raise
        finally:
            self._starting = False
        self._restart_if_wanted()

    async def _start(self) -> None:
        try:
            self._succession.begin()
            others: Members = {}
            if self._failover is not None:
                await self._failover.begin()
            if not self.config.is_replica:
                others = await follow_successor(self._succession, self.config)
            with Ports(self.config.bind_host, self.config.port) as ports:
                await self._open(ports.port)
                await self._serve(ports)
            if not self.config.is_replica:
                await take_back(self.context, others)
            self._start_jobs()
            await self.context.registration.start()
        except BaseException:
            await self._stop()
            raise

    def _restart_soon(self, reason: str) -> None:
        """Start again in another role, on the same ports; what is on its way is answered first."""
        logger.warning("starting again: %s", reason)
        self._restart_wanted = True
        self._restart_if_wanted()

    def _restart_if_wanted(self) -> None:
        if self._restart_wanted and self._restarting is None and not self._starting:
            self._restarting = asyncio.ensure_future(self._restart())

    async def _restart(self) -> None:
        self.config.port = int(self.address.rpartition(":")[2])
        try:
            while (
                self._restart_wanted
            ):  # a replica that begins to follow may find that it has to be cut
                self._restart_wanted = False
                await self._stop()
                await self._start()
        except OrbitError as error:
            logger.exception("not started again")
            self.failure = error
            self.on_failure()
        finally:
            self._restarting = None

    async def _open(self, port: int) -> None:
        config, loop = self.config, asyncio.get_running_loop()
        store_host = config.store_host(port)
        config.store = dataclasses.replace(config.store, store_host=store_host)
        topics = TopicTable(config, self._clock)
        groups, offsets = GroupTable(config, self._clock), ConsumerOffsets(self._clock)
        self._state = StateFiles(config.store.root / "config")

        def open_store(state: StateFiles) -> MessageStore:
            # Recovery of a large store takes its time, and loading reads files.
            state.add(TOPICS_FILE, topics, at_once=True)
            state.add(GROUPS_FILE, groups, at_once=True)
            state.add(OFFSETS_FILE, offsets)
            store = open_store_of(config, topics, self._clock, disk=self._disk)
            if not config.is_replica:
                self._succession.began(store)
            if config.failover:
                self._succession.identify(store)
            if config.timer_wheel and config.is_replica:
                self._primary_timers = PrimaryTimers(config.store.layout(), self._clock, self._disk)
                self._primary_timers.open()
            elif config.timer_wheel:
                try:
                    self._timer_store = TimerStore.open(store, self._clock, self._disk)
                except BaseException:
                    store.close()
                    raise
            return store

        self._opening = loop.run_in_executor(None, open_store, self._state)
        # Shielded: a start that is given up still has to close what the thread has opened.
        store = await asyncio.shield(self._opening)
        topics.adopt(store)
        address = _address_text(config.host, port)
        self._context = BrokerContext(
            config=config,
            clock=self._clock,
            store=store,
            loop=loop,
            store_host=store_host,
            address=address,
            boot_ms=self._clock.now_ms(),
            topics=topics,
            groups=groups,
            offsets=offsets,
            producers=ProducerTable(),
            consumers=ConsumerTable(),
            locks=QueueLocks(self._clock, config.lock_expiry_ms),
            request_modes=RequestModeTable(),
            registration=Registration(config, topics, address),
            succession=self._succession,
            log=self._log,
            jobs=self._jobs,
        )
        self._complete(self._context)
        if self._succession.settle(self._context):
            await self._state.save()
            if self._state.failure is not None:
                raise self._state.failure
            self._succession.settled()
        await loop.run_in_executor(None, self._context.transactions.recover)

    def _complete(self, context: BrokerContext) -> None:
        """Make the parts that are made of the others, and connect those that hear of each other."""
        topics, groups, state = context.topics, context.groups, self._state
        assert state is not None
        context.statistics = BrokerStatistics(
            context.clock, context.config.cluster, topics.is_system
        )
        context.long_poll = LongPoll(context)
        context.schedule = Schedule(context)
        context.transactions = Transactions(context)
        if self._timer_store is not None:
            context.timers = Timers(context, self._timer_store)
            state.add(METRICS_FILE, self._timer_store.metrics)
            if self._timer_store.is_empty:
                self._timer_store.metrics.clear()
        elif self._primary_timers is not None:
            state.add(METRICS_FILE, self._primary_timers.metrics)
        context.pop, context.routes = Pop(context), Routes(context)
        context.services += self._services(context)
        readers = GroupReaders(context.store, context.offsets, context.schedule, self._timer_store)
        context.store.wait_for_readers(readers.first_unread)
        state.add(DELAY_FILE, context.schedule)
        state.add(COUNTS_FILE, context.transactions.counts)
        state.add(ORDER_FILE, context.pop.engine.order)
        state.add(MODES_FILE, context.request_modes, at_once=True)
        context.request_modes.on_change.append(state.changed)
        context.on_close += [context.producers.on_close, context.consumers.on_close]
        context.consumers.notify_enabled = self._wants_notice
        topics.on_change.append(lambda topic, config: state.changed())
        groups.on_change.append(lambda group, config: state.changed())
        if context.config.memory_topics:
            _follow_topics(cast("StoreWithMemory", context.store), topics)
        context.registration.saved = state.when_saved
        if topics.changes:
            state.changed()

    def _services(self, context: BrokerContext) -> list[Service]:
        """Return what works beside requests. A replica appends nothing of its own: its primary does."""
        failover = [self._failover] if self._failover is not None else []
        context.failover = self._failover
        if self.config.is_replica:
            context.replication = replica = Replica(context, self._succession)
            context.state_sync = state = StateSync(context, self._primary_timers)
            if self._failover is not None:
                self._failover.attach(context, None)  # it tells both who is the primary
            else:
                context.registration.on_primary += [replica.use_primary, state.use_primary]
            return [context.routes, replica, state, *failover]
        in_sync = InSync(self.config, lambda: context.store.max_log_offset)
        context.replication = self._ha_server = HaServer(context, in_sync)
        if self.config.store.role is Role.SYNC_PRIMARY:
            context.replicas = in_sync
        if self._failover is not None:
            self._failover.attach(context, in_sync)
            context.registration.failover = self._failover
        timers = [context.timers] if context.timers is not None else []
        followers = Followers(context, self._succession)
        own: list[Service] = [
            context.schedule,
            context.transactions,
            *timers,
            context.pop,
            context.routes,
        ]
        return [*own, followers, *failover]

    def _wants_notice(self, group: str) -> bool:
        config = self.context.groups.get(group)
        allowed = config is None or config.notify_consumer_ids_changed_enable
        return allowed and self.config.notify_consumers

    async def _serve(self, ports: Ports) -> None:
        context = self.context
        self._sends = SendProcessor(context)
        router = Router(
            (
                self._sends,
                SendBackProcessor(context),
                ReplyProcessor(context),
                PullProcessor(context),
                PopProcessor(context),
                AckProcessor(context),
                AssignmentProcessor(context),
                QueryProcessor(context),
                ClientsProcessor(context),
                OffsetsProcessor(context),
                TopicsAdminProcessor(context),
                GroupsAdminProcessor(context),
                ProgressProcessor(context),
                RuntimeProcessor(context),
                ReplicationProcessor(context),
                ConnectionsProcessor(context),
                ResetProcessor(context),
                TimersProcessor(context, self._sends.flush_wait),
                TransactionProcessor(context),
            ),
            context.request_log,
        )
        handler = BrokerHandler(router, self._sends, context.on_close)
        for port in (ports.port, ports.fast_port):
            server = Server(handler, self.config.net)
            await server.start(self.config.bind_host, port)
            self._servers.append(server)

        if self._ha_server is not None:
            await self._serve_replicas(self._ha_server, ports.port)

    async def _serve_replicas(self, server: HaServer, port: int) -> None:
        config = self.config
        if config.ha_port_given:
            await server.start(config.bind_host, config.ha_port, other=False)
        else:
            next_port = port + 1 if config.port and port < 65535 else 0
            await server.start(config.bind_host, next_port, other=True)
        self.context.registration.ha_port = server.port

    def _start_jobs(self) -> None:
        config, context, state = self.config, self.context, self._state
        assert state is not None
        self._jobs.add("save state", lambda: config.offset_save_ms, state.save)
        self._jobs.add("expire clients", lambda: config.client_scan_ms, self._expire_clients)
        self._jobs.add("statistics", 1 * SECOND_MS, self._sample)
        self._jobs.add("log of requests", 1 * SECOND_MS, context.request_log.tick)
        for service in context.services:
            service.start()

    def _expire_clients(self) -> None:
        context = self.context
        before_ms = context.clock.now_ms() - self.config.client_expiry_ms
        context.producers.expire(before_ms)
        context.consumers.expire(before_ms)
        context.locks.expire()

    def _sample(self) -> None:
        self.context.statistics.tick(self.context.store.statistics())

    # Closing

    async def stop(self) -> None:
        """Answer what is on its way, write everything and close. A second call does nothing."""
        if self._restarting is not None:
            self._restart_wanted = False
            await asyncio.wait([self._restarting])
        if self._failover is not None:
            self._failover.stop()  # takes over nothing any more
        await self._stop()
        await self._end_failover()

    async def _end_failover(self) -> None:
        if self._failover is not None:
            await self._failover.end()

    async def _stop(self) -> None:
        if self._context is not None:
            await self._context.registration.stop()
            await self._send_away(self._context)
            self._context.stopping = True
        for server in self._servers:
            server.stop_listening()
        await self._jobs.stop()
        if self._context is not None:
            await self._answer_all(self._context)
        if self._ha_server is not None:
            await self._ha_server.stop()
            self._ha_server = None
        for server in self._servers:
            await server.stop(self.config.stop_grace_ms)
        self._servers.clear()
        if self._context is not None:
            self._context.request_log.close()
        await self._close_files()

    async def _send_away(self, context: BrokerContext) -> None:
        """Send clients to other brokers, if that is wanted, and wait until they are gone."""
        if not self.config.graceful_stop:
            return
        wait_ms = self.config.graceful_stop_seconds * SECOND_MS
        leaving = [
            asyncio.ensure_future(server.send_away(wait_ms, LAST_WORDS)) for server in self._servers
        ]
        await asyncio.sleep(0)  # from here on a pull that comes back is sent away
        context.long_poll.wake_all()
        await asyncio.gather(*leaving)

    async def _answer_all(self, context: BrokerContext) -> None:
        """Answer parked pulls and whatever waits for the disk; deliver nothing more."""
        for service in reversed(context.services):
            service.stop()
        context.long_poll.stop()
        deadline = self._clock.monotonic_ms() + self.config.store.sync_flush_timeout_ms
        while any(count() for count in context.pending) and self._clock.monotonic_ms() < deadline:
            await asyncio.sleep(0.002)

    async def _close_files(self) -> None:
        state, self._state = self._state, None
        opening, self._opening = self._opening, None
        timers, self._timer_store = self._timer_store, None
        self._primary_timers = None
        context, self._context = self._context, None
        if state is not None:
            # Without a context the tables were not taken over from the files: leave those alone.
            await (state.close() if context is not None else state.abandon())
        if opening is not None:
            await asyncio.wait([opening])
            if timers is not None:
                timers.close()
            if opening.exception() is None:
                await asyncio.get_running_loop().run_in_executor(None, opening.result().close)


def open_store_of(
    config: BrokerConfig,
    topics: TopicTable,
    clock: Clock,
    *,
    disk: Disk | None = None,
    background: bool = True,
) -> MessageStore:
    """Open a broker's store, with topics in memory if they are enabled."""
    if not config.memory_topics:
        return MessageStore.open(
            config.store,
            clock=clock,
            disk=disk,
            topic_types=topics.queue_type,
            background=background,
        )
    # Here, not above: few brokers have such topics.
    from orbitmq.store.memory.store_with_memory import StoreWithMemory

    return StoreWithMemory.open_with_memory(
        config.store,
        is_memory=topics.is_memory,
        bytes_max=config.memory_topic_bytes_max,
        clock=clock,
        disk=disk,
        topic_types=topics.queue_type,
        background=background,
    )


def _follow_topics(store: "StoreWithMemory", topics: TopicTable) -> None:
    """Have the offsets of each topic in memory reserved before its first message."""

    def follow(topic: str, config: TopicConfig | None) -> None:
        if config is not None and topics.is_memory(topic):
            store.memory.add_topic(topic, max(config.read_queue_nums, config.write_queue_nums))

    for topic, config in topics.all().items():
        follow(topic, config)
    topics.on_change.append(follow)


def _address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
