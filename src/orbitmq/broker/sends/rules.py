"""What is checked of a send, in RocketMQ's order, and in which form its message is appended.

step | check                                            | code
   1 | sends are not accepted yet                       | 1
   2 | broker not writable and the topic is ordered     | 16
   3 | topic name                                       | 29
   4 | topic of the system                              | 16
   5 | topic unknown and not to be made                 | 17
   6 | topic without write permission                   | 16 (RocketMQ leaves that to its producers)
   6 | topic in memory where there is none              | 16
   7 | queue that the topic does not have               | 29
   8 | retry topic of a group that may not exist        | 26
   9 | transactions are not wanted, or topic in memory  | 16
"""

import os
import random
import re
from typing import Final, NamedTuple

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import FAQ
from orbitmq.broker.transactions.forms import half_message, half_properties
from orbitmq.errors import FieldError, FormatError
from orbitmq.format.client_batch import decode_client_batch
from orbitmq.format.message_id import UniqueIds
from orbitmq.format.properties import decode_properties, encode_properties
from orbitmq.message import (
    DLQ_PREFIX,
    NO_SEND_TOPICS,
    RETRY_PREFIX,
    RETRY_TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX,
    AppendRequest,
    Property,
    QueueType,
    SysFlag,
)
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import INT_MAX, INT_MIN, Command
from orbitmq.wire.headers.send import SendHeader

HEADER_LIMIT_VERSION: Final = 121  # V3_4_9: from here on requests say how often they may be retried
MULTI_TAG: Final = "MULTI_TAG"
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACTION: Final = "COMPACTION"

_TOPIC_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
_TRANSACTION_BITS: Final = int(SysFlag.TRANSACTION)


class PreparedSend(NamedTuple):
    """A send that passed the checks."""

    append: AppendRequest
    queue_id: int  # what the answer says; a delayed message lies elsewhere first
    unique_key: str | None
    is_batch: bool = False
    inner_count: int = 0
    """Messages of a batch that is kept as one record; 0: it is none."""
    half_of: str | None = None
    """Topic for which this is a half message; None: it is none."""


def topic_name_problem(topic: str) -> str | None:
    """Return what is wrong with a topic's name, in RocketMQ's words, or None."""
    if not topic.strip():
        return "The specified topic is blank."
    if not _TOPIC_NAME.fullmatch(topic):
        return "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
    is_internal = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    if len(topic) > (RETRY_TOPIC_BYTES_MAX if is_internal else TOPIC_BYTES_MAX):
        return "The specified topic is longer than topic max length."
    return None


