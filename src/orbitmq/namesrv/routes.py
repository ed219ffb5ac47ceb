"""RouteTable: brokers, clusters and topics as the brokers registered them, and when they last did.

Nothing of it is kept on disk: it is as old as the last registrations. It knows no sockets; what stands
for a connection is an object that is only compared.

table    | key                | value
brokers  | broker name        | BrokerData: cluster, address of each broker id
clusters | cluster            | names of its brokers
topics   | topic, broker name | QueueData: numbers of queues, permission
live     | cluster, address   | when and over which connection a broker was last heard of
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import replace

from orbitmq.clock import Clock
from orbitmq.namesrv.config import BROKER_EXPIRES_MS
from orbitmq.wire.bodies.route import PRIMARY_ID, BrokerData, QueueData
from orbitmq.wire.bodies.topic_config import (
    PERM_READ,
    PERM_WRITE,
    DataVersion,
    Registration,
    TopicConfig,
)
from orbitmq.wire.headers.registration import RegisterBroker

logger = logging.getLogger(__name__)

Address = tuple[str, str]  # cluster, "host:port"


@dataclass(slots=True)
class LiveBroker:
    """A broker that was heard of."""

    broker_name: str
    heard_ms: float  # by the monotonic clock
    expires_ms: float  # so long may it be silent
    data_version: DataVersion
    connection: object
    ha_server_addr: str


class Registered(NamedTuple):
    """What a broker learns by its registration: a replica, where its primary is."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class RouteTable:
    """Who serves what. Belongs to one thread."""

    def __init__(self, clock: Clock) -> None:
        self.brokers: dict[str, BrokerData] = {}
        self.clusters: dict[str, set[str]] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.mappings: dict[str, dict[str, Any]] = {}  # static topics: topic, broker name
        self.filter_servers: dict[Address, list[str]] = {}
        self.live: dict[Address, LiveBroker] = {}
        self.version = (
            0  # counts changes: what was worked out of the tables is as good as this is old
        )
        self._clock = clock

    # --- brokers come ---

    def register(
        self,
        broker: RegisterBroker,
        body: Registration,
        connection: object,
        *,
        delete_topics: bool = False,
    ) -> Registered | None:
        """Take a broker's registration. None: refused, it has to tell all of its topics first."""
        table = body.topic_config_serialize_wrapper
        address = (broker.cluster_name, broker.broker_addr)
        known = self.brokers.get(broker.broker_name)
        ids = dict(known.broker_addrs) if known is not None else {}
        for broker_id in [i for i, a in ids.items() if a == broker.broker_addr]:
            if broker_id != broker.broker_id:
                del ids[broker_id]  # it has become primary, or is it no more
        if self._is_outdated(broker, ids, table.data_version):
            self.live.pop(address, None)
            return Registered()
        # A change alone does not tell the rest: this name server was just started.
        if broker.broker_id not in ids and len(table.topic_config_table) == 1:
            return None
        is_first = broker.broker_id not in ids
        ids[broker.broker_id] = broker.broker_addr
        data = self._put_broker(broker, ids)
        if self._leads(broker, ids):
            changed = is_first or self.is_changed(address, table.data_version)
            if delete_topics and not table.topic_queue_mapping_info_map:
                self._forget_others(broker.broker_name, table.topic_config_table)
            read_only = broker.broker_id != PRIMARY_ID and data.enable_acting_master
            self._put_topics(broker.broker_name, table.topic_config_table, changed, read_only)
            if changed:
                self._put_mappings(table.topic_queue_mapping_info_map)
        self._put_live(broker, address, table.data_version, connection, body.filter_server_list)
        return self._primary_of(broker, data)

    def _is_outdated(self, broker: RegisterBroker, ids: dict[int, str], now: DataVersion) -> bool:
        """Return whether another broker of this id is known to be newer: this one was replaced."""
        other = ids.get(broker.broker_id)
        if other is None or other == broker.broker_addr:
            return False
        live = self.live.get((broker.cluster_name, other))
        if live is None or live.data_version.state_version <= now.state_version:
            return False
        logger.warning(
            "broker %s at %s: not registered, %s has the same id and a newer state",
            broker.broker_name,
            broker.broker_addr,
            other,
        )
        return True

    def _put_broker(self, broker: RegisterBroker, ids: dict[int, str]) -> BrokerData:
        self.clusters.setdefault(broker.cluster_name, set()).add(broker.broker_name)
        data = BrokerData(
            broker_name=broker.broker_name,
            cluster=broker.cluster_name,
            broker_addrs=dict(sorted(ids.items())),
            enable_acting_master=bool(broker.enable_acting_master),
            zone_name=broker.zone_name,
        )
        if self.brokers.get(broker.broker_name) != data:
            self.brokers[broker.broker_name] = data
            self.version += 1
            logger.info("broker %s: %s", broker.broker_name, data.broker_addrs)
        return data

    def _leads(self, broker: RegisterBroker, ids: dict[int, str]) -> bool:
        """Return whether this broker's word on topics counts."""
        if broker.broker_id == PRIMARY_ID:
            return True
        return broker.enable_acting_master is not None and broker.broker_id == min(ids)

    def _put_topics(
        self, name: str, topics: Mapping[str, TopicConfig], changed: bool, read_only: bool
    ) -> None:
        for topic, config in topics.items():
            queues = self.topics.setdefault(topic, {})
            if not changed and name in queues:
                continue
            data = QueueData(
                broker_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=config.perm & ~PERM_WRITE if read_only else config.perm,
                topic_sys_flag=config.topic_sys_flag,
            )
            if queues.get(name) != data:
                queues[name] = data
                self.version += 1

    def _put_mappings(self, mappings: Mapping[str, Any]) -> None:
        for topic, mapping in mappings.items():
            name = mapping.get("bname") if isinstance(mapping, dict) else None
            if isinstance(name, str):
                self.mappings.setdefault(topic, {})[name] = mapping
                self.version += 1

    def _put_live(
        self,
        broker: RegisterBroker,
        address: Address,
        version: DataVersion,
        connection: object,
        filter_servers: list[str],
    ) -> None:
        expires_ms = broker.heartbeat_timeout_millis or 0
        self.live[address] = LiveBroker(
            broker.broker_name,
            self._clock.monotonic_ms(),
            expires_ms if expires_ms > 0 else BROKER_EXPIRES_MS,
            version,
            connection,
            broker.ha_server_addr,
        )
        if self.filter_servers.get(address, []) != filter_servers:
            self.version += 1
            if filter_servers:
                self.filter_servers[address] = filter_servers
            else:
                self.filter_servers.pop(address, None)

    def _primary_of(self, broker: RegisterBroker, data: BrokerData) -> Registered:
        primary = data.primary
        if broker.broker_id == PRIMARY_ID or primary is None:
            return Registered()
        live = self.live.get((broker.cluster_name, primary))
        return Registered() if live is None else Registered(primary, live.ha_server_addr)

    # --- brokers are heard of ---

    def touch(self, address: Address) -> None:
        """Note that a broker is there; one that never registered stays unknown."""
        live = self.live.get(address)
        if live is not None:
            live.heard_ms = self._clock.monotonic_ms()

    def data_version(self, address: Address) -> DataVersion | None:
        """Return which state of its topics a broker sent last."""
        live = self.live.get(address)
        return None if live is None else live.data_version

    def is_changed(self, address: Address, version: DataVersion) -> bool:
        """Return whether a broker in this state has anything new to tell."""
        return self.data_version(address) != version

    # --- brokers go ---

    def unregister(self, broker_name: str, address: Address) -> None:
        """Forget a broker; with the last one of a name its topics' queues go too."""
        self.live.pop(address, None)
        self.filter_servers.pop(address, None)
        known = self.brokers.get(broker_name)
        if known is None:
            return
        left = {i: other for i, other in known.broker_addrs.items() if other != address[1]}
        self.version += 1
        if left:
            self.brokers[broker_name] = replace(known, broker_addrs=left)
            if known.enable_acting_master and PRIMARY_ID not in left:
                self._set_perms(broker_name, lambda perm: perm & ~PERM_WRITE)
            return
        del self.brokers[broker_name]
        for cluster, names in list(self.clusters.items()):
            names.discard(broker_name)
            if not names:
                del self.clusters[cluster]
        self._forget_topics([broker_name], list(self.topics))

    def connection_lost(self, connection: object) -> list[str]:
        """Forget the brokers that registered over this connection last; return their names."""
        return self._remove([a for a, live in self.live.items() if live.connection is connection])

    def expire(self) -> list[LiveBroker]:
        """Forget the brokers that were silent for too long; return them."""
        now = self._clock.monotonic_ms()
        silent = {a: b for a, b in self.live.items() if now - b.heard_ms > b.expires_ms}
        self._remove(silent)
        return list(silent.values())

    def _remove(self, addresses: Iterable[Address]) -> list[str]:
        names = []
        for address in addresses:
            name = self.live[address].broker_name
            self.unregister(name, address)
            names.append(name)
        return names

    # --- topics ---

    def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        """Forget a topic, everywhere or on the brokers of one cluster."""
        names = self.topics.get(topic, {}) if cluster is None else self.clusters.get(cluster, set())
        self._forget_topics(list(names), [topic])

    def add_topic(self, topic: str, queues: list[QueueData]) -> None:
        """Add a topic that no broker registered; all of its brokers have to be known."""
        if queues and all(queue.broker_name in self.brokers for queue in queues):
            self.topics.setdefault(topic, {}).update({q.broker_name: q for q in queues})
            self.version += 1

    def wipe_write_perm(self, broker_name: str) -> int:
        """Take the right to write from all topics of a broker; return how many there are."""
        return self._set_perms(broker_name, lambda perm: perm & ~PERM_WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        """Allow reading and writing for all topics of a broker; return how many there are."""
        return self._set_perms(broker_name, lambda _: PERM_READ | PERM_WRITE)

    def _set_perms(self, broker_name: str, perm_of: Callable[[int], int]) -> int:
        count = 0
        for queues in self.topics.values():
            data = queues.get(broker_name)
            if data is not None:
                queues[broker_name] = replace(data, perm=perm_of(data.perm))
                count += 1
        self.version += 1
        return count

    def _forget_others(self, broker_name: str, topics: Mapping[str, TopicConfig]) -> None:
        self._forget_topics([broker_name], [topic for topic in self.topics if topic not in topics])

    def _forget_topics(self, broker_names: list[str], topics: list[str]) -> None:
        self.version += 1
        for topic in topics:
            for table in (self.topics, self.mappings):
                by_name: dict[str, Any] = table.get(topic, {})
                for name in broker_names:
                    by_name.pop(name, None)
                if not by_name:
                    table.pop(topic, None)
