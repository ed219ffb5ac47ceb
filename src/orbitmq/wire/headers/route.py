"""Asking a name server where things are: 105, 106, 206, 224, 901 and the like."""

from dataclasses import field

from orbitmq.wire.headers.header import Header


class GetRoute(Header):
    """GET_ROUTEINFO_BY_TOPIC (105)."""

    topic: str
    accept_standard_json_only: bool | None = None
    zone_name: str | None = field(default=None, metadata={"wire": "__ZONE_NAME"})
    zone_mode: bool | None = field(default=None, metadata={"wire": "__ZONE_MODE"})


class DeleteTopicInNamesrv(Header):
    """DELETE_TOPIC_IN_NAMESRV (216); without a cluster in all of them."""

    topic: str
    cluster_name: str | None = None


class GetTopicsByCluster(Header):
    """GET_TOPICS_BY_CLUSTER (224)."""

    cluster: str


class GetBrokerMembers(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str
    broker_name: str


class ChangeWritePerm(Header):
    """WIPE_WRITE_PERM_OF_BROKER (205) and ADD_WRITE_PERM_OF_BROKER (327)."""

    broker_name: str


class WipeWritePermAnswer(Header):
    """Answer of 205."""

    wipe_topic_count: int


class AddWritePermAnswer(Header):
    """Answer of 327."""

    add_topic_count: int
