"""Questions about a RouteTable. They change nothing."""

from collections.abc import Iterator

from msgspec.structs import replace

from orbitmq.namesrv.routes import RouteTable
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.route import (
    PRIMARY_ID,
    BrokerData,
    BrokerMembers,
    BrokerMembersAnswer,
    ClusterInfo,
    QueueData,
    TopicRoute,
)
from orbitmq.wire.bodies.topic_config import PERM_WRITE, UNIT_FLAG, UNIT_SUBSCRIBED_FLAG

SYNC_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"


def route(table: RouteTable, topic: str, *, acting_master: bool = False) -> TopicRoute | None:
    """Return who serves a topic; None: nobody.

    `acting_master`: of a name without primary the first replica stands in as one, for reading.
    """
    queues = table.topics.get(topic, {})
    brokers = [table.brokers[name] for name in sorted(queues) if name in table.brokers]
    if not brokers:
        return None
    if acting_master and not topic.startswith(SYNC_TOPIC_PREFIX):
        brokers = [_with_stand_in(broker, queues[broker.broker_name]) for broker in brokers]
    return TopicRoute(
        broker_datas=brokers,
        queue_datas=[queues[name] for name in sorted(queues)],
        filter_server_table=_filter_servers(table, brokers),
        topic_queue_mapping_by_broker=table.mappings.get(topic),
    )


def in_zone(found: TopicRoute, zone: str) -> TopicRoute:
    """Return the part of a route that is in a zone. Names without primary stay: somebody has to serve."""
    away = {
        broker.broker_name
        for broker in found.broker_datas
        if broker.primary is not None and (broker.zone_name or "").lower() != zone.lower()
    }
    brokers = [broker for broker in found.broker_datas if broker.broker_name not in away]
    addresses = {address for broker in brokers for address in broker.broker_addrs.values()}
    filters = found.filter_server_table
    return replace(
        found,
        broker_datas=brokers,
        queue_datas=[queue for queue in found.queue_datas if queue.broker_name not in away],
        filter_server_table={a: servers for a, servers in filters.items() if a in addresses},
    )


def cluster_info(table: RouteTable) -> ClusterInfo:
    """Return all brokers and clusters."""
    return ClusterInfo(
        broker_addr_table=dict(sorted(table.brokers.items())),
        cluster_addr_table={c: sorted(names) for c, names in sorted(table.clusters.items())},
    )


def members(table: RouteTable, cluster: str, broker_name: str) -> BrokerMembersAnswer:
    """Return the brokers that share a name; nobody if the name is not known."""
    broker = table.brokers.get(broker_name)
    addresses = {} if broker is None else broker.broker_addrs
    group = BrokerMembers(cluster=cluster, broker_name=broker_name, broker_addrs=addresses)
    return BrokerMembersAnswer(broker_member_group=group)


def all_topics(table: RouteTable) -> TopicList:
    return TopicList(topic_list=sorted(table.topics))


def topics_of_cluster(table: RouteTable, cluster: str) -> TopicList:
    names = table.clusters.get(cluster, set())
    return TopicList(topic_list=sorted(t for t, q in table.topics.items() if names & q.keys()))


def system_topics(table: RouteTable) -> TopicList:
    """Return the names of clusters and brokers, which are topics too, and the address of some broker."""
    names = {*table.clusters, *(name for names in table.clusters.values() for name in names)}
    addresses = (a for broker in table.brokers.values() for a in broker.broker_addrs.values())
    return TopicList(topic_list=sorted(names), broker_addr=next(addresses, None))


def unit_topics(table: RouteTable) -> TopicList:
    """Return the topics of unit-wise deployments."""
    return TopicList(topic_list=sorted(t for t, flag in _flags(table) if flag & UNIT_FLAG))


def unit_subscribed_topics(table: RouteTable, *, not_of_units: bool = False) -> TopicList:
    """Return the topics with a unit-wise subscription; `not_of_units`: without those of `unit_topics`."""
    return TopicList(
        topic_list=sorted(
            topic
            for topic, flag in _flags(table)
            if flag & UNIT_SUBSCRIBED_FLAG and not (not_of_units and flag & UNIT_FLAG)
        )
    )


def _flags(table: RouteTable) -> Iterator[tuple[str, int]]:
    """Yield each topic with the flags that the first of its brokers gave it."""
    for topic, queues in table.topics.items():
        for data in queues.values():
            yield topic, data.topic_sys_flag
            break


def _with_stand_in(broker: BrokerData, queue: QueueData) -> BrokerData:
    addresses = dict(broker.broker_addrs)
    stands_in = broker.enable_acting_master and not queue.perm & PERM_WRITE
    if not addresses or PRIMARY_ID in addresses or not stands_in:
        return broker
    addresses = {PRIMARY_ID: addresses.pop(min(addresses)), **addresses}
    return replace(broker, broker_addrs=addresses)


def _filter_servers(table: RouteTable, brokers: list[BrokerData]) -> dict[str, list[str]]:
    found = {}
    for broker in brokers:
        for address in broker.broker_addrs.values():
            servers = table.filter_servers.get((broker.cluster, address))
            if servers:
                found[address] = servers
    return found
