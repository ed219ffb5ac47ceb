"""Where topics live: what a name server answers."""

from typing import Any

from orbitmq.wire.bodies.body import Body

PRIMARY_ID = 0
"""The broker id of a primary; replicas have others."""


class BrokerData(Body):
    """One broker name: its primary (id 0) and its replicas."""

    broker_name: str
    cluster: str = ""
    broker_addrs: dict[int, str] = {}
    enable_acting_master: bool = False
    zone_name: str | None = None

    @property
    def primary(self) -> str | None:
        """The address that takes messages, if there is one."""
        return self.broker_addrs.get(PRIMARY_ID)


class QueueData(Body):
    """How many queues of one topic a broker name has."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0


class TopicRoute(Body):
    """Body of GET_ROUTEINFO_BY_TOPIC (105): who serves a topic."""

    broker_datas: list[BrokerData] = []
    queue_datas: list[QueueData] = []
    filter_server_table: dict[str, list[str]] = {}
    order_topic_conf: str | None = None
    topic_queue_mapping_by_broker: dict[str, Any] | None = None


class ClusterInfo(Body):
    """Body of GET_BROKER_CLUSTER_INFO (106)."""

    broker_addr_table: dict[str, BrokerData] = {}
    cluster_addr_table: dict[str, list[str]] = {}


class BrokerMembers(Body):
    """The brokers that share a name: inside the body of GET_BROKER_MEMBER_GROUP (901)."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = {}


class BrokerMembersAnswer(Body):
    """Body of GET_BROKER_MEMBER_GROUP (901)."""

    broker_member_group: BrokerMembers | None = None
