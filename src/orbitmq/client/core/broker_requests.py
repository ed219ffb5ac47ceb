"""What brokers ask clients: finds the producer or consumer that is meant and sends its answer."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.client.core.message import ReceivedMessage, decode_messages
from orbitmq.client.core.roles import ConsumerRole
from orbitmq.errors import FieldError, FormatError
from orbitmq.format.compression import decompress
from orbitmq.format.properties import decode_properties
from orbitmq.net.connection import Connection, ConnectionHandler
from orbitmq.net.tasks import stop_tasks
from orbitmq.wire.bodies.stats import ConsumerStatus, ResetOffsets
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import (
    ConsumeDirectlyHeader,
    ConsumerStatusHeader,
    ResetOffsetHeader,
    RunningInfoHeader,
)

if TYPE_CHECKING:
    from orbitmq.client.core.core import ClientCore

_log = logging.getLogger(__name__)

PRODUCER_GROUP: Final = "PGROUP"
"""The property that says which producers know what became of a half message."""
ARRIVE_TIME: Final = "ARRIVE_TIME"
"""The property that says when a reply came to who asked."""


class BrokerRequests(ConnectionHandler):
    """The handler of a client's connections. Belongs to its loop's thread."""

    def __init__(self, core: "ClientCore") -> None:
        self._core = core
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[int, Callable[[Connection, Command], Command | None]] = {
            RequestCode.CHECK_TRANSACTION_STATE: self._check_transaction,
            RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: self._members_changed,
            RequestCode.RESET_CONSUMER_CLIENT_OFFSET: self._reset_offsets,
            RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: self._consumer_status,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._running_info,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._reply,
        }

    def on_open(self, connection: Connection) -> None:
        self._core.on_connected(connection)

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        for request in requests:
            answer = self._answer(connection, request)
            if answer is not None and not request.is_oneway:
                answer.language = "PYTHON"
                connection.send(answer)

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self._core.on_disconnected(connection)

    async def stop(self) -> None:
        await stop_tasks(self._tasks)

    def _answer(self, connection: Connection, request: Command) -> Command | None:
        handler = self._handlers.get(request.code)
        if handler is None:
            remark = f"this client does not handle request code {request.code}"
            return request.answer(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
        try:
            return handler(connection, request)
        except (FieldError, FormatError) as wrong:
            return request.answer(ResponseCode.SYSTEM_ERROR, str(wrong))
        except Exception as failure:
            _log.exception("request %d of %s failed", request.code, connection.peer)
            return request.answer(ResponseCode.SYSTEM_ERROR, f"the client failed: {failure}")

    # --- to producers ---

    def _check_transaction(self, connection: Connection, request: Command) -> None:
        for message in decode_messages(request.body):
            producer = self._core.producer(message.properties.get(PRODUCER_GROUP, ""))
            if producer is not None:
                address = connection.owner_data.get("address", connection.peer)
                producer.on_check_transaction(address, request, message)

    def _reply(self, connection: Connection, request: Command) -> Command:
        message = _reply_message(request)
        message.properties[ARRIVE_TIME] = str(self._core.clock.now_ms())
        for producer in self._core.producers:
            producer.on_reply(message)
        return request.answer()

    # --- to consumers ---

    def _members_changed(self, connection: Connection, request: Command) -> None:
        fields = request.fields or {}
        consumer = self._core.consumer(fields.get("consumerGroup", ""))
        if consumer is None:
            return
        if topic := fields.get("topic"):  # a broker of ours says that its queues changed
            self._core.refresh_route_soon(topic)
        consumer.on_members_changed()

    def _reset_offsets(self, connection: Connection, request: Command) -> None:
        header = ResetOffsetHeader.read(request.fields)
        consumer = self._core.consumer(header.group)
        if consumer is not None:
            offsets = ResetOffsets.decode(request.body).offset_table
            consumer.on_reset_offsets(header.topic, offsets)

    def _consumer_status(self, connection: Connection, request: Command) -> Command:
        header = ConsumerStatusHeader.read(request.fields)
        consumer = self._core.consumer(header.group)
        offsets = {} if consumer is None else dict(consumer.offsets(header.topic))
        return request.answer(body=ConsumerStatus(message_queue_table=offsets).encode())

    def _running_info(self, connection: Connection, request: Command) -> Command:
        header = RunningInfoHeader.read(request.fields)
        consumer = self._core.consumer(header.consumer_group)
        if consumer is None:
            return _no_consumer(request, header.consumer_group)
        return request.answer(body=consumer.running_info().encode())

    def _consume_directly(self, connection: Connection, request: Command) -> Command | None:
        header = ConsumeDirectlyHeader.read(request.fields)
        consumer = self._core.consumer(header.consumer_group)
        messages = decode_messages(request.body, header.broker_name or "")
        if consumer is None or not messages:
            return _no_consumer(request, header.consumer_group)
        task = asyncio.ensure_future(self._consume(connection, request, consumer, messages[0]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return None

    async def _consume(
        self,
        connection: Connection,
        request: Command,
        consumer: ConsumerRole,
        message: ReceivedMessage,
    ) -> None:
        try:
            result = await consumer.consume_directly(message, message.broker_name)
            answer = request.answer(body=result.encode())
        except Exception as failure:
            _log.exception("message %s: not handled", message.message_id)
            answer = request.answer(ResponseCode.SYSTEM_ERROR, f"the client failed: {failure}")
        answer.language = "PYTHON"
        connection.send(answer)


def _no_consumer(request: Command, group: str) -> Command:
    remark = f"group {group} is not consumed by this client"
    return request.answer(ResponseCode.SYSTEM_ERROR, remark)


def _reply_message(request: Command) -> ReceivedMessage:
    """Return the message of a 326: its parts are header fields, and its body is the body."""
    fields = request.fields or {}
    sys_flag = int(fields.get("sysFlag", "0"))
    return ReceivedMessage(
        fields.get("topic", ""),
        decompress(request.body, sys_flag),
        fields.get("bname", ""),
        int(fields.get("queueId", "0")),
        0,
        0,
        decode_properties(fields.get("properties", "").encode()),
        int(fields.get("bornTimestamp", "0")),
        int(fields.get("storeTimestamp", "0")),
        fields.get("bornHost", "").removeprefix("/"),
        fields.get("storeHost", "").removeprefix("/"),
        "",
        int(fields.get("reconsumeTimes", "0")),
        int(fields.get("flag", "0")),
        sys_flag,
    )
