"""Timer messages, many at once, compiled. `plain.waiting` says what each step means."""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import (
    copy,
    load_i16,
    load_i32,
    load_i64,
    store_i16,
    store_i32,
    store_i64,
)
from orbitmq.format.compiled.numbers import digits, write_number
from orbitmq.format.compiled.record import write_topic
from orbitmq.format.compiled.text import as_int32, find_byte, hash_text, same_bytes
from orbitmq.format.ordinary import SPECIAL_FLAGS
from orbitmq.format.record import (
    BODY_AT,
    BODY_CRC_AT,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    OVERHEAD_BYTES,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_HOST_AT,
    STORE_MS_AT,
    SYS_FLAG_AT,
)
from orbitmq.format.timer_log import MAGIC_BITS, UNIT_BYTES
from orbitmq.format.waiting import (
    DELIVERED_TEXT,
    ENQUEUED_TEXT,
    ODD_WORDS,
    QUEUE_DIGITS_MAX,
    SLOT_DIGITS_MAX,
    WAITING_PROPERTIES_MAX,
)
from orbitmq.message import TIMER_TOPIC, TOPIC_BYTES_MAX, Property

Table = npt.NDArray[np.void]


def _text(raw: bytes) -> Bytes:
    return np.frombuffer(raw, dtype=np.uint8)


_TOPIC: Final = _text(TIMER_TOPIC.encode())
_SLOT: Final = _text(Property.TIMER_OUT_MS.encode())
_REAL_TOPIC: Final = _text(Property.REAL_TOPIC.encode())
_REAL_QUEUE: Final = _text(Property.REAL_QUEUE_ID.encode())
_CANCELS: Final = _text(Property.TIMER_CANCELS.encode())
_UNIQUE: Final = _text(Property.UNIQ_KEY.encode())
_INNER, _ENQUEUED = (_text(word) for word in ODD_WORDS)
_ENQUEUED_TEXT, _DELIVERED_TEXT = _text(ENQUEUED_TEXT), _text(DELIVERED_TEXT)
_UNDERLINE: Final = 0x5F
_INNER_LINE: Final = ODD_WORDS[0].index(b"_")
_ENQUEUED_LINE: Final = ODD_WORDS[1].index(b"_")
_BODY_LENGTH_AT: Final = BODY_AT - 4
_PREPARED_OFFSET_AT: Final = BODY_AT - 12


def read_waiting(
    data: Bytes,
    at: Ints,
    sizes: Ints,
    enqueue_ms: Ints,
    now_ms: int,
    body_max: int,
    rows: Table,
    queues: Table,
    *,
    check_crc: bool,
) -> tuple[int, int]:
    count, queue_count = _read_waiting(
        frozen(data),
        _ints(at),
        _ints(sizes),
        _ints(enqueue_ms),
        int(now_ms),
        int(body_max),
        rows,
        queues,
        bool(check_crc),
    )
    return int(count), int(queue_count)


def _ints(numbers: Ints) -> Ints:
    return frozen_rows(np.asarray(numbers, dtype=np.int64), np.dtype(np.int64))


@kernel
def _read_waiting(data, at, sizes, enqueue_ms, now_ms, body_max, rows, queues, check_crc):
    queue_count = 0
    stamps = len(_ENQUEUED_TEXT) + len(_DELIVERED_TEXT) + digits(now_ms) + 1
    for index in range(len(at)):
        row = rows[index]
        if not _read_record(data, at[index], sizes[index], body_max, check_crc, row):
            return index, queue_count
        number = _queue(data, queues, queue_count, row)
        if number == len(queues):
            return index, queue_count
        queue = queues[number]
        if number == queue_count:
            queue.topic_at = row.topic_at
            queue.topic_length = row.topic_length
            queue.queue_id = row.queue_id
            queue.messages = 0
            queue.cancels = 0
            queue.next_offset = 0
            queue_count += 1
        queue.messages += 1
        queue.cancels += row.cancels
        row.queue = number
        row.enqueue_ms = enqueue_ms[index]
        row.bytes = OVERHEAD_BYTES + row.body_length + row.topic_length + row.properties_length
        row.bytes += stamps + digits(enqueue_ms[index])
    return len(at), queue_count


