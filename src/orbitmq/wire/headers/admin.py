"""Headers of what tools ask a broker: topics, groups, progress, connections, resets, configuration."""

from dataclasses import field

from orbitmq.wire.headers.header import Header


class PutTopicHeader(Header):
    """UPDATE_AND_CREATE_TOPIC. `attributes` is a list of changes: `+queue.type=BatchCQ,-reserve.time`."""

    topic: str
    default_topic: str | None = None
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int | None = None
    order: bool = False
    attributes: str | None = None
    force: bool = False


class TopicHeader(Header):
    """DELETE_TOPIC_IN_BROKER, GET_TOPIC_STATS_INFO, QUERY_TOPIC_CONSUME_BY_WHO.

    And REGISTER_TOPIC_IN_NAMESRV (217), whose body is a TopicRoute.
    """

    topic: str


class GetTopicConfigHeader(Header):
    """GET_TOPIC_CONFIG; Java's tool sets `logical`, which matters for static topics only."""

    topic: str
    logical: bool | None = field(default=None, metadata={"wire": "lo"})


class GroupHeader(Header):
    """GET_SUBSCRIPTIONGROUP_CONFIG, QUERY_TOPICS_BY_CONSUMER."""

    group: str


class DeleteGroupHeader(Header):
    """DELETE_SUBSCRIPTIONGROUP."""

    group_name: str
    clean_offset: bool = False


class GroupForbiddenHeader(Header):
    """UPDATE_AND_GET_GROUP_FORBIDDEN; without `readable` it only asks."""

    group: str
    topic: str
    readable: bool | None = None


class ConsumeStatsHeader(Header):
    """GET_CONSUME_STATS; `topic_list` are topics with `;` between them.

    `count_matching` is ours: also say how many messages the group's filters let through.
    """

    consumer_group: str
    topic: str | None = None
    topic_list: str | None = None
    count_matching: bool | None = None


class BrokerConsumeStatsHeader(Header):
    """GET_BROKER_CONSUME_STATS."""

    is_order: bool = False


class GroupTopicHeader(Header):
    """QUERY_CONSUME_TIME_SPAN, QUERY_SUBSCRIPTION_BY_CONSUMER."""

    group: str
    topic: str


class CloneOffsetsHeader(Header):
    """CLONE_GROUP_OFFSET."""

    src_group: str
    dest_group: str
    topic: str | None = None
    offline: bool = False


class CorrectionOffsetHeader(Header):
    """QUERY_CORRECTION_OFFSET; `filter_groups` are groups with `,` between them."""

    topic: str
    compare_group: str | None = None
    filter_groups: str | None = None


class QueryQueueHeader(Header):
    """QUERY_CONSUME_QUEUE."""

    topic: str
    queue_id: int
    index: int
    count: int
    consumer_group: str | None = None


class StatsItemHeader(Header):
    """VIEW_BROKER_STATS_DATA."""

    stats_name: str
    stats_key: str


class ProducerGroupHeader(Header):
    """GET_PRODUCER_CONNECTION_LIST."""

    producer_group: str


class ResetOffsetHeader(Header):
    """INVOKE_BROKER_TO_RESET_OFFSET. A negative timestamp means the end; queue -1 means all queues.

    RESET_CONSUMER_CLIENT_OFFSET, from the broker to a client, has neither queue nor offset.
    """

    topic: str
    group: str
    timestamp: int
    is_force: bool = True
    queue_id: int | None = None
    offset: int | None = None


class ConsumerStatusHeader(Header):
    """INVOKE_BROKER_TO_GET_CONSUMER_STATUS; `client_addr` is a client id. To the client: 221."""

    topic: str
    group: str
    client_addr: str | None = None


class RunningInfoHeader(Header):
    """GET_CONSUMER_RUNNING_INFO, to the broker and from it to the client."""

    consumer_group: str
    client_id: str
    jstack_enable: bool = False


class ConsumeDirectlyHeader(Header):
    """CONSUME_MESSAGE_DIRECTLY, to the broker and from it to the client."""

    consumer_group: str
    client_id: str | None = None
    msg_id: str | None = None
    broker_name: str | None = None
    topic: str | None = None
    topic_sys_flag: int | None = None
    group_sys_flag: int | None = None


class BrokerConfigAnswer(Header):
    """Answer of GET_BROKER_CONFIG: the data version of what is in the body, as JSON text."""

    version: str


class PromoteHeader(Header):
    """PROMOTE_REPLICA (ours): `force`, whatever the replica may lack."""

    force: bool = False
