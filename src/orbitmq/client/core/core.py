"""ClientCore: what the producers, consumers and admin of one client id share.

Connections, routes, heartbeats, periodic jobs, and the requests that brokers send to clients. One core
belongs to one event loop; clients of the same cluster with the same instance name on that loop share it.

    core = await ClientCore.acquire(config)
    core.add_consumer(consumer)              # a ConsumerRole: now in heartbeats, gets requests
    await core.heartbeat()                   # at once; from then on every 30 s
    queues = await core.routes.subscribe_queues("Orders")
    address = core.routes.primary(queues[0].broker_name)
    result = await core.brokers.pull(address, PullHeader(...))
    await core.remove_consumer(consumer)     # leaves the group on all brokers
    await core.release()

job                       | first  | period
refresh routes            | 10 ms  | 30 s (a route is asked for when it is first needed)
heartbeat to all brokers  | 1 s    | 30 s, and to each new connection of a broker
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, Protocol, TypeVar

from orbitmq.client.core.broker_api import BrokerApi
from orbitmq.client.core.broker_requests import BrokerRequests
from orbitmq.client.core.calls import Calls
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.namesrv_api import NamesrvApi
from orbitmq.client.core.roles import ConsumerRole, ProducerRole
from orbitmq.client.core.route_cache import RouteCache
from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ClientError, UnreachableError, WireError
from orbitmq.net.channels import Channels
from orbitmq.net.config import NetConfig
from orbitmq.net.connection import Connection
from orbitmq.net.tasks import PeriodicJobs
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.heartbeat import HeartbeatData, ProducerData
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import PRIMARY_ID

_log = logging.getLogger(__name__)

Work = Coroutine[Any, Any, None]

_FIRST_ROUTES_MS: Final = 10
_FIRST_HEARTBEAT_MS: Final = 1 * SECOND_MS
_GREET_AFTER_S: Final = 0.05
_LEAVE_TIMEOUT_MS: Final = 1 * SECOND_MS

# By client id and name servers: who has the same name in another cluster must not get its routes.
_CoreKey = tuple[str, tuple[str, ...]]
_cores: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, dict[_CoreKey, ClientCore]]" = (
    weakref.WeakKeyDictionary()
)


class Part(Protocol):
    """Something that lives as long as the core."""

    async def close(self) -> None: ...


P = TypeVar("P", bound=Part)


class ClientCore:
    """Everything that one client id has of its own. Belongs to its loop's thread."""

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self.config = config.named()
        self.client_id = self.config.client_id
        self.clock: Clock = clock or SystemClock()
        self._requests = BrokerRequests(self)
        self.channels = Channels(
            self._requests, NetConfig(connect_timeout_ms=config.connect_timeout_ms)
        )
        self.calls = Calls(self.config, self.channels)
        self.namesrv = NamesrvApi(self.calls)
        self.brokers = BrokerApi(self.calls)
        self.routes = RouteCache(self.namesrv, config.creation_topic, config.creation_queues)
        self.broker_versions: dict[str, int] = {}
        self._producers: dict[str, ProducerRole] = {}
        self._consumers: dict[str, ConsumerRole] = {}
        self._jobs = PeriodicJobs()
        self._greeted: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._parts: dict[type[Any], Part] = {}
        self._holders = 0

    # --- life ---

    @classmethod
    async def acquire(cls, config: ClientConfig, clock: Clock | None = None) -> "ClientCore":
        """Return the running core of this client id in its cluster on this loop; `release` it when done."""
        cores = _cores.setdefault(asyncio.get_running_loop(), {})
        named = config.named()
        key = named.client_id, named.namesrv
        core = cores.get(key)
        if core is None:
            core = cores[key] = cls(named, clock)
            core.start()
        core._holders += 1
        return core

    async def release(self) -> None:
        """Let go of the core; the last one to do so stops it."""
        self._holders -= 1
        if self._holders <= 0:
            cores = _cores.get(asyncio.get_running_loop(), {})
            key = self.client_id, self.config.namesrv
            if cores.get(key) is self:
                del cores[key]
            await self.stop()

    def start(self) -> None:
        """Start the periodic jobs; connections are made when they are needed."""
        config = self.config
        routes, heartbeat = (f"{name} of {self.client_id}" for name in ("routes", "heartbeat"))
        self._jobs.add(
            routes, config.route_interval_ms, self.refresh_routes, first_ms=_FIRST_ROUTES_MS
        )
        self._jobs.add(
            heartbeat, config.heartbeat_interval_ms, self.heartbeat, first_ms=_FIRST_HEARTBEAT_MS
        )

    async def stop(self) -> None:
        """Leave all groups and close all connections."""
        await self._jobs.stop()
        for part in list(self._parts.values()):
            await part.close()
        for task in self._tasks:
            task.cancel()
        await self._requests.stop()
        for group in list(self._producers):
            await self._leave(producer_group=group)
        for group in list(self._consumers):
            await self._leave(consumer_group=group)
        await self.channels.close()

    # --- roles ---

    @property
    def producers(self) -> Iterable[ProducerRole]:
        return list(self._producers.values())

    def producer(self, group: str) -> ProducerRole | None:
        return self._producers.get(group)

    def consumer(self, group: str) -> ConsumerRole | None:
        return self._consumers.get(group)

    def add_producer(self, producer: ProducerRole) -> None:
        """Let a producer take part in heartbeats. ClientError: the group has one here already."""
        self._require_free(producer.group, self._producers)
        self._producers[producer.group] = producer

    def add_consumer(self, consumer: ConsumerRole) -> None:
        """Let a consumer take part in heartbeats. ClientError: the group has one here already."""
        self._require_free(consumer.group, self._consumers)
        self._consumers[consumer.group] = consumer

    def _require_free(
        self, group: str, taken: dict[str, ProducerRole] | dict[str, ConsumerRole]
    ) -> None:
        if group in taken:
            raise ClientError(
                f"group {group} exists already in client {self.client_id}."
                " Give the second one another instance_name, or another group."
            )

    async def remove_producer(self, producer: ProducerRole) -> None:
        """Take a producer out and tell the brokers."""
        if self._producers.pop(producer.group, None) is not None:
            await self._leave(producer_group=producer.group)

    async def remove_consumer(self, consumer: ConsumerRole) -> None:
        """Take a consumer out and tell the brokers."""
        if self._consumers.pop(consumer.group, None) is not None:
            await self._leave(consumer_group=consumer.group)

    async def _leave(
        self, *, producer_group: str | None = None, consumer_group: str | None = None
    ) -> None:
        addresses = [a for a in self.channels.addresses if a not in self.namesrv.addresses]
        leaving = (
            self._leave_one(address, producer_group, consumer_group) for address in addresses
        )
        await asyncio.gather(*leaving)

    async def _leave_one(
        self, address: str, producer_group: str | None, consumer_group: str | None
    ) -> None:
        try:
            async with asyncio.timeout(_LEAVE_TIMEOUT_MS / 1000):
                await self.brokers.unregister(
                    address,
                    self.client_id,
                    producer_group=producer_group,
                    consumer_group=consumer_group,
                )
        except (WireError, TimeoutError) as failure:
            # The broker sees the connection close in a moment, which means the same.
            _log.debug("%s: not told that we leave: %s", address, failure)

    # --- jobs ---

    async def refresh_routes(self) -> None:
        """Ask the name server for all routes that are in use."""
        await self.routes.refresh_all()

    def refresh_route_soon(self, topic: str) -> None:
        """Ask for the route of a topic, if it is in use; whoever depends on it hears of a change."""
        if topic in self.routes.topics:
            self.spawn(self._refresh_quietly(topic))

    async def _refresh_quietly(self, topic: str) -> None:
        try:
            await self.routes.refresh(topic)
        except WireError as failure:
            _log.warning("route of topic %s: not refreshed: %s", topic, failure)

    async def heartbeat(self) -> int:
        """Tell all brokers who we are; return how many heard it."""
        if not self._producers and not self._consumers:
            return 0
        data = self.heartbeat_data()
        addresses = [
            address
            for by_id in self.routes.brokers().values()
            for broker_id, address in by_id.items()
            if broker_id == PRIMARY_ID or self._consumers
        ]
        heard = await asyncio.gather(*(self._heartbeat_one(a, data) for a in addresses))
        return sum(heard)

    async def _heartbeat_one(self, address: str, data: HeartbeatData) -> bool:
        try:
            connection = await self.channels.get(address)
            self._greeted.add(connection)
            self.broker_versions[address] = await self.brokers.heartbeat(address, data)
        except WireError as failure:
            _log.warning("heartbeat to %s failed: %s", address, failure)
            return False
        return True

    def heartbeat_data(self) -> HeartbeatData:
        """Return what we tell brokers about us."""
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self._producers)],
            consumer_data_set=[self._consumers[g].consumer_data() for g in sorted(self._consumers)],
        )

    # --- connections ---

    def on_connected(self, connection: Connection) -> None:
        """Greet the broker: it ties our groups to the connection, which is a new one."""
        loop = asyncio.get_running_loop()
        loop.call_later(_GREET_AFTER_S, self._greet, weakref.ref(connection))

    def _greet(self, reference: "weakref.ref[Connection]") -> None:
        connection = reference()
        if connection is None or connection.closed or connection in self._greeted:
            return
        address = connection.owner_data.get("address", "")
        known = {a for by_id in self.routes.brokers().values() for a in by_id.values()}
        if address in known and (self._producers or self._consumers):
            self._greeted.add(connection)
            self.spawn(self._greet_quietly(address))

    async def _greet_quietly(self, address: str) -> None:
        await self.greet(address)

    async def greet(self, address: str) -> bool:
        """Tell one broker who we are; return whether it heard that."""
        return await self._heartbeat_one(address, self.heartbeat_data())

    async def announce(self, queues: Iterable[MessageQueue]) -> None:
        """Tell the brokers of queues who we are. UnreachableError: one of them does not answer."""
        named = list(queues)
        for topic in sorted({queue.topic for queue in named}):
            await self.routes.publish_route(topic)
        for broker in sorted({queue.broker_name for queue in named}):
            address = self.routes.primary(broker)
            if address is not None and not await self.greet(address):
                raise UnreachableError(address, "the broker does not answer", "")

    def on_disconnected(self, connection: Connection) -> None:
        """Nothing to do: the next request connects again."""

    def spawn(self, work: Work) -> None:
        """Run a coroutine beside; it is cancelled when the core stops."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- parts ---

    def part(self, kind: type[P], make: Callable[[], P]) -> P:
        """Return the one part of this kind that belongs to the core, made by whoever asks first."""
        known = self._parts.get(kind)
        if isinstance(known, kind):
            return known
        made = self._parts[kind] = make()
        return made
