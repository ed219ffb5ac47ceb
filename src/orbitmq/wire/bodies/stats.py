"""Figures that tools ask a broker for: queues of a topic, progress of groups, counters, resets."""

from typing import Any

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue


class TopicOffset(Body):
    """How far one queue reaches; the time is that of its last message, 0 if it has none."""

    min_offset: int = 0
    max_offset: int = 0
    last_update_timestamp: int = 0


class TopicStats(Body):
    """Body of GET_TOPIC_STATS_INFO (202)."""

    offset_table: dict[MessageQueue, TopicOffset] = {}
    topic_put_tps: float = 0.0


class QueueProgress(Body):
    """How far a group is in one queue; the time is that of the last message that it consumed.

    Ours, and only for who asked: how many messages ahead the group's filter lets through, and whether that
    was estimated from a part of them.
    """

    broker_offset: int = 0
    consumer_offset: int = 0
    pull_offset: int = 0
    last_timestamp: int = 0
    matching: int | None = None
    matching_is_estimate: bool | None = None


class ConsumeStats(Body):
    """Body of GET_CONSUME_STATS (208)."""

    offset_table: dict[MessageQueue, QueueProgress] = {}
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        """Messages that are stored but not consumed."""
        return sum(q.broker_offset - q.consumer_offset for q in self.offset_table.values())

    @property
    def in_flight(self) -> int:
        """Messages that were pulled but not consumed."""
        return sum(q.pull_offset - q.consumer_offset for q in self.offset_table.values())


class BrokerConsumeStats(Body):
    """Body of GET_BROKER_CONSUME_STATS (317): each group and its topics."""

    broker_addr: str = ""
    consume_stats_list: list[dict[str, list[ConsumeStats]]] = []
    total_diff: int = 0
    total_inflight_diff: int = 0


class QueueTimeSpan(Body):
    """When the first, the last and the last consumed message of a queue were stored."""

    message_queue: MessageQueue
    min_time_stamp: int = 0
    max_time_stamp: int = 0
    consume_time_stamp: int = 0
    delay_time: int = 0
    min_time_stamp_str: str = ""
    max_time_stamp_str: str = ""
    consume_time_stamp_str: str = ""


class ConsumeTimeSpans(Body):
    """Body of QUERY_CONSUME_TIME_SPAN (303)."""

    consume_time_span_set: list[QueueTimeSpan] = []


class StatsItem(Body):
    """One counter over one window: total, per second, per call."""

    sum: int = 0
    tps: float = 0.0
    avgpt: float = 0.0


class StatsData(Body):
    """Body of VIEW_BROKER_STATS_DATA (315)."""

    stats_minute: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_hour: StatsItem = msgspec.field(default_factory=StatsItem)
    stats_day: StatsItem = msgspec.field(default_factory=StatsItem)


class CorrectionOffsets(Body):
    """Body of QUERY_CORRECTION_OFFSET (308), by queue id."""

    correction_offsets: dict[int, int] = {}


class QueueUnit(Body):
    """One unit of a consume queue."""

    physic_offset: int = 0
    physic_size: int = 0
    tags_code: int = 0
    eval: bool = False
    msg: str | None = None


class QueueUnits(Body):
    """Body of QUERY_CONSUME_QUEUE (321)."""

    max_queue_index: int = 0
    min_queue_index: int = 0
    queue_data: list[QueueUnit] | None = None
    subscription_data: Any = None
    filter_data: str | None = None


class ResetOffsets(Body):
    """Body of INVOKE_BROKER_TO_RESET_OFFSET's answer and of RESET_CONSUMER_CLIENT_OFFSET (222, 220)."""

    offset_table: dict[MessageQueue, int] = {}


class QueueOffset(Body):
    """One entry of a reset as the C++ client reads it."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


class ResetOffsetList(Body):
    """RESET_CONSUMER_CLIENT_OFFSET (220) for the C++ client, which knows no objects as keys."""

    offset_table: list[QueueOffset] = []


class ConsumerStatus(Body):
    """Body of GET_CONSUMER_STATUS_FROM_CLIENT's answer (221) and of 223's, by client id."""

    message_queue_table: dict[MessageQueue, int] = {}
    consumer_table: dict[str, dict[MessageQueue, int]] = {}


class GroupForbidden(Body):
    """Body of UPDATE_AND_GET_GROUP_FORBIDDEN (353)."""

    group: str
    topic: str
    readable: bool = True
