"""Write the records of sends that `find_sends` found, and their answers, compiled. See `plain.records`."""

from typing import Final

import numpy as np

from orbitmq.format.client_batch import HEAD_BYTES
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import copy, load_i16, load_i32, store_i16, store_i32
from orbitmq.format.compiled.record import write_head, write_topic
from orbitmq.format.record import BODY_AT, MAGIC_AT, MAGIC_V1
from orbitmq.wire.fast.layout import (
    BEFORE_ID,
    BEFORE_KEY,
    BEFORE_OFFSET,
    BEFORE_OPAQUE,
    BEFORE_QUEUE_ID,
    ID_START,
    LAST,
)

_BODY_LENGTH_AT: Final = BODY_AT - 4
_UNPUBLISHED: Final = 0  # size and magic come last, see `publish_records`


@kernel
def write_sends(
    out, position, log_offset, store_ms, hosts, data, text, suffix, rows, count, queues
):
    at = position
    for index in range(count):
        row = rows[index]
        row.log_offset = log_offset + at - position
        row.queue_offset = queues[row.queue].next_offset
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
def _write_number(out, at, value):
    """Write a number that is not negative; return the end."""
    digits = 1
    left = value
    while left >= 10:
        left //= 10
        digits += 1
    for index in range(at + digits - 1, at - 1, -1):
        out[index] = 0x30 + value % 10
        value //= 10
    return at + digits


@helper
def _write_hex(out, at, value):
    """Write 16 digits; return the end."""
    for index in range(at + 15, at - 1, -1):
        digit = value & 15
        out[index] = (0x30 if digit < 10 else 0x37) + digit
        value >>= 4
    return at + 16


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
        at = _write_hex(out, at, log_offset)
    return at


@kernel
def write_answers(out, text, records, position, rows, count, parts, ends):
    at = np.int64(0)
    for index in range(count):
        row = rows[index]
        if row.oneway == 0:
            start = at
            at = _write_part(out, at + 8, parts, ends, BEFORE_QUEUE_ID)
            at = _write_number(out, at, row.queue_id)
            if row.key_length > 0:
                at = _write_part(out, at, parts, ends, BEFORE_KEY)
                copy(out, at, text, row.key_at, row.key_length)
                at += row.key_length
            at = _write_part(out, at, parts, ends, BEFORE_ID)
            at = _write_ids(out, at, records, row, position, parts, ends)
            at = _write_part(out, at, parts, ends, BEFORE_OFFSET)
            at = _write_number(out, at, row.queue_offset)
            at = _write_part(out, at, parts, ends, BEFORE_OPAQUE)
            at = _write_number(out, at, row.opaque)
            at = _write_part(out, at, parts, ends, LAST)
            store_i32(out, start, at - start - 4)
            store_i32(out, start + 4, at - start - 8)
        position += row.bytes
    return at
