"""Write the records of sends that `find_sends` found, and their answers, compiled. See `plain.records`."""

from typing import Final

import numpy as np

from orbitmq.format.client_batch import HEAD_BYTES
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import copy, load_i16, load_i32, store_i16, store_i32
from orbitmq.format.compiled.numbers import (
    base64_bytes,
    digits,
    write_base64,
    write_hex,
    write_number,
)
from orbitmq.format.compiled.record import write_head, write_topic
from orbitmq.format.record import BODY_AT, MAGIC_AT, MAGIC_V1, QUEUE_ID_AT
from orbitmq.message import TIMER_TOPIC
from orbitmq.wire.fast.layout import (
    BEFORE_HANDLE,
    BEFORE_ID,
    BEFORE_KEY,
    BEFORE_OFFSET,
    BEFORE_OPAQUE,
    BEFORE_QUEUE_ID,
    BEFORE_REAL_QUEUE,
    BEFORE_REAL_TOPIC,
    BEFORE_SLOT,
    BEHIND_HANDLE,
    HANDLE_BROKER,
    HANDLE_START,
    ID_START,
    LAST,
)


def _text(raw: bytes) -> np.ndarray:
    return np.frombuffer(raw, dtype=np.uint8)


_TIMER_TOPIC: Final = _text(TIMER_TOPIC.encode())
_BEFORE_SLOT: Final = _text(BEFORE_SLOT)
_BEFORE_REAL_TOPIC: Final = _text(BEFORE_REAL_TOPIC)
_BEFORE_REAL_QUEUE: Final = _text(BEFORE_REAL_QUEUE)
_BODY_LENGTH_AT: Final = BODY_AT - 4
_UNPUBLISHED: Final = 0  # size and magic come last, see `publish_records`


@kernel
def write_sends(
    out,
    position,
    log_offset,
    store_ms,
    hosts,
    data,
    text,
    suffix,
    rows,
    count,
    queues,
    waiting_offset,
):
    at = position
    for index in range(count):
        row = rows[index]
        row.log_offset = log_offset + at - position
        waits = row.slot_ms > 0
        row.queue_offset = waiting_offset if waits else queues[row.queue].next_offset
        if row.batch == 1:
            at = _write_batch(out, at, store_ms, hosts, data, text, suffix, row)
        else:
            offsets = row.log_offset, row.queue_offset
            place = write_head(
                out,
                at,
                _UNPUBLISHED,
                offsets,
                store_ms,
                hosts,
                row,
                np.int64(0),
                row.flag,
                data,
                row.body_at,
                row.body_length,
            )
            if waits:
                store_i32(out, at + QUEUE_ID_AT, np.int64(0))
                at = _write_waiting(out, place, data, text, suffix, row)
                waiting_offset += 1
                continue
            at = _write_properties(out, place, data, row.body_at, 0, text, suffix, row)
        queues[row.queue].next_offset += row.messages
    return at


@helper
def _write_batch(out, at, store_ms, hosts, data, text, suffix, row):
    start, log_offset, queue_offset = at, row.log_offset, row.queue_offset
    source, end = row.body_at, row.body_at + row.body_length
    while source < end:
        flag, body_length = load_i32(data, source + 12), load_i32(data, source + 16)
        body_at = source + HEAD_BYTES
        own_at = body_at + body_length + 2
        own = load_i16(data, own_at - 2)
        offsets = log_offset + at - start, queue_offset
        place = write_head(
            out,
            at,
            _UNPUBLISHED,
            offsets,
            store_ms,
            hosts,
            row,
            np.int64(0),
            flag,
            data,
            body_at,
            body_length,
        )
        at = _write_properties(out, place, data, own_at, own, text, suffix, row)
        queue_offset += 1
        source = own_at + own
    return at


@helper
def _write_properties(out, at, data, own_at, own, text, suffix, row):
    """Write the topic, a batch message's own properties, the request's and the broker's; return the end."""
    start = write_topic(out, at, 1, data, row.topic_at, row.topic_length)
    at = start
    copy(out, at, data, own_at, own)
    at += own
    if own > 0 and out[at - 1] != 2:
        out[at] = 2
        at += 1
    copy(out, at, text, row.properties_at, row.properties_length)
    at += row.properties_length
    copy(out, at, suffix, 0, len(suffix))
    at += len(suffix)
    store_i16(out, start - 2, at - start)
    return at