@helper
def _queue(data, queues, count, row):
    """Return the number of a row's queue; `count`: it is a new one."""
    for number in range(count):
        queue = queues[number]
        if (
            queue.queue_id == row.queue_id
            and queue.topic_length == row.topic_length
            and same_bytes(data, queue.topic_at, data, row.topic_at, row.topic_length)
        ):
            return number
    return count


@helper
def _read_record(data, at, size, body_max, check_crc, row):
    """Fill a row but for queue, time and bytes; False: the record is not simple."""
    if at < 0 or at > len(data) or size < OVERHEAD_BYTES or size > len(data) - at:
        return False
    if load_i32(data, at) != size or load_i32(data, at + MAGIC_AT) != MAGIC_V1:
        return False
    if load_i32(data, at + SYS_FLAG_AT) & SPECIAL_FLAGS:
        return False
    end = at + size
    body_length = load_i32(data, at + _BODY_LENGTH_AT)
    if body_length < 0 or body_length > body_max or body_length > size - OVERHEAD_BYTES:
        return False
    body_at = at + BODY_AT
    topic_at = body_at + body_length + 1
    topic_end = topic_at + len(_TOPIC)
    if data[topic_at - 1] != len(_TOPIC) or topic_end + 2 > end:
        return False
    length = load_i16(data, topic_end)
    start = topic_end + 2
    if start + length != end or not 0 < length <= WAITING_PROPERTIES_MAX or data[end - 1] != 2:
        return False
    if not same_bytes(data, topic_at, _TOPIC, 0, len(_TOPIC)):
        return False
    if check_crc and masked_crc32(data, body_at, body_at + body_length) != load_i32(
        data, at + BODY_CRC_AT
    ):
        return False
    row.at = at
    row.body_at = body_at
    row.body_length = body_length
    row.properties_at = start
    row.properties_length = length
    return _is_clean(data, start, end) and _read_properties(data, start, end, row)


@helper
def _is_clean(data, at, end):
    """Tell whether there is no zero byte and none of the odd words."""
    if find_byte(data, at, end, 0) < end:
        return False
    line = find_byte(data, at, end, _UNDERLINE)
    while line < end:
        if _has(data, line - _INNER_LINE, at, end, _INNER) or _has(
            data, line - _ENQUEUED_LINE, at, end, _ENQUEUED
        ):
            return False
        line = find_byte(data, line + 1, end, _UNDERLINE)
    return True


@helper
def _has(data, at, start, end, word):
    return at >= start and end - at >= len(word) and same_bytes(data, at, word, 0, len(word))


@helper
def _is(data, at, end, name):
    return end - at == len(name) and same_bytes(data, at, name, 0, len(name))


@helper
def _read_properties(data, at, end, row):
    """Fill what the properties say, which end with a 0x02; False: they do not say it simply."""
    nothing = np.int64(0)
    slot_at, slot_end, queue_at, queue_end = nothing, nothing, nothing, nothing
    topic_at, topic_end, key_at, key_end = nothing, nothing, nothing, nothing
    cancels = nothing
    while at < end:
        piece_end = find_byte(data, at, end, 2)
        name_end = find_byte(data, at, piece_end, 1)
        value_at = name_end + 1
        if value_at < piece_end:
            if _is(data, at, name_end, _SLOT):
                slot_at, slot_end = value_at, piece_end
            elif _is(data, at, name_end, _REAL_TOPIC):
                topic_at, topic_end = value_at, piece_end
            elif _is(data, at, name_end, _REAL_QUEUE):
                queue_at, queue_end = value_at, piece_end
            elif _is(data, at, name_end, _UNIQUE):
                key_at, key_end = value_at, piece_end
            elif _is(data, at, name_end, _CANCELS):
                cancels = np.int64(1)
        at = piece_end + 1
    row.slot_ms = _number(data, slot_at, slot_end, SLOT_DIGITS_MAX)
    row.queue_id = _number(data, queue_at, queue_end, QUEUE_DIGITS_MAX)
    row.topic_at = topic_at
    row.topic_length = topic_end - topic_at
    row.key_at = key_at
    row.key_length = key_end - key_at
    row.cancels = cancels
    if row.slot_ms < 0 or row.queue_id < 0 or not 0 < row.topic_length <= TOPIC_BYTES_MAX:
        return False
    for index in range(topic_at, topic_end):
        if data[index] >= 0x80:
            return False
    row.topic_hash = as_int32(hash_text(data, topic_at, topic_end, np.int64(0)))
    return True


