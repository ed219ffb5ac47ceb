"""What a consumer tells about itself: its settings, its queues, how fast it is."""

from typing import Any

import msgspec

from orbitmq.wire.bodies.body import Body
from orbitmq.wire.bodies.message_queue import MessageQueue


class ProcessQueueInfo(Body):
    """What a consumer holds of one queue. `droped` is spelt as RocketMQ does."""

    commit_offset: int = -1
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_mib: int = msgspec.field(default=0, name="cachedMsgSizeInMiB")
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0


class PopQueueInfo(Body):
    """What a pop consumer holds of one queue."""

    wait_ack_count: int = 0
    droped: bool = False
    last_pop_timestamp: int = 0


class ConsumeStatus(Body):
    """How fast a consumer is with one topic: milliseconds, and messages per second."""

    pull_rt: float = msgspec.field(default=0.0, name="pullRT")
    pull_tps: float = msgspec.field(default=0.0, name="pullTPS")
    consume_rt: float = msgspec.field(default=0.0, name="consumeRT")
    consume_ok_tps: float = msgspec.field(default=0.0, name="consumeOKTPS")
    consume_failed_tps: float = msgspec.field(default=0.0, name="consumeFailedTPS")
    consume_failed_messages: int = msgspec.field(default=0, name="consumeFailedMsgs")


class ConsumerRunningInfo(Body):
    """Body of GET_CONSUMER_RUNNING_INFO's answer (307)."""

    properties: dict[str, str] = {}
    subscription_set: list[Any] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, PopQueueInfo] = {}
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] = {}
    jstack: str | None = None


class DirectConsumeResult(Body):
    """Body of CONSUME_MESSAGE_DIRECTLY's answer (309); the Go client tells the result as a number."""

    consume_result: str | int = "CR_SUCCESS"
    order: bool = False
    auto_commit: bool = True
    remark: str | None = None
    spent_time_mills: int = 0
