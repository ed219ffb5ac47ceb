"""Answers to sends: the one that nearly all get, made from a prepared text, and the refusals."""

import json
import struct
from typing import TYPE_CHECKING, Final

from orbitmq.message import AppendResult, AppendStatus
from orbitmq.wire.codes import VERSION, Language, ResponseCode
from orbitmq.wire.command import PREFIX, RESPONSE_FLAG, Command, Encoding
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.header_binary import FIXED

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.message import Host

FAQ: Final = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""The end of some of RocketMQ's remarks."""

_PORT: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">i")
_BINARY_MARK: Final = Encoding.BINARY << 24

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

_REMARKS: Final = {
    AppendStatus.CREATE_MAPPED_FILE_FAILED: "create mapped file failed, server is busy or broken.",
    AppendStatus.SERVICE_NOT_AVAILABLE: "service not available now.",
    AppendStatus.OS_PAGE_CACHE_BUSY: (
        "[PC_SYNCHRONIZED]broker busy, start flow control for a while"
    ),
    AppendStatus.WHEEL_TIMER_NOT_ENABLE: (
        "accurate timer message is not enabled, use a delay level (DELAY) instead:"
    ),
    AppendStatus.FLUSH_DISK_TIMEOUT: (
        "stored, but the disk did not sync within syncFlushTimeout: a power cut could lose it"
    ),
}


def response_code(status: AppendStatus) -> int:
    """Return the code that tells a client this status."""
    return int(_CODES.get(status, ResponseCode.SYSTEM_ERROR))


def refusal_remark(result: AppendResult, body_bytes_max: int) -> str:
    """Return what RocketMQ says to this status, and the store's own reason."""
    status = result.status
    if response_code(status) == ResponseCode.MESSAGE_ILLEGAL:
        text = (
            "the message is illegal, maybe msg body or properties length not matched. "
            f"msg body length limit {body_bytes_max}B, msg properties length limit 32KB."
        )
    else:
        text = _REMARKS.get(status, status.name)
    return f"{text} {result.reason}".rstrip()


class SendAnswers:
    """Makes answers to sends for one state of the settings. Belongs to the event loop's thread."""

    def __init__(self, config: "BrokerConfig", store_host: "Host") -> None:
        self._id_start = (store_host.address + _PORT.pack(store_host.port)).hex().upper()
        self.fields = {
            "TRACE_ON": "true" if config.trace_on else "false",
            "MSG_REGION": config.region,
        }
        """What stands in every answer, refusals too."""
        self.parts = self._json_parts()
        """What stands between the values of the JSON answer to a send that was stored."""
        self._text = self._json_text()
        self._binary_start, self._binary_fixed = self._binary_parts()

    def offset_id(self, log_offset: int) -> str:
        return f"{self._id_start}{log_offset:016X}"

    def _json_text(self) -> str:
        """Return the answer as a text to be filled in."""
        before_queue_id, before_key, before_id, id_start, before_offset, before_opaque, last = (
            part.decode().replace("%", "%%") for part in self.parts
        )
        return (
            f"{before_queue_id}%d{before_key}%s{before_id}{id_start}%016X"
            f"{before_offset}%d{before_opaque}%d{last}"
        )

    def _json_parts(self) -> tuple[bytes, ...]:
        trace_on, region = (json.dumps(text) for text in self.fields.values())
        parts = (
            '{"code":0,"extFields":{"queueId":"',
            '","transactionId":"',
            '","msgId":"',
            self._id_start,
            f'","TRACE_ON":{trace_on},"MSG_REGION":{region},"queueOffset":"',
            '"},"flag":1,"language":"JAVA","opaque":',
            f',"serializeTypeCurrentRPC":"JSON","version":{VERSION}}}',
        )
        return tuple(part.encode() for part in parts)

    def _binary_parts(self) -> tuple[bytes, int]:
        """Return the fields that are the same in all answers, the last one open at its end."""
        start = b"".join(_pair(name.encode(), text.encode()) for name, text in self.fields.items())
        id_bytes = len(self._id_start) + 16
        start += b"\x00\x05msgId" + _LENGTH.pack(id_bytes) + self._id_start.encode()
        return start, FIXED.size + 4 + 4

    def stored_frame(
        self, request: Command, queue_id: int, unique_key: str, log_offset: int, queue_offset: int
    ) -> bytes:
        """Return the frame that tells where a message went. The unique key needs no escaping."""
        if request.encoding is not Encoding.JSON:
            return self._binary_frame(
                request.opaque, queue_id, unique_key, log_offset, queue_offset
            )
        header = (
            self._text % (queue_id, unique_key, log_offset, queue_offset, request.opaque)
        ).encode()
        size = len(header)
        return PREFIX.pack(size + 4, size) + header

    def _binary_frame(
        self, opaque: int, queue_id: int, unique_key: str, log_offset: int, queue_offset: int
    ) -> bytes:
        pairs = b"".join(
            (
                self._binary_start,
                b"%016X" % log_offset,
                _pair(b"queueId", b"%d" % queue_id),
                _pair(b"queueOffset", b"%d" % queue_offset),
                _pair(b"transactionId", unique_key.encode()),
            )
        )
        size = self._binary_fixed + len(pairs)
        fixed = FIXED.pack(0, Language.JAVA, VERSION, opaque, RESPONSE_FLAG)
        return b"".join(
            (
                PREFIX.pack(size + 4, _BINARY_MARK | size),
                fixed,
                b"\x00\x00\x00\x00",  # no remark
                _LENGTH.pack(len(pairs)),
                pairs,
            )
        )

    def stored(
        self,
        request: Command,
        status: AppendStatus,
        queue_id: int,
        unique_key: str | None,
        results: list[AppendResult],
    ) -> Command:
        """Return the answer of a send that was stored, of any kind; a batch has several results."""
        fields = {"queueId": str(queue_id)}
        if unique_key:
            fields["transactionId"] = unique_key
        fields["msgId"] = ",".join(self.offset_id(result.log_offset) for result in results)
        fields |= self.fields
        fields["queueOffset"] = str(results[0].queue_offset)
        return request.answer(response_code(status), _REMARKS.get(status), fields=fields)

    def told(self, answers: bytes, status: AppendStatus) -> list[Command]:
        """Return the answers to sends that were stored, with what the disk made of it."""
        commands = []
        for answer in FrameDecoder().receive(answers):
            answer.code, answer.remark = response_code(status), _REMARKS.get(status)
            commands.append(answer)
        return commands

    def refused(self, request: Command, code: int, remark: str) -> Command:
        """Return the answer of a send that was not stored."""
        return request.answer(code, remark, fields=dict(self.fields))


def _pair(name: bytes, value: bytes) -> bytes:
    return b"".join((len(name).to_bytes(2, "big"), name, _LENGTH.pack(len(value)), value))
