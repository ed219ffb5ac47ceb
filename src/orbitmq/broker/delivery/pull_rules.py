"""What is checked of a pull, in RocketMQ's order, before anything is read.

check                                                  | code
broker not readable                                    | 16
group unknown and not to be made                       | 26
group may not consume                                  | 16
topic unknown                                          | 17
topic not readable, or in memory where there is none   | 16
queue that the topic does not have                     | 29
no subscription in the request, group not online       | 24
- group may not consume by broadcast, but does         | 16
- group forbidden for the topic                        | 16
- topic not among the group's subscriptions            | 24
- subscription older than the consumer's               | 25
filter that there is none of                           | 1 or 27 (`filters`)
"""

from typing import Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.filters import TAG, Filters
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import FAQ
from orbitmq.net.connection import Connection
from orbitmq.store.reads.tag_filter import MessageFilter
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

FORBIDDEN_READ: Final = 1 << 2  # what an operator forbids a group with code 353
_SUBSCRIPTION: Final = int(PullFlag.SUBSCRIPTION)


class PullCheck(NamedTuple):
    """A pull that passed: whose it is, and which messages it wants; None: all."""

    group: GroupConfig
    topic: TopicConfig
    wanted: MessageFilter | None


class PullRules:
    """Checks pulls. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._config = context, context.config
        self._filters = Filters(context.config)

    @property
    def replica_reads(self) -> bool:
        """Whether a consumer that is far behind is sent to a replica (slaveReadEnable)."""
        return self._config.given.get("slaveReadEnable", "").lower() == "true"

    def check(self, connection: Connection, request: Command, header: PullHeader) -> PullCheck:
        """Return what the pull is about. Refusal: it may not be."""
        if not self._config.readable:
            remark = f"the broker[{self._config.host}] pulling message is forbidden"
            raise _forbidden(remark, 1)
        group = self._group(header)
        topic = self._topic(connection, header)
        if header.sys_flag & _SUBSCRIPTION:
            kind, expression = header.expression_type or TAG, header.subscription or ""
            return PullCheck(group, topic, self._filters.of_request(kind, expression))
        return PullCheck(group, topic, self._filters.of_group(*self._subscription(header, group)))

    def _group(self, header: PullHeader) -> GroupConfig:
        name = header.consumer_group
        group = self._context.groups.get_or_create(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {name}", 2)
        return group

    def _topic(self, connection: Connection, header: PullHeader) -> TopicConfig:
        topic = self._context.topics.get(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please! {FAQ}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.is_readable:
            raise _forbidden(f"the topic[{header.topic}] pulling message is forbidden", 3)
        problem = self._context.topics.memory_problem(header.topic)
        if problem is not None:
            raise _forbidden(problem, 3)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.peer}]"
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        return topic

    def _subscription(self, header: PullHeader, group: GroupConfig) -> tuple[str, str]:
        """Return type and text of what the group subscribed to by heartbeat."""
        name, topic = header.consumer_group, header.topic
        online = self._context.consumers.group(name)
        if online is None:
            remark = f"the consumer's group info not exist{FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if online.is_broadcast and not group.consume_broadcast_enable:
            raise _forbidden(f"the consumer group[{name}] can not consume by broadcast way", 4)
        if self._context.groups.forbidden(name, topic) & FORBIDDEN_READ:
            raise _forbidden(f"the consumer group[{name}] is forbidden for topic[{topic}]", 5)
        known = online.subscription(topic)
        if known is None:
            remark = f"the consumer's subscription not exist{FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)
        if known.sub_version < header.sub_version:
            remark = "the consumer's subscription not latest"
            raise Refusal(ResponseCode.SUBSCRIPTION_NOT_LATEST, remark)
        return known.expression_type or TAG, known.sub_string


def _forbidden(remark: str, kind: int) -> Refusal:
    return Refusal(ResponseCode.NO_PERMISSION, remark, fields={"forbiddenType": str(kind)})
