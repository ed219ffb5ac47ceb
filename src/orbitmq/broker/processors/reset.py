"""Offset resets, and questions of tools that only the consumer itself can answer.

A reset is done by the broker: it sets the offsets and has the group's next pulls follow them. With
useServerSideResetOffset=false the online consumers are told instead, as older brokers do.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.errors import FieldError, FormatError, RequestTimeoutError, WireError
from orbitmq.format.message_id import decode_offset_id
from orbitmq.net.connection import Connection
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import ConsumerStatus, QueueOffset, ResetOffsetList, ResetOffsets
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import (
    ConsumeDirectlyHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
    RunningInfoHeader,
)

logger = logging.getLogger(__name__)

STATUS_TIMEOUT_MS: Final = 5 * SECOND_MS
CALL_TIMEOUT_MS: Final = 10 * SECOND_MS
RESET_VERSION_MIN: Final = 28
CALL_VERSION_MIN: Final = 62
"""Older clients do not know these requests: V3_0_7 and V3_1_8, both from 2014."""


class ResetProcessor(Processor):
    """Answers resets and what is asked of consumers through the broker."""

    # Resets by the broker

    @answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, of_queues=True)
    def _reset(self, connection: Connection, request: Command) -> Command:
        header = ResetOffsetHeader.read(request.fields)
        if not self._config.server_side_reset:
            return self._reset_clients(header, request)
        config = self._context.topics.get(header.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        if header.group not in self._context.groups:
            remark = f"Group {header.group} does not exist"
            raise Refusal(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        targets = self._targets(header, config)
        for queue_id, offset in targets.items():
            self._context.offsets.reset(header.group, header.topic, queue_id, offset)
            self._context.long_poll.wake(header.topic, queue_id)
        logger.info("group %s: offsets of %s reset to %s", header.group, header.topic, targets)
        return request.answer(body=self._body(header.topic, targets))

    def _targets(self, header: ResetOffsetHeader, config: TopicConfig) -> dict[int, int]:
        if header.queue_id is None or header.queue_id < 0:
            queues = range(config.read_queue_nums)
            found = {queue_id: self._by_time(header, queue_id) for queue_id in queues}
        elif header.queue_id >= max(config.read_queue_nums, config.write_queue_nums):
            remark = f"Queue {header.queue_id} of topic {header.topic} does not exist"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        else:
            found = {header.queue_id: self._explicit(header, header.queue_id)}
        if not found:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "No queues to reset.")
        return found

    def _explicit(self, header: ResetOffsetHeader, queue_id: int) -> int:
        if header.offset is None or header.offset == -1:
            return self._by_time(header, queue_id)
        store = self._store
        start = store.min_offset(header.topic, queue_id)
        end = store.max_offset(header.topic, queue_id)
        if not start <= header.offset <= end + 1:
            remark = f"Target offset {header.offset} not in consume queue range [{start}-{end}]"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return header.offset

    def _by_time(self, header: ResetOffsetHeader, queue_id: int) -> int:
        store = self._store
        if header.timestamp < 0:
            return store.max_offset(header.topic, queue_id)
        return store.offset_by_time(header.topic, queue_id, header.timestamp)

    def _body(self, topic: str, targets: Mapping[int, int]) -> bytes:
        name = self._config.name
        table = {MessageQueue(topic, name, queue_id): at for queue_id, at in targets.items()}
        return ResetOffsets(offset_table=table).encode()

    # Resets by the clients

    def _reset_clients(self, header: ResetOffsetHeader, request: Command) -> Command:
        context = self._context
        config = context.topics.get(header.topic)
        if config is None:
            remark = "[reset-offset] reset offset failed, no topic in this broker. topic="
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark + header.topic)
        targets = {}
        for queue_id in range(config.write_queue_nums):
            current = context.offsets.get(header.group, header.topic, queue_id)
            if current < 0:
                remark = f"THe consumer group <{header.group}> not exist"
                raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
            target = max(self._by_time(header, queue_id), 0)
            targets[queue_id] = target if header.is_force else min(target, current)
        self._tell_clients(header, targets)
        return request.answer(body=self._body(header.topic, targets))

    def _tell_clients(self, header: ResetOffsetHeader, targets: Mapping[int, int]) -> None:
        group = self._context.consumers.group(header.group)
        if group is None:
            remark = (
                "Consumer not online, so can not reset offset, "
                f"Group: {header.group} Topic: {header.topic} Timestamp: {header.timestamp}"
            )
            raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        for client in group.connections:
            _require_version(client, RESET_VERSION_MIN)
        fields = replace(header, queue_id=None, offset=None).write()
        for client in group.connections:
            body = self._body(header.topic, targets)
            if client.language == "CPP":
                body = self._list_body(header.topic, targets)
            command = _to_client(client, RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, body)
            client.connection.oneway(command)

    def _list_body(self, topic: str, targets: Mapping[int, int]) -> bytes:
        name = self._config.name
        entries = [
            QueueOffset(topic=topic, broker_name=name, queue_id=queue_id, offset=offset)
            for queue_id, offset in targets.items()
        ]
        return ResetOffsetList(offset_table=entries).encode()

    # Asking consumers

    @answers(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    def _status(self, connection: Connection, request: Command) -> None:
        """Ask the consumers of a group where they are; those that do not answer are left out."""
        header = ConsumerStatusHeader.read(request.fields)
        group = self._context.consumers.group(header.group)
        clients = group.connections if group is not None else []
        if not clients:
            remark = f"No Any Consumer online in the consumer group: [{header.group}]"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        wanted = (header.client_addr or "").strip()
        if wanted:
            clients = [client for client in clients if client.client_id == wanted]
        for client in clients:
            _require_version(client, RESET_VERSION_MIN)
        fields = ConsumerStatusHeader(topic=header.topic, group=header.group).write()
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        asked = {
            client.client_id: client.connection.request(
                _to_client(client, code, dict(fields)), STATUS_TIMEOUT_MS
            )
            for client in clients
        }

        def done(_: object) -> None:
            connection.send(request.answer(body=_status_body(asked)))

        gathered = asyncio.gather(*asked.values(), return_exceptions=True)
        gathered.add_done_callback(done)

    @answers(RequestCode.GET_CONSUMER_RUNNING_INFO)
    def _running_info(self, connection: Connection, request: Command) -> None:
        header = RunningInfoHeader.read(request.fields)
        client = self._find(header.consumer_group, header.client_id)
        command = _to_client(
            client, RequestCode.GET_CONSUMER_RUNNING_INFO, dict(request.fields or {}), request.body
        )
        self._call(connection, request, client, command, header.consumer_group)

    @answers(RequestCode.CONSUME_MESSAGE_DIRECTLY)
    def _consume_directly(self, connection: Connection, request: Command) -> None:
        header = ConsumeDirectlyHeader.read(request.fields)
        client = self._find(header.consumer_group, header.client_id)
        fields = {**(request.fields or {}), "brokerName": self._config.name}
        topic = self._context.topics.get(header.topic or "")
        if topic is not None:
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        group = self._context.groups.get_or_create(header.consumer_group)
        if group is not None:
            fields["groupSysFlag"] = str(group.group_sys_flag)
        body = self._message(header.msg_id or "")
        command = _to_client(client, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, body)
        self._call(connection, request, client, command, header.consumer_group)

    def _message(self, message_id: str) -> bytes:
        try:
            _, log_offset = decode_offset_id(message_id)
        except FormatError as cause:
            raise FieldError("msgId", f"{message_id[:64]!r} is no offset id: {cause}") from cause
        raw = self._store.record_bytes(log_offset)
        if raw is None:
            remark = f"no message {message_id}: it was deleted, or never here"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return bytes(raw)

    def _find(self, group: str, client_id: str | None) -> ClientConnection:
        client = self._context.consumers.find(group, client_id) if client_id else None
        if client is None:
            remark = f"The Consumer <{group}> <{client_id}> not online"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        if client.version < CALL_VERSION_MIN:
            remark = (
                f"The Consumer <{client_id}> Version <{client.version}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return client

    def _call(
        self,
        connection: Connection,
        request: Command,
        client: ClientConnection,
        command: Command,
        group: str,
    ) -> None:
        """Pass a request on to a consumer and its answer back."""

        def done(future: "asyncio.Future[Command]") -> None:
            answer = _passed_on(request, future, f"<{group}> <{client.client_id}>")
            if not request.is_oneway:
                connection.send(answer)

        client.connection.request(command, CALL_TIMEOUT_MS).add_done_callback(done)


def _to_client(
    client: ClientConnection, code: int, fields: dict[str, str], body: bytes = b""
) -> Command:
    encoding = client.connection.encoding
    return Command(code, fields, body, language="JAVA", encoding=encoding)


def _require_version(client: ClientConnection, least: int) -> None:
    if client.version < least:
        remark = f"the client does not support this feature. version={client.version}"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)


def _passed_on(request: Command, future: "asyncio.Future[Command]", who: str) -> Command:
    if future.cancelled():
        return request.answer(ResponseCode.SYSTEM_ERROR, f"invoke consumer {who}: given up")
    error = future.exception()
    if isinstance(error, RequestTimeoutError):
        remark = f"consumer {who} Timeout: {error}"
        return request.answer(ResponseCode.CONSUME_MSG_TIMEOUT, remark)
    if error is not None:
        remark = f"invoke consumer {who} Exception: {error}"
        return request.answer(ResponseCode.SYSTEM_ERROR, remark)
    got = future.result()
    return request.answer(got.code, got.remark, fields=got.fields, body=got.body)


def _status_body(asked: Mapping[str, "asyncio.Future[Command]"]) -> bytes:
    table = {}
    for client_id, future in asked.items():
        try:
            answer = future.result()
            if answer.code == ResponseCode.SUCCESS and answer.body:
                table[client_id] = ConsumerStatus.decode(answer.body).message_queue_table
        except (WireError, asyncio.CancelledError) as error:
            logger.warning("consumer %s: its offsets are not known: %s", client_id, error)
    return ConsumerStatus(consumer_table=table).encode()
