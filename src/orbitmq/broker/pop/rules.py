"""What is checked of requests about popped messages, in RocketMQ's order.

check                                          | code | asked of
the client has stopped waiting                 |  210 | pop
broker not readable                            |   16 | all but acks
more than 32 messages                          |   29 | pop
no timer wheel                                 |    1 | pop
topic unknown                                  |   17 | all
topic not readable, or in memory where is none |   16 | all but acks
queue that the topic does not have             |   29 | all but acks; 13 for acks and renewals
group unknown and not to be made               |   26 | all but acks
group may not consume                          |   16 | all but acks
filter that there is none of                   |   23 | pop
offset that the queue does not have            |  208 | acks and renewals
"""

from typing import Final, Protocol

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.filters import TAG, Filters
from orbitmq.broker.pop.check_point import MESSAGES_MAX
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import FAQ
from orbitmq.errors import Sql92SyntaxError
from orbitmq.message import has_separator
from orbitmq.net.connection import Connection
from orbitmq.store.reads.tag_filter import MessageFilter
from orbitmq.units import HOUR_MS
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.pop import AckHeader, ChangeInvisibleHeader, PopHeader

LATE_MS: Final = 500
"""So much longer than its client waits a request may have been on its way."""
INVISIBLE_MS_MAX: Final = 365 * 24 * HOUR_MS


class QueueRequest(Protocol):
    """What all requests but acks have."""

    consumer_group: str
    topic: str
    queue_id: int


class PopRules:
    """Checks requests. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._config, self._store = context, context.config, context.store
        self._filters = Filters(context.config)

    def check_pop(
        self, connection: Connection, header: PopHeader
    ) -> tuple[GroupConfig, MessageFilter | None]:
        """Return the group of a pop and what it wants. Refusal: it may not be."""
        host = self._config.host
        if self._context.clock.now_ms() - header.born_time - header.poll_time > LATE_MS:
            remark = f"the broker[{host}] pop message is timeout too much"
            raise Refusal(ResponseCode.POLLING_TIMEOUT, remark)
        self._require_readable("pop message")
        if header.max_msg_nums > MESSAGES_MAX:
            remark = f"the broker[{host}] pop message's num is greater than {MESSAGES_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not self._config.timer_wheel:
            remark = (
                f"the broker[{host}] pop message is forbidden because timerWheelEnable is false"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if not 0 <= header.invisible_time <= INVISIBLE_MS_MAX:
            remark = f"invisibleTime {header.invisible_time} must be from 0 to {INVISIBLE_MS_MAX}"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        self._queue(connection, header)
        return self._group(header.consumer_group), self._filter(header)

    def check(self, connection: Connection, header: QueueRequest) -> GroupConfig:
        """Return the group of a question. Refusal: it may not ask."""
        self._require_readable("peeking message")
        self._queue(connection, header)
        return self._group(header.consumer_group)

    def check_renewal(self, connection: Connection, header: ChangeInvisibleHeader) -> None:
        """Check what a consumer says of one message. Refusal: it cannot be."""
        low, end = self.ack_range(connection, header.topic, header.queue_id)
        require_offset(header, low, end - 1)

    def ack_range(self, connection: Connection, topic: str, queue_id: int) -> tuple[int, int]:
        """Return the first offset of a queue and the one behind the last. Refusal: there is no such queue."""
        config = self._topic(topic)
        if not 0 <= queue_id < config.read_queue_nums:
            problem = _queue_problem(connection, config, queue_id)
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, problem)
        return self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)

    def _require_readable(self, what: str) -> None:
        if not self._config.readable:
            remark = f"the broker[{self._config.host}] {what} is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._context.topics.get(name)
        if topic is None:
            remark = f"topic[{name}] not exist, apply first please! {FAQ}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return topic

    def _queue(self, connection: Connection, header: QueueRequest) -> None:
        topic = self._topic(header.topic)
        problem = self._context.topics.memory_problem(header.topic)
        if not topic.is_readable:
            problem = f"the topic[{header.topic}] peeking message is forbidden"
        if problem is not None:
            raise Refusal(ResponseCode.NO_PERMISSION, problem)
        if header.queue_id >= topic.read_queue_nums:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER, _queue_problem(connection, topic, header.queue_id)
            )

    def _group(self, name: str) -> GroupConfig:
        if has_separator(name):
            remark = f"group {name!r} holds 0x01 or 0x02: no check point can have that name"
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        group = self._context.groups.get_or_create(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist, {FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {name}"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return group

    def _filter(self, header: PopHeader) -> MessageFilter | None:
        if not header.exp:
            return None
        try:
            return self._filters.compile(header.exp_type or TAG, header.exp)
        except Sql92SyntaxError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise Refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from None


def require_offset(header: AckHeader | ChangeInvisibleHeader, low: int, high: int) -> None:
    """Refusal: the offset is not one of a queue with these offsets; RocketMQ lets acks have the next one."""
    if not low <= header.offset <= high:
        place = f"{header.topic}@{header.queue_id}"
        remark = f"offset is illegal, key:{place}, commit:{header.offset}, store:{low}~{high}"
        raise Refusal(ResponseCode.NO_MESSAGE, remark)


def _queue_problem(connection: Connection, topic: TopicConfig, queue_id: int) -> str:
    return (
        f"queueId[{queue_id}] is illegal, topic:[{topic.topic_name}] "
        f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.peer}]"
    )
