"""Routes: which queues of a topic may be written or read, and at which addresses brokers are.

`publish_queues` and `subscribe_queues` are the rules, `RouteCache` remembers what the name server said.
Topics that were asked for are refreshed by the core every 30 seconds until they are forgotten.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from orbitmq.client.core.namesrv_api import NamesrvApi
from orbitmq.errors import NoRouteError, UnreachableError, WireError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import PRIMARY_ID, TopicRoute
from orbitmq.wire.bodies.topic_config import PERM_READ, PERM_WRITE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PublishRoute:
    """The queues to which messages of a topic may be sent, sorted by broker name and queue id."""

    topic: str
    queues: tuple[MessageQueue, ...]
    ordered: bool = (
        False  # the name server fixes the number of queues, also of brokers that are down
    )
    created: bool = True  # False: the topic does not exist yet, a broker makes it at the first send
    by_broker: dict[str, tuple[MessageQueue, ...]] = field(default_factory=dict, compare=False)

    @property
    def brokers(self) -> tuple[str, ...]:
        return tuple(self.by_broker)


def publish_route(topic: str, route: TopicRoute, *, created: bool = True) -> PublishRoute:
    """Return where messages of a topic may go."""
    queues = publish_queues(topic, route)
    by_broker: dict[str, tuple[MessageQueue, ...]] = {}
    for queue in queues:
        by_broker[queue.broker_name] = (*by_broker.get(queue.broker_name, ()), queue)
    ordered = bool(route.order_topic_conf)
    return PublishRoute(topic, tuple(queues), ordered, created, by_broker)


def publish_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the writable queues of brokers with a primary; an order configuration fixes them instead."""
    if route.order_topic_conf:
        return ordered_queues(topic, route.order_topic_conf)
    primaries = {broker.broker_name for broker in route.broker_datas if broker.primary}
    return [
        MessageQueue(topic, data.broker_name, queue_id)
        for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        if data.perm & PERM_WRITE and data.broker_name in primaries
        for queue_id in range(data.write_queue_nums)
    ]


def ordered_queues(topic: str, order_conf: str) -> list[MessageQueue]:
    """Return the queues of "broker-a:4;broker-b:4"; parts that are not of this form are left out."""
    queues = []
    for part in order_conf.split(";"):
        broker_name, _, count = part.rpartition(":")
        if broker_name and count.isdecimal():
            queues += [MessageQueue(topic, broker_name, queue_id) for queue_id in range(int(count))]
    return queues


def subscribe_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
    """Return the readable queues, sorted by broker name and queue id."""
    return sorted(
        MessageQueue(topic, data.broker_name, queue_id)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for queue_id in range(data.read_queue_nums)
    )


def creation_route(route: TopicRoute, queues_max: int) -> TopicRoute:
    """Return the route of the creation topic as one for a topic that does not exist yet."""
    for data in route.queue_datas:
        count = min(queues_max, data.read_queue_nums)
        data.read_queue_nums = data.write_queue_nums = count
    return route


