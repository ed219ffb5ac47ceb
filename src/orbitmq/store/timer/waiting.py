"""A message that waits in the wheel: what its record says of its time, and what it is when that has come."""

import re
from typing import Final, NamedTuple

from orbitmq.errors import FormatError
from orbitmq.format.properties import encode_properties, find_property, join_properties
from orbitmq.format.record import Record, decode_record, properties_of
from orbitmq.message import TIMER_TOPIC, AppendRequest, Property, SysFlag

NEVER_ENQUEUED: Final = 2**63 - 1
"""Stands in TIMER_ENQUEUE_MS of a message that was due before it could be put into the wheel."""

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_HOST_BITS: Final = int(SysFlag.BORN_HOST_V6 | SysFlag.STORE_HOST_V6)


class Waiting(NamedTuple):
    """What the record of a waiting message says."""

    slot_ms: int
    topic: str
    cancels: bool


def whole_number(text: str) -> int | None:
    """Return the number that a property holds, None if it is none."""
    return int(text) if _NUMBER.fullmatch(text) else None


def read_waiting(raw: memoryview) -> Waiting | None:
    """Return what a record of the wheel's topic says, None if it cannot be put into the wheel."""
    try:
        properties = properties_of(raw)
    except FormatError:
        return None
    slot_ms = whole_number(find_property(properties, Property.TIMER_OUT_MS) or "")
    topic = find_property(properties, Property.REAL_TOPIC)
    if slot_ms is None or slot_ms < 0 or not topic:
        return None
    cancels = find_property(properties, Property.TIMER_CANCELS) is not None
    return Waiting(slot_ms, topic, cancels)


def cancel_key(topic: str, unique_key: str) -> str:
    """Return the text by which a message is named that is to be cancelled."""
    return f"{topic}+{unique_key}"


def read_record(raw: memoryview | None) -> Record | None:
    """Return the record of a waiting message, None if that is none."""
    if raw is None:
        return None
    try:
        record = decode_record(raw)
    except FormatError:
        return None
    return record if record.topic == TIMER_TOPIC else None


def delivery(record: Record, enqueue_ms: int, now_ms: int) -> AppendRequest | None:
    """Return the message as its consumers get it; None: it does not say where it belongs."""
    topic = find_property(record.properties, Property.REAL_TOPIC)
    queue_id = find_property(record.properties, Property.REAL_QUEUE_ID) or ""
    if not topic or not queue_id.isdecimal():
        return None
    stamps = f"{Property.TIMER_ENQUEUE_MS}\x01{enqueue_ms}\x02{Property.TIMER_DEQUEUE_MS}\x01{now_ms}\x02"
    if Property.TIMER_ENQUEUE_MS.encode() in record.properties:  # it was rolled
        properties = encode_properties(_stamped(record, enqueue_ms, now_ms))
    else:
        properties = join_properties(record.properties, stamps.encode())
    return _request(record, topic, int(queue_id), properties)


def rolled(record: Record, enqueue_ms: int, now_ms: int) -> AppendRequest:
    """Return the message as it goes into the wheel's topic once more: its time is still far."""
    properties = _stamped(record, enqueue_ms, now_ms)
    times = whole_number(properties.get(Property.TIMER_ROLL_TIMES, "0")) or 0
    properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
    return _request(record, TIMER_TOPIC, record.queue_id, encode_properties(properties))


def _stamped(record: Record, enqueue_ms: int, now_ms: int) -> dict[str, str]:
    return {
        **record.property_map,
        Property.TIMER_ENQUEUE_MS: str(enqueue_ms),
        Property.TIMER_DEQUEUE_MS: str(now_ms),
    }


def _request(record: Record, topic: str, queue_id: int, properties: bytes) -> AppendRequest:
    return AppendRequest(
        topic,
        queue_id,
        record.body,
        properties,
        record.flag,
        record.sys_flag & ~_HOST_BITS,
        record.born_ms,
        record.born_host,
        reconsume_times=record.reconsume_times,
        due=True,
    )
