"""The forms in which a message of a transaction enters the log, with the properties that RocketMQ gives it.

form      | topic                       | what is different from what the producer sent
half      | RMQ_SYS_TRANS_HALF_TOPIC    | transaction bits off; REAL_TOPIC, REAL_QID, __transactionId__
copy      | RMQ_SYS_TRANS_HALF_TOPIC    | as half; TRANSACTION_CHECK_TIMES one higher
immune    | RMQ_SYS_TRANS_HALF_TOPIC    | as copy; TRAN_PREPARED_QUEUE_OFFSET: the first half message
committed | its own                     | as half, with the commit bits and the log offset of the half message
given up  | TRANS_CHECK_MAX_TIME_TOPIC  | as copy
op        | RMQ_SYS_TRANS_OP_HALF_TOPIC | none of these: queue offsets of half messages that have ended

DELAY and TIMER_... only count for a committed message: a half message does not wait anywhere else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from orbitmq.format.properties import encode_properties
from orbitmq.format.record import Record, encode_record
from orbitmq.message import (
    CHECK_MAX_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    AppendRequest,
    AppendResult,
    Host,
    Property,
    SysFlag,
)

QUEUE: Final = 0
"""All these topics have one queue."""
OP_SEPARATOR: Final = ","
OP_PROPERTIES: Final = encode_properties({Property.WAIT: "true", Property.TAGS: "d"})
OP_TAG: Final = "d"

_TYPE_BITS: Final = int(SysFlag.TRANSACTION)
_HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)
_KEPT_BITS: Final = ~(_TYPE_BITS | _HOST_BITS)
_COMMIT: Final = int(SysFlag.COMMIT)


def half_properties(topic: str, queue_id: int, unique_key: str) -> dict[str, str]:
    """Return the properties that make a message a half message of this place."""
    return {
        Property.TRANSACTION_ID: unique_key,
        Property.REAL_TOPIC: topic,
        Property.REAL_QUEUE_ID: str(queue_id),
    }


def half_message(message: AppendRequest) -> AppendRequest:
    """Make a half message of a message that has the properties of one, and return it."""
    message.topic, message.queue_id, message.due = HALF_TOPIC, QUEUE, True
    return message


def real_place(properties: Mapping[str, str]) -> tuple[str, int] | None:
    """Return topic and queue that a half message is meant for; None: its properties do not say."""
    topic = properties.get(Property.REAL_TOPIC)
    queue_id = properties.get(Property.REAL_QUEUE_ID, "")
    if not topic or not queue_id.isdecimal() or len(queue_id) > 9:
        return None
    return topic, int(queue_id)


def committed(half: Record, topic: str, queue_id: int) -> AppendRequest:
    """Return a half message as its consumers get it."""
    return AppendRequest(
        topic,
        queue_id,
        half.body,
        half.properties,
        half.flag,
        half.sys_flag & _KEPT_BITS | _COMMIT,
        half.born_ms,
        half.born_host,
        reconsume_times=half.reconsume_times,
        prepared_offset=half.log_offset,
    )


def copied(half: Record, properties: Mapping[str, str], topic: str = HALF_TOPIC) -> AppendRequest:
    """Return a half message with other properties, for the end of the queue of half messages."""
    return AppendRequest(
        topic,
        QUEUE,
        half.body,
        encode_properties(properties),
        half.flag,
        half.sys_flag & ~_HOST_BITS,
        half.born_ms,
        half.born_host,
        reconsume_times=half.reconsume_times,
        due=True,
    )


def immune(half: Record, properties: Mapping[str, str]) -> AppendRequest:
    """Return a half message that nobody may be asked about yet, so that those behind it have their turn."""
    first = properties.get(Property.PREPARED_QUEUE_OFFSET, str(half.queue_offset))
    changed = {**properties, Property.WAIT: "false", Property.PREPARED_QUEUE_OFFSET: first}
    return copied(half, changed)


def given_up(half: Record, properties: Mapping[str, str]) -> AppendRequest:
    """Return a half message that was asked about too often, or is too old."""
    return copied(half, properties, CHECK_MAX_TOPIC)


def op_message(body: str, now_ms: int, host: Host) -> AppendRequest:
    """Return the message that says which half messages have ended."""
    return AppendRequest(
        OP_HALF_TOPIC, QUEUE, body.encode(), OP_PROPERTIES, born_ms=now_ms, born_host=host
    )


def ended_offsets(op: Record) -> Iterable[int]:
    """Return the queue offsets that an op message lists; RocketMQ 4 wrote one of them, without a comma."""
    if op.tags != OP_TAG:
        return []
    texts = op.body.decode("utf-8", "replace").split(OP_SEPARATOR)
    return [int(text) for text in texts if text.isdecimal() and len(text) <= 19]


def question(
    half: Record, properties: Mapping[str, str], topic: str, queue_id: int, copy: AppendResult
) -> bytes:
    """Return the message that a producer is asked about: what it sent, at the place of the newest copy."""
    shown = {**properties, Property.WAIT: "false"}
    message = replace(
        copied(half, shown, topic), queue_id=queue_id, prepared_offset=half.prepared_offset
    )
    return encode_record(
        message,
        log_offset=copy.log_offset,
        queue_offset=copy.queue_offset,
        store_ms=half.store_ms,
        store_host=half.store_host,
    )
