"""Answers to sends: where a message went, or why it was refused."""

import struct
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.message import AppendResult, AppendStatus, Host
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import OPAQUE_MAX, Command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.header_json import encode_header
from orbitmq.wire.headers.header import wire_names
from orbitmq.wire.headers.recall import RecallHandle
from orbitmq.wire.headers.send import SendAnswer

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""The end of some of RocketMQ's remarks."""

_PORT: Final = struct.Struct(">i")
# In the order in which RocketMQ writes them.
_QUEUE_ID, _KEY, _ID, _TRACE_ON, _REGION, _QUEUE_OFFSET, _BATCH_ID, _RECALL = wire_names(SendAnswer)

_CODES: Final = {
    AppendStatus.PUT_OK: ResponseCode.SUCCESS,
    AppendStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    AppendStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    AppendStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.WHEEL_TIMER_MSG_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    AppendStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
"""All other statuses are SYSTEM_ERROR."""

LATE: Final = {
    AppendStatus.FLUSH_DISK_TIMEOUT: (
        "the disk did not sync within syncFlushTimeout: a power cut could lose it"
    ),
    AppendStatus.FLUSH_SLAVE_TIMEOUT: (
        "not enough replicas have it within slaveTimeout: without this broker it could be lost"
    ),
    AppendStatus.SLAVE_NOT_AVAILABLE: (
        "no replica is in sync (haMaxGapNotInSync): without this broker it could be lost"
    ),
}
"""What is to be said of a message that is stored and not as safe as it should be."""

_REMARKS: Final = {
    AppendStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    AppendStatus.SERVICE_NOT_AVAILABLE: "service not available now.",
    AppendStatus.OS_PAGE_CACHE_BUSY: (
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    ),
    AppendStatus.WHEEL_TIMER_NOT_ENABLE: (
        "accurate timer message is not enabled, use a delay level (DELAY) instead:"
    ),
    AppendStatus.WHEEL_TIMER_MSG_ILLEGAL: "timer message illegal:",
    AppendStatus.WHEEL_TIMER_FLOW_CONTROL: "timer message is under flow control:",
    AppendStatus.IN_SYNC_REPLICAS_NOT_ENOUGH: "in-sync replicas not enough",
    **{status: f"stored, but {reason}" for status, reason in LATE.items()},
}


def response_code(status: AppendStatus) -> int:
    """Return the code that tells a client this status."""
    return int(_CODES.get(status, ResponseCode.SYSTEM_ERROR))


def refusal_remark(result: AppendResult, body_bytes_max: int) -> str:
    """Return what RocketMQ says to this status, and the store's own reason."""
    status = result.status
    if status in _REMARKS:
        text = _REMARKS[status]
    elif response_code(status) == ResponseCode.MESSAGE_ILLEGAL:
        text = (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {body_bytes_max}B, msg properties length limit 32KB."
        )
    else:
        text = status.name
    return f"{text} {result.reason}".rstrip()


class SendAnswers:
    """Makes answers to sends for one state of the settings. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, store_host: Host) -> None:
        self._id_start = (store_host.address + _PORT.pack(store_host.port)).hex().upper()
        self._broker = config.name
        self._fields = {_TRACE_ON: "true" if config.trace_on else "false", _REGION: config.region}
        self.parts = self._parts()
        """What stands between the values of the JSON answer to a send that was stored, for kernels."""

    def stored(
        self,
        request: Command,
        queue_id: int,
        unique_key: str | None,
        results: list[AppendResult],
        batch_uniq_id: str | None = None,
        recall_handle: str | None = None,
    ) -> Command:
        """Return the answer to a send that was stored; a batch of several records has several results."""
        status = results[0].status
        fields = {_QUEUE_ID: str(queue_id)}
        if unique_key:
            fields[_KEY] = unique_key
        fields[_ID] = ",".join([f"{self._id_start}{result.log_offset:016X}" for result in results])
        fields |= self._fields
        if recall_handle is not None:
            fields[_RECALL] = recall_handle
        fields[_QUEUE_OFFSET] = str(results[0].queue_offset)
        if batch_uniq_id is not None:
            fields[_BATCH_ID] = batch_uniq_id
        return request.answer(response_code(status), _REMARKS.get(status), fields=fields)

    def _parts(self) -> tuple[bytes, ...]:
        """Cut the answer to a send with easily found values at these; see `wire.fast.layout`."""
        number, offset, key = OPAQUE_MAX - 1, 2**63 - 1, "K" * 40
        asked = Command(RequestCode.SEND_MESSAGE_V2, opaque=OPAQUE_MAX)
        result = AppendResult(AppendStatus.PUT_OK, log_offset=offset, queue_offset=offset - 1)
        left = encode_header(self.stored(asked, number, key, [result])).decode()
        parts = []
        for value in (number, key, self._id_start, f"{offset:016X}", offset - 1, OPAQUE_MAX):
            part, _, left = left.partition(str(value))
            parts.append(part)
        parts[3] = self._id_start  # nothing stands between it and the offset
        handle = "H" * 40
        recalled = encode_header(self.stored(asked, number, key, [result], None, handle)).decode()
        before, _, behind = recalled.partition(f"{offset:016X}")[2].partition(handle)
        start, broker = RecallHandle("T", self._broker, "0", key).text.split("T", 1)
        parts += [left, before, behind.partition(str(offset - 1))[0], start]
        return tuple(part.encode("utf-8", "replace") for part in (*parts, broker[: -len(key) - 2]))

    def with_status(self, answers: bytes, status: AppendStatus) -> list[Command]:
        """Return the answers to sends that were stored, with what the disk made of it."""
        commands = []
        for answer in FrameDecoder().receive(answers):
            answer.code, answer.remark = response_code(status), _REMARKS.get(status)
            commands.append(answer)
        return commands

    def refused(
        self, request: Command, code: int, remark: str, batch_uniq_id: str | None = None
    ) -> Command:
        """Return the answer of a send that was not stored."""
        fields = dict(self._fields)
        if batch_uniq_id is not None:
            fields[_BATCH_ID] = batch_uniq_id
        return request.answer(code, remark, fields=fields)