@helper
def _number(data, at, end, digits_max):
    """Return a number of digits only, -1 if it is none."""
    if not 0 < end - at <= digits_max:
        return np.int64(-1)
    value = np.int64(0)
    for index in range(at, end):
        digit = np.int64(data[index]) - 0x30
        if digit < 0 or digit > 9:
            return np.int64(-1)
        value = value * 10 + digit
    return value


@kernel
def write_due(out, position, log_offset, store_ms, store_host, now_ms, data, rows, count, queues):
    at = position
    for index in range(count):
        row = rows[index]
        queue = queues[row.queue]
        # What stays: CRC, flag, producer and its time, attempts, the body. Size and magic come last.
        copy(out, at, data, row.at, BODY_AT + row.body_length)
        store_i64(out, at, np.int64(0))
        store_i32(out, at + QUEUE_ID_AT, row.queue_id)
        store_i64(out, at + QUEUE_OFFSET_AT, queue.next_offset)
        store_i64(out, at + LOG_OFFSET_AT, log_offset + at - position)
        store_i64(out, at + STORE_MS_AT, store_ms)
        copy(out, at + STORE_HOST_AT, store_host, 0, len(store_host))
        store_i64(out, at + _PREPARED_OFFSET_AT, np.int64(0))
        topic_at = at + BODY_AT + row.body_length
        start = write_topic(out, topic_at, 1, data, row.topic_at, row.topic_length)
        copy(out, start, data, row.properties_at, row.properties_length)
        at = start + row.properties_length
        copy(out, at, _ENQUEUED_TEXT, 0, len(_ENQUEUED_TEXT))
        at = write_number(out, at + len(_ENQUEUED_TEXT), row.enqueue_ms)
        copy(out, at, _DELIVERED_TEXT, 0, len(_DELIVERED_TEXT))
        at = write_number(out, at + len(_DELIVERED_TEXT), now_ms)
        out[at] = 2
        at += 1
        store_i16(out, start - 2, at - start)
        queue.next_offset += 1
    return at


@kernel
def publish_due(out, position, rows, count):
    for index in range(count):
        store_i32(out, position, rows[index].bytes)
        store_i32(out, position + MAGIC_AT, np.int64(MAGIC_V1))
        position += rows[index].bytes


def walk_slot(
    units: Bytes, base: int, position: int, slot_ms: int, positions: Ints, marks: Ints
) -> tuple[int, int, bool]:
    count, left, sound = _walk_slot(
        frozen(units), int(base), int(position), int(slot_ms), positions, marks
    )
    return int(count), int(left), bool(sound)


@kernel
def _walk_slot(units, base, position, slot_ms, positions, marks):
    count = 0
    while position >= base and count < len(positions):
        at = position - base
        if at % UNIT_BYTES != 0 or at > len(units) - UNIT_BYTES:
            return count, position, False
        previous, magic = load_i64(units, at + 4), load_i32(units, at + 12)
        if load_i32(units, at) != UNIT_BYTES or not 0 <= magic <= MAGIC_BITS:
            return count, position, False
        if load_i64(units, at + 16) + load_i32(units, at + 24) != slot_ms:
            return count, position, False
        if previous >= position:
            return count, position, False
        positions[count] = position
        marks[count] = magic
        count += 1
        position = previous
    return count, position, True
