"""RECALL_MESSAGE (370), GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61).

A recall is checked in RocketMQ's order:

step | check                                            | code
   1 | recalls are not enabled (recallMessageEnable)    | 16
   2 | the broker takes no messages                     | 14
   3 | topic unknown                                    | 17
   4 | handle unreadable, of another topic or broker    | 604
   5 | the message is due, or further away than allowed | 604

It is a message of its own: one that waits for the same time and cancels the other when that has come.
"""

import json
import logging

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.flush_wait import FlushWait
from orbitmq.errors import FormatError
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Property
from orbitmq.net.connection import Connection
from orbitmq.store.timer.waiting import cancel_key, whole_number
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.recall import RecallAnswer, RecallHandle, RecallHeader

logger = logging.getLogger(__name__)

RECALL_TAG = "_RECALL_TAG_"
_UNANSWERED = "not set any response code"  # what RocketMQ's answer says when all is well


class TimersProcessor(Processor):
    """Takes back waiting messages, and tells how far the wheel is."""

    def __init__(self, context: BrokerContext, flush_wait: FlushWait) -> None:
        super().__init__(context)
        self._flush_wait = flush_wait

    @answers(RequestCode.RECALL_MESSAGE)
    def recall(self, connection: Connection, request: Command) -> Command | None:
        header = RecallHeader.read(request.fields)
        self._require_enabled()
        if self._context.topics.get(header.topic) is None:
            remark = f"recall failed, the topic[{header.topic}] not exist"
            raise self._refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        handle = self._handle(header)
        append = self._append_request(connection, header, handle)
        result = self._store.append_nowait(append)
        if not result.status.stored:
            logger.warning("recall of %s: %s", handle.unique_key, result.reason)
            remark = f"recall failed, execute error {result.reason}".rstrip()
            raise self._refusal(ResponseCode.SYSTEM_ERROR, remark)
        fields = {Property.REGION: self._config.region}
        fields |= RecallAnswer(msg_id=handle.unique_key).write()
        answer = request.answer(ResponseCode.SUCCESS, _UNANSWERED, fields=fields)
        return self._answer_when_safe(connection, result, answer)

    def _answer_when_safe(
        self, connection: Connection, result: AppendResult, answer: Command
    ) -> Command | None:
        if not self._flush_wait.waits:
            return answer

        def done(status: AppendStatus) -> None:
            connection.send(answer)  # stored it is in any case, and RocketMQ says no more

        self._flush_wait.add(result.log_offset + result.size, done)
        self._flush_wait.sync_soon()
        return None

    def _require_enabled(self) -> None:
        config = self._config
        if not config.recall:
            remark = "recall failed, operation is forbidden (recallMessageEnable)"
            raise self._refusal(ResponseCode.NO_PERMISSION, remark)
        early = config.accept_sends_from_ms > self._context.clock.now_ms()
        if early or (not config.writable and not config.recall_unwritable):
            remark = "recall failed, broker service not available"
            raise self._refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def _handle(self, header: RecallHeader) -> RecallHandle:
        try:
            handle = RecallHandle.decode(header.recall_handle)
        except FormatError as error:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, error.reason) from error
        if handle.topic != header.topic:
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, "recall failed, topic not match")
        if handle.broker_name != self._config.name:
            remark = "recall failed, broker service not available"
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        left_ms = (whole_number(handle.deliver_ms) or 0) - self._context.clock.now_ms()
        if not 0 < left_ms < self._config.store.timer_delay_max_ms:
            remark = "recall failed, timestamp invalid"
            raise self._refusal(ResponseCode.ILLEGAL_OPERATION, remark)
        return handle

    def _append_request(
        self, connection: Connection, header: RecallHeader, handle: RecallHandle
    ) -> AppendRequest:
        now_ms = self._context.clock.now_ms()
        properties = {
            Property.TAGS: RECALL_TAG,
            Property.TIMER_CANCELS: cancel_key(handle.topic, handle.unique_key),
            Property.UNIQ_KEY: handle.unique_key,
            Property.TIMER_DELIVER_MS: handle.deliver_ms,
            "BORN_TIMESTAMP": str(now_ms),
        }
        if header.producer_group:
            properties["PGROUP"] = header.producer_group
        return AppendRequest(
            handle.topic,
            0,
            b"0",
            encode_properties(properties),
            born_ms=now_ms,
            born_host=connection.peer_host,
        )

    def _refusal(self, code: int, remark: str) -> Refusal:
        return Refusal(code, remark, fields={Property.REGION: self._config.region})

    @answers(RequestCode.GET_TIMER_CHECK_POINT)
    def check_point(self, connection: Connection, request: Command) -> Command:
        timers = self._context.timers
        if timers is None:
            raise Refusal(ResponseCode.SYSTEM_ERROR, "The checkpoint is null (timerWheelEnable)")
        return request.answer(ResponseCode.SUCCESS, body=timers.store.checkpoint.encode())

    @answers(RequestCode.GET_TIMER_METRICS)
    def metrics(self, connection: Connection, request: Command) -> Command:
        timers = self._context.timers
        if timers is None:
            remark = "The timer message store is null (timerWheelEnable)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        body = json.dumps(timers.store.metrics.snapshot(), separators=(",", ":"))
        return request.answer(ResponseCode.SUCCESS, body=body.encode())
