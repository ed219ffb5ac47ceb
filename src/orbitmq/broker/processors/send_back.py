"""CONSUMER_SEND_MSG_BACK (36): a message that a consumer could not handle comes again later.

It goes to the group's retry topic by way of the delay levels; after too many tries, or if the consumer
says so, to the group's dead letters.
"""

import random
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.answers import FAQ
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.broker.sends.rules import HEADER_LIMIT_VERSION
from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Property, SysFlag
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.send_back import SendBackHeader

FIRST_LEVEL: Final = 3  # of a message that comes back for the first time: 10 s
_HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


class SendBackProcessor(Processor):
    """Appends what consumers give back. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self.flush_wait = FlushWait(context)
        self._sync = self.flush_wait.waits

    @answers(RequestCode.CONSUMER_SEND_MSG_BACK)
    def handle(self, connection: Connection, request: Command) -> Command | None:
        header = SendBackHeader.read(request.fields)
        group = self._group(header)
        if group.retry_queue_nums <= 0:
            return request.answer()  # the group wants no retries
        retry_topic = self._retry_topic(header, group)
        record = self._store.record_at(header.offset)
        if record is None:
            remark = f"look message by offset failed, {header.offset}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        append = self._append_of(record, header, group, request.version, retry_topic)
        result = self._store.append_nowait(append)
        if result.status is not AppendStatus.PUT_OK:
            remark = f"{result.status.name} {result.reason}".rstrip()
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        origin = record.property_map.get("RETRY_TOPIC", record.topic)
        self._context.statistics.on_send_back(header.group, origin)
        if not self._sync:
            return request.answer()
        self._answer_synced(connection, request, result)
        return None

    def _answer_synced(
        self, connection: Connection, request: Command, result: AppendResult
    ) -> None:
        def done(status: AppendStatus) -> None:
            if request.is_oneway:
                return
            if status is AppendStatus.PUT_OK:
                connection.send(request.answer())
            else:
                connection.send(request.answer(ResponseCode.SYSTEM_ERROR, status.name))

        self.flush_wait.add(result.log_offset + result.size, done)

    # --- where it goes ---

    def _group(self, header: SendBackHeader) -> GroupConfig:
        group = self._context.groups.get_or_create(header.group)
        if group is None:
            remark = f"subscription group not exist, {header.group} {FAQ}"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not self._config.writable:
            remark = f"the broker[{self._config.host}] sending message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return group

    def _retry_topic(self, header: SendBackHeader, group: GroupConfig) -> TopicConfig:
        topic = self._context.topics.create_retry(
            header.group, group.retry_queue_nums, unit_mode=header.unit_mode
        )
        if not topic.is_writable:
            remark = f"the topic[{topic.topic_name}] sending message is forbidden"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        return topic

    def _append_of(
        self,
        record: Record,
        header: SendBackHeader,
        group: GroupConfig,
        version: int,
        retry_topic: TopicConfig,
    ) -> AppendRequest:
        limit = group.retry_max_times
        if version >= HEADER_LIMIT_VERSION and header.max_reconsume_times is not None:
            limit = header.max_reconsume_times
        if record.reconsume_times >= limit or header.delay_level < 0:
            topic, queue_id, level = self._context.topics.create_dlq(header.group).topic_name, 0, 0
        else:
            topic = retry_topic.topic_name
            queue_id = random.randrange(group.retry_queue_nums)
            level = header.delay_level or FIRST_LEVEL + record.reconsume_times
        return AppendRequest(
            topic,
            queue_id,
            record.body,
            _properties(record, level),
            record.flag,
            record.sys_flag & ~_HOST_BITS,
            record.born_ms,
            record.born_host,
            reconsume_times=record.reconsume_times + 1,
        )


def _properties(record: Record, level: int) -> bytes:
    """Return the message's properties for its next round."""
    properties = record.property_map
    properties.setdefault("RETRY_TOPIC", record.topic)
    properties.setdefault("ORIGIN_MESSAGE_ID", record.offset_id)
    properties[Property.WAIT] = "false"
    properties[Property.DELAY] = str(level)
    return encode_properties(properties)