class SendRules:
    """Checks sends and makes appends of them. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._context, self._config = context, context.config
        host = context.store_host.address
        self._ids = UniqueIds(host, os.getpid(), random.getrandbits(32), context.clock)
        self._own: dict[str, str] = {}
        self._suffix = self.use_settings()

    def use_settings(self) -> bytes:
        """Follow changed settings; return what the broker adds to each message, as the end of properties."""
        self._own = {
            Property.REGION: self._config.region,
            Property.TRACE_ON: "true" if self._config.trace_on else "false",
            Property.CLUSTER: self._config.cluster,
        }
        self._suffix = encode_properties(self._own)
        return self._suffix

    def prepare(self, connection: Connection, request: Command) -> PreparedSend:
        """Return the append that a send asks for. Refusal, FieldError: it may not be."""
        header, config, queue_id = self.admitted(connection, request)
        if header.batch:
            return self._batch(connection, request, header, config, queue_id)
        return self._single(connection, request, header, config, queue_id)

    def admitted(
        self, connection: Connection, request: Command
    ) -> tuple[SendHeader, TopicConfig, int]:
        """Return what a send says, its topic and its queue. Refusal, FieldError: it may not go there."""
        self._require_accepting()
        header = SendHeader.read_any(request.code, request.fields)
        _require_ints(header)
        if not request.body:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, "the message has no body; send at least a byte"
            )
        config = self._topic(connection, header)
        self._require_queue(connection, header, config)
        queue_id = header.queue_id
        if queue_id < 0:
            queue_id = random.randrange(config.write_queue_nums)
        return header, config, queue_id

    # --- topic and queue ---

    def _require_accepting(self) -> None:
        start = self._config.accept_sends_from_ms
        if start > self._context.clock.now_ms():
            remark = f"broker unable to service, until {start} ms (startAcceptSendRequestTimeStamp)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        replicas = self._context.replicas
        remark = replicas.refusal if replicas is not None else ""
        if remark:
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)

    def _topic(self, connection: Connection, header: SendHeader) -> TopicConfig:
        topics, topic = self._context.topics, header.topic
        if not self._config.writable and topics.is_order(topic):
            remark = f"the broker[{self._config.host}] sending message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        problem = topic_name_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)
        if topic in NO_SEND_TOPICS:
            remark = f"Sending message to topic[{topic}] is forbidden."
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        config = topics.get(topic) or self._create_topic(header)
        if config is None and topic.startswith(RETRY_PREFIX):
            group = topic.removeprefix(RETRY_PREFIX)
            config = topics.create_retry(group, 1, unit_mode=header.unit_mode)
        if config is None:
            remark = f"topic[{topic}] not exist, apply first please!{FAQ}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not config.is_writable:
            remark = (
                f"topic[{topic}] has permission {config.perm}, which does not allow sending; "
                f"`orbitmq topic create {topic} --perm 6` would"
            )
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        problem = topics.memory_problem(topic)
        if problem is not None:
            raise Refusal(ResponseCode.NO_PERMISSION, problem)
        return config

    def _create_topic(self, header: SendHeader) -> TopicConfig | None:
        """Return the topic of a first message, made after its template; None: that may not be."""
        if header.default_topic_queue_nums is None:
            raise FieldError("defaultTopicQueueNums", "is missing")
        return self._context.topics.create_for_send(
            header.topic,
            header.default_topic or "",
            header.default_topic_queue_nums,
            header.unit_mode,
        )

    def _require_queue(
        self, connection: Connection, header: SendHeader, config: TopicConfig
    ) -> None:
        queue_id, count = header.queue_id, max(config.read_queue_nums, config.write_queue_nums)
        if queue_id < count if queue_id >= 0 else config.write_queue_nums > 0:
            return
        remark = (
            f"request queueId[{queue_id}] is illegal, {topic_text(config)} "
            f"Producer: {connection.peer}"
        )
        raise Refusal(ResponseCode.INVALID_PARAMETER, remark)

    # --- one message ---

    def _single(
        self,
        connection: Connection,
        request: Command,
        header: SendHeader,
        config: TopicConfig,
        queue_id: int,
    ) -> PreparedSend:
        properties = decode_properties((header.properties or "").encode("utf-8", "replace"))
        properties.pop(Property.POP_CK, None)
        topic = header.topic
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id = self._retry_or_dlq(request, header, properties, queue_id)
        is_half = self._is_half(header, properties)
        if config.attributes.get(CLEANUP_POLICY) == COMPACTION and Property.KEYS not in properties:
            remark = f"topic {topic} keeps the newest message of each key: KEYS is required"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        unique_key = properties.get(Property.UNIQ_KEY)
        if unique_key is None:
            unique_key = properties[Property.UNIQ_KEY] = self._ids.next_id()
        for name in self._own:
            properties.pop(name, None)
        if is_half:
            properties |= half_properties(topic, queue_id, unique_key)
        append = AppendRequest(
            topic,
            queue_id,
            request.body,
            encode_properties(properties) + self._suffix,
            header.flag,
            self._sys_flag(header, config),
            header.born_timestamp,
            connection.peer_host,
            reconsume_times=header.reconsume_times or 0,
        )
        if is_half:
            return PreparedSend(half_message(append), queue_id, unique_key, half_of=topic)
        return PreparedSend(append, queue_id, unique_key)

    def _sys_flag(self, header: SendHeader, config: TopicConfig) -> int:
        # A message that is of no transaction must not look as if it were: nobody could read it.
        sys_flag = header.sys_flag & ~_TRANSACTION_BITS
        if config.topic_filter_type == MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        return int(sys_flag)

    def _retry_or_dlq(
        self, request: Command, header: SendHeader, properties: dict[str, str], queue_id: int
    ) -> tuple[str, int]:
        """Return where a message of a retry topic goes: there, or to the dead letters of its group."""
        group = header.topic.removeprefix(RETRY_PREFIX)
        config = self._context.groups.get_or_create(group)
        if config is None:
            remark = f"subscription group not exist, {group} {FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = config.retry_max_times
        if request.version >= HEADER_LIMIT_VERSION and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        # A group that holds locks consumes in order: a retry would come after what follows it.
        if (header.reconsume_times or 0) <= limit and not self._context.locks.is_any_locked(group):
            return header.topic, queue_id
        properties[Property.DELAY] = "-1"
        return self._context.topics.create_dlq(group).topic_name, 0

    def _is_half(self, header: SendHeader, properties: dict[str, str]) -> bool:
        """Tell whether a message waits for the end of its transaction. Refusal: it may not."""
        if properties.get(Property.TRANSACTION, "").lower() != "true":
            return False
        if (header.reconsume_times or 0) > 0 and _is_positive(properties.get(Property.DELAY)):
            return False  # a retry of an old client, which leaves the property in
        forbidden = f"the broker[{self._config.host}] sending transaction message is forbidden"
        if self._config.reject_transactions:
            raise Refusal(ResponseCode.NO_PERMISSION, forbidden)
        if self._context.topics.is_memory(header.topic):
            remark = f"{forbidden}: topic[{header.topic}] is kept in memory, where nothing can wait"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return True

    # --- a batch ---

    def _batch(
        self,
        connection: Connection,
        request: Command,
        header: SendHeader,
        config: TopicConfig,
        queue_id: int,
    ) -> PreparedSend:
        topic = header.topic
        if len(topic) > TOPIC_BYTES_MAX:
            remark = f"message topic length too long {len(topic)}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        if topic.startswith(RETRY_PREFIX):
            remark = f"batch request does not support retry group {topic}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        given = (header.properties or "").encode("utf-8", "replace")
        properties = {**decode_properties(given), **self._own}
        properties.pop(Property.POP_CK, None)
        unique_key = properties.get(Property.UNIQ_KEY)
        sys_flag, inner_count = header.sys_flag, 0
        if config.topic_filter_type == MULTI_TAG:
            sys_flag |= SysFlag.MULTI_TAGS
        if unique_key and self._context.topics.queue_type(topic) is QueueType.BATCH:
            inner_count = self._count_inner(header, request.body)
            properties[Property.INNER_NUM] = str(inner_count)
            sys_flag |= SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
        append = AppendRequest(
            topic,
            queue_id,
            request.body,
            encode_properties(properties),
            header.flag,
            int(sys_flag),
            header.born_timestamp,
            connection.peer_host,
            reconsume_times=header.reconsume_times or 0,
        )
        return PreparedSend(append, queue_id, unique_key, True, inner_count)

    def _count_inner(self, header: SendHeader, body: bytes) -> int:
        """Return how many messages consumers will find in a batch that is kept as one record."""
        if header.sys_flag & _TRANSACTION_BITS:
            remark = "a batch cannot be part of a transaction"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark)
        try:
            return len(decode_client_batch(body))
        except FormatError as error:
            remark = f"the batch cannot be taken apart: {error}"
            raise Refusal(ResponseCode.MESSAGE_ILLEGAL, remark) from error


def topic_text(config: TopicConfig) -> str:
    """Return a topic's config as RocketMQ's remarks show it."""
    perm = "".join(
        letter if config.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1))
    )
    attributes = ", ".join(f"{name}={value}" for name, value in config.attributes.items())
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={str(config.order).lower()}, attributes={{{attributes}}}]"
    )


def _require_ints(header: SendHeader) -> None:
    """Refuse numbers for which a record has no room, as RocketMQ does when it reads them."""
    given = header.queue_id, header.sys_flag, header.flag, header.reconsume_times or 0
    if min(given) >= INT_MIN and max(given) <= INT_MAX:
        return
    names = ("queueId", "sysFlag", "flag", "reconsumeTimes")
    for name, number in zip(names, given, strict=True):
        if not INT_MIN <= number <= INT_MAX:
            raise FieldError(name, f"{number} is no whole number of 32 bits")


def _is_positive(text: str | None) -> bool:
    return text is not None and text.isdecimal() and int(text) > 0
