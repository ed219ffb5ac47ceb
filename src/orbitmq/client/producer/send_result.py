"""SendResult: where a message went, as the broker answered."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from orbitmq.errors import FieldError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import ResponseCode


class SendStatus(Enum):
    """How safely a message is stored; all four mean that it is."""

    OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_REPLICA_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    REPLICA_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


STATUS_BY_CODE: Final = {
    ResponseCode.SUCCESS.value: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT.value: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE.value: SendStatus.REPLICA_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT.value: SendStatus.FLUSH_REPLICA_TIMEOUT,
}


@dataclass(slots=True)
class SendResult:
    """Where a message went. `message_id` is ours, `offset_id` the broker's: both find it again."""

    status: SendStatus
    message_id: str
    offset_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str = ""
    region: str = "DefaultRegion"
    trace_on: bool = True
    recall_handle: str = ""

    @property
    def is_ok(self) -> bool:
        """Stored as safely as the broker is configured to; False: stored, but less safely."""
        return self.status is SendStatus.OK


def send_result(
    status: SendStatus, message_id: str, queue: MessageQueue, fields: Mapping[str, str] | None
) -> SendResult:
    """Return what the fields of an answer say. FieldError: one that must be there is not."""
    given = fields or {}
    try:
        queue_id, queue_offset = int(given["queueId"]), int(given["queueOffset"])
        offset_id = given["msgId"]
    except (KeyError, ValueError) as cause:
        raise FieldError("queueId, queueOffset, msgId", "missing or wrong in an answer") from cause
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status,
        message_id,
        offset_id,
        queue,
        queue_offset,
        given.get("transactionId", ""),
        given.get("MSG_REGION", "DefaultRegion"),
        given.get("TRACE_ON") != "false",
        given.get("recallHandle", ""),
    )


def batch_results(result: SendResult, message_ids: list[str]) -> list[SendResult]:
    """Return the result of each message of a batch.

    A broker that keeps the batch as one record has one offset id for all; the queue offsets count on.
    """
    offset_ids = result.offset_id.split(",")
    if len(offset_ids) != len(message_ids):
        offset_ids = [result.offset_id] * len(message_ids)
    return [
        SendResult(
            result.status,
            message_id,
            offset_ids[index],
            result.queue,
            result.queue_offset + index,
            result.transaction_id,
            result.region,
            result.trace_on,
        )
        for index, message_id in enumerate(message_ids)
    ]