@helper
def _write_waiting(out, at, data, text, suffix, row):
    """Write the topic where messages wait, and properties that say for what; return the end."""
    start = write_topic(out, at, 1, _TIMER_TOPIC, 0, len(_TIMER_TOPIC))
    at = _write(out, start, text, row.properties_at, row.properties_length)
    at = _write(out, at, suffix, 0, len(suffix))
    at = _write(out, at, _BEFORE_SLOT, 0, len(_BEFORE_SLOT))
    at = write_number(out, at, row.slot_ms)
    at = _write(out, at, _BEFORE_REAL_TOPIC, 0, len(_BEFORE_REAL_TOPIC))
    at = _write(out, at, data, row.topic_at, row.topic_length)
    at = _write(out, at, _BEFORE_REAL_QUEUE, 0, len(_BEFORE_REAL_QUEUE))
    at = write_number(out, at, row.queue_id)
    out[at] = 2
    at += 1
    store_i16(out, start - 2, at - start)
    return at


@helper
def _write(out, at, source, start, length):
    copy(out, at, source, start, length)
    return at + length


@helper
def _record_bytes(out, at):
    """Return the size of a record that does not say it yet."""
    topic_at = at + BODY_AT + load_i32(out, at + _BODY_LENGTH_AT)
    length_at = topic_at + 1 + np.int64(out[topic_at])
    return length_at + 2 + load_i16(out, length_at) - at


@kernel
def publish_records(out, position, end):
    while position < end:
        size = _record_bytes(out, position)
        store_i32(out, position, size)
        store_i32(out, position + MAGIC_AT, np.int64(MAGIC_V1))
        position += size


@helper
def _write_part(out, at, parts, ends, part):
    start = ends[part - 1] if part > 0 else 0
    copy(out, at, parts, start, ends[part] - start)
    return at + ends[part] - start


@helper
def _write_ids(out, at, records, row, position, parts, ends):
    """Write the offset ids of a send's messages, with commas between them; return the end."""
    log_offset = row.log_offset
    for index in range(row.messages):
        if index > 0:
            out[at] = 0x2C
            at += 1
            size = load_i32(records, position)
            log_offset += size
            position += size
        at = _write_part(out, at, parts, ends, ID_START)
        at = write_hex(out, at, log_offset)
    return at


@helper
def _part_bytes(ends, part):
    return ends[part] - (ends[part - 1] if part > 0 else 0)


@helper
def _write_handle(out, at, text, data, row, parts, ends):
    """Write by what a message can be recalled; return the end."""
    length = _part_bytes(ends, HANDLE_START) + row.topic_length + _part_bytes(ends, HANDLE_BROKER)
    length += digits(row.slot_ms + 1) + 1 + row.key_length
    place = at + base64_bytes(length) - length
    place = _write_part(out, place, parts, ends, HANDLE_START)
    place = _write(out, place, data, row.topic_at, row.topic_length)
    place = _write_part(out, place, parts, ends, HANDLE_BROKER)
    place = write_number(out, place, row.slot_ms + 1)
    out[place] = 0x20
    _write(out, place + 1, text, row.key_at, row.key_length)
    return write_base64(out, at, length)


@kernel
def write_answers(out, text, data, records, position, rows, count, parts, ends):
    at = np.int64(0)
    for index in range(count):
        row = rows[index]
        if row.oneway == 0:
            start = at
            at = _write_part(out, at + 8, parts, ends, BEFORE_QUEUE_ID)
            at = write_number(out, at, row.queue_id)
            if row.key_length > 0:
                at = _write_part(out, at, parts, ends, BEFORE_KEY)
                copy(out, at, text, row.key_at, row.key_length)
                at += row.key_length
            at = _write_part(out, at, parts, ends, BEFORE_ID)
            at = _write_ids(out, at, records, row, position, parts, ends)
            if row.slot_ms > 0:
                at = _write_part(out, at, parts, ends, BEFORE_HANDLE)
                at = _write_handle(out, at, text, data, row, parts, ends)
                at = _write_part(out, at, parts, ends, BEHIND_HANDLE)
            else:
                at = _write_part(out, at, parts, ends, BEFORE_OFFSET)
            at = write_number(out, at, row.queue_offset)
            at = _write_part(out, at, parts, ends, BEFORE_OPAQUE)
            at = write_number(out, at, row.opaque)
            at = _write_part(out, at, parts, ends, LAST)
            store_i32(out, start, at - start - 4)
            store_i32(out, start + 4, at - start - 8)
        position += row.bytes
    return at