class RouteCache:
    """What the name server said of topics, and the addresses of all brokers in it. Of the loop's thread."""

    def __init__(self, namesrv: NamesrvApi, creation_topic: str, creation_queues: int) -> None:
        self._namesrv = namesrv
        self._creation_topic, self._creation_queues = creation_topic, creation_queues
        self._routes: dict[str, TopicRoute] = {}
        self._publish: dict[str, PublishRoute] = {}
        self.publish_route_nowait = self._publish.get
        """Where to send, if that is known; never asks."""
        self._subscribe: dict[str, list[MessageQueue]] = {}
        self._addresses: dict[str, dict[int, str]] = {}
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._watched: dict[str, int] = {}
        self._listeners: list[Callable[[str], None]] = []

    # --- topics ---

    def watch(self, topic: str) -> None:
        """Keep the route of this topic fresh until `unwatch` is called as often."""
        self._watched[topic] = self._watched.get(topic, 0) + 1

    def unwatch(self, topic: str) -> None:
        count = self._watched.get(topic, 0) - 1
        if count > 0:
            self._watched[topic] = count
        else:
            self._watched.pop(topic, None)

    @property
    def topics(self) -> list[str]:
        """The topics that are kept fresh: watched ones and all that have a route."""
        return sorted({*self._watched, *self._routes, *self._publish})

    def on_changed(self, listener: Callable[[str], None]) -> None:
        """Call the listener with the topic whenever a route is new or changed."""
        self._listeners.append(listener)

    async def publish_route(self, topic: str) -> PublishRoute:
        """Return where to send; a topic that does not exist is sent to the creation topic's brokers."""
        known = self._publish.get(topic)
        if known is not None and known.queues:
            return known
        if not await self.refresh(topic):
            await self._refresh_from_creation_topic(topic)
        route = self._publish.get(topic)
        if route is None:
            raise self.no_route(topic)
        if not route.queues:
            what = "none of its queues may be written, or their brokers have no primary"
            step = "`orbitmq topic stats` tells permissions and brokers."
            raise NoRouteError(topic, what, step)
        return route

    async def subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """Return the queues to read; empty: the topic exists, but nothing of it may be read."""
        if topic not in self._subscribe and not await self.refresh(topic):
            raise self.no_route(topic)
        return list(self._subscribe[topic])

    def no_route(self, topic: str) -> NoRouteError:
        servers = ", ".join(self._namesrv.addresses)
        return NoRouteError(
            topic,
            f"no name server ({servers}) knows it",
            "Create it with `orbitmq topic create`, or start a broker that creates topics"
            " (autoCreateTopicEnable=true).",
        )

    async def refresh(self, topic: str) -> bool:
        """Ask for the route of one topic; return whether there is one. Callers share one question."""
        task = self._asking.get(topic)
        if task is None:
            task = asyncio.ensure_future(self._ask(topic))
            self._asking[topic] = task
            task.add_done_callback(lambda done: self._asked(topic, done))
        return await asyncio.shield(task)

    def _asked(self, topic: str, task: "asyncio.Task[bool]") -> None:
        self._asking.pop(topic, None)
        if not task.cancelled():
            task.exception()  # those who waited got it

    async def _ask(self, topic: str) -> bool:
        route = await self._namesrv.route(topic)
        if route is None:
            return False
        self.put(topic, route)
        return True

    async def _refresh_from_creation_topic(self, topic: str) -> None:
        if topic == self._creation_topic:
            return
        route = await self._namesrv.route(self._creation_topic)
        if route is not None:
            self._put_addresses(route)
            template = creation_route(route, self._creation_queues)
            self._publish[topic] = publish_route(topic, template, created=False)

    async def refresh_all(self) -> None:
        """Ask for the routes of all topics; a name server that does not answer leaves things as they are."""
        for topic in self.topics:
            try:
                found = await self.refresh(topic)
                if not found and (known := self._publish.get(topic)) and not known.created:
                    await self._refresh_from_creation_topic(topic)
            except WireError as failure:
                _log.warning("route of topic %s: not refreshed: %s", topic, failure)
        self._drop_old_addresses()

    def put(self, topic: str, route: TopicRoute) -> None:
        """Remember a route; listeners hear of it if it is another one than before."""
        changed = self._routes.get(topic) != route
        self._routes[topic] = route
        self._put_addresses(route)
        if not changed:
            return
        self._publish[topic] = publish_route(topic, route)
        self._subscribe[topic] = subscribe_queues(topic, route)
        for listener in self._listeners:
            listener(topic)

    def forget(self, topic: str) -> None:
        """Ask again at the next use."""
        self._routes.pop(topic, None)
        self._publish.pop(topic, None)
        self._subscribe.pop(topic, None)

    # --- brokers ---

    def _put_addresses(self, route: TopicRoute) -> None:
        for broker in route.broker_datas:
            if broker.broker_addrs:
                self._addresses[broker.broker_name] = dict(broker.broker_addrs)

    def _drop_old_addresses(self) -> None:
        used = {queue.broker_name for route in self._publish.values() for queue in route.queues}
        for route in self._routes.values():
            used.update(broker.broker_name for broker in route.broker_datas)
        for broker_name in set(self._addresses) - used:
            del self._addresses[broker_name]

    def primary(self, broker_name: str) -> str | None:
        """Return the address that takes messages and offsets of this broker, if it is known."""
        return self._addresses.get(broker_name, {}).get(PRIMARY_ID)

    def address(self, broker_name: str, broker_id: int = PRIMARY_ID) -> str | None:
        """Return the address of this broker id, else of any of this broker: for reading."""
        addresses = self._addresses.get(broker_name, {})
        return addresses.get(broker_id) or next(iter(addresses.values()), None)

    async def find_address(self, broker_name: str, topic: str, broker_id: int = PRIMARY_ID) -> str:
        """Return such an address; where none is known, the topic's route is asked for. WireError: none."""
        address = self.address(broker_name, broker_id)
        if address is None:
            await self.refresh(topic)
            address = self.address(broker_name)
        if address is None:
            raise UnreachableError(broker_name, "no address of this broker is known")
        return address

    def any_address(self, topic: str) -> str | None:
        """Return some broker of the topic, a primary if there is one: it knows the topic's groups."""
        route = self._routes.get(topic)
        brokers = route.broker_datas if route is not None else []
        primaries = [broker.primary for broker in brokers if broker.primary]
        others = [address for broker in brokers for address in broker.broker_addrs.values()]
        return next(iter([*primaries, *others]), None)

    def brokers(self) -> dict[str, dict[int, str]]:
        """Return all known addresses by broker name and broker id."""
        return {name: dict(addresses) for name, addresses in self._addresses.items()}
