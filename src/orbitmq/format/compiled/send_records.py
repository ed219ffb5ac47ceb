"""Write the records of sends that `find_sends` found, and their answers, compiled."""

from typing import Final

import numpy as np

from orbitmq.format.client_batch import HEAD_BYTES
from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import copy, load_i16, load_i32, store_i16, store_i32, store_i64
from orbitmq.format.record import (
    BODY_AT,
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_MS_AT,
    FLAG_AT,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_HOST_AT,
    STORE_MS_AT,
    SYS_FLAG_AT,
)

_RECONSUME_AT: Final = STORE_HOST_AT + 8
_PREPARED_AT: Final = _RECONSUME_AT + 4
_BODY_LENGTH_AT: Final = _PREPARED_AT + 8
assert _BODY_LENGTH_AT + 4 == BODY_AT

# The parts of an answer between its values, in the order in which they stand in it.
BEFORE_QUEUE_ID, BEFORE_KEY, BEFORE_ID, ID_START, BEFORE_OFFSET, BEFORE_OPAQUE, LAST = range(7)
PARTS: Final = 7
ANSWER_BYTES_MAX: Final = 3 * 20 + 16  # of the values of one answer, but for its key


@kernel
def write_sends(
    out, position, log_offset, store_ms, hosts, data, text, suffix, rows, count, queues
):
    """Write the records of all sends from `position` on, each without size and magic; return the end.

    The caller has made sure that there is room. The queues' `next_offset` moves on.
    """
    at = position
    for index in range(count):
        row = rows[index]
        row.log_offset = log_offset + at - position
        row.queue_offset = queues[row.queue].next_offset
        if row.batch == 1:
            at = _write_batch(out, at, store_ms, hosts, data, text, suffix, row)
        else:
            offsets = row.log_offset, row.queue_offset
            place = _write_head(
                out, at, offsets, store_ms, hosts, data, row, row.flag, row.body_at, row.body_length
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
        place = _write_head(
            out, at, offsets, store_ms, hosts, data, row, flag, body_at, body_length
        )
        at = _write_properties(out, place, data, own_at, own, text, suffix, row)
        queue_offset += 1
        source = own_at + own
    return at


@helper
def _write_head(out, at, offsets, store_ms, hosts, data, row, flag, body_at, body_length):
    """Write all between magic and topic; return where the topic goes."""
    store_i32(out, at, np.int64(0))  # the size comes last, see `show_records`
    store_i32(out, at + MAGIC_AT, np.int64(0))
    store_i32(out, at + BODY_CRC_AT, masked_crc32(data, body_at, body_at + body_length))
    store_i32(out, at + QUEUE_ID_AT, row.queue_id)
    store_i32(out, at + FLAG_AT, flag)
    store_i64(out, at + QUEUE_OFFSET_AT, offsets[1])
    store_i64(out, at + LOG_OFFSET_AT, offsets[0])
    store_i32(out, at + SYS_FLAG_AT, row.sys_flag)
    store_i64(out, at + BORN_MS_AT, row.born_ms)
    copy(out, at + BORN_HOST_AT, hosts, 0, 8)
    store_i64(out, at + STORE_MS_AT, store_ms)
    copy(out, at + STORE_HOST_AT, hosts, 8, 8)
    store_i32(out, at + _RECONSUME_AT, row.reconsume_times)
    store_i64(out, at + _PREPARED_AT, np.int64(0))
    store_i32(out, at + _BODY_LENGTH_AT, body_length)
    copy(out, at + BODY_AT, data, body_at, body_length)
    return at + BODY_AT + body_length


@helper
def _write_properties(out, at, data, own_at, own, text, suffix, row):
    """Write the topic, a batch message's own properties, the request's and the broker's; return the end."""
    out[at] = row.topic_length
    copy(out, at + 1, data, row.topic_at, row.topic_length)
    length_at = at + 1 + row.topic_length
    at = length_at + 2
    copy(out, at, data, own_at, own)
    at += own
    if own > 0 and out[at - 1] != 2:
        out[at] = 2
        at += 1
    copy(out, at, text, row.properties_at, row.properties_length)
    at += row.properties_length
    copy(out, at, suffix, 0, len(suffix))
    at += len(suffix)
    store_i16(out, length_at, at - length_at - 2)
    return at


@helper
def _record_bytes(out, at):
    """Return the size of a record that does not say it yet."""
    topic_at = at + BODY_AT + load_i32(out, at + _BODY_LENGTH_AT)
    length_at = topic_at + 1 + np.int64(out[topic_at])
    return length_at + 2 + load_i16(out, length_at) - at


@kernel
def show_records(out, position, end):
    """Give the records of `write_sends` their size and magic, one after the other.

    A call of its own: whoever finds a size and a magic must find a whole record behind them.
    """
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
    """Write the frames that tell producers where their messages went; return how many bytes.

    `records` holds what `write_sends` wrote from `position` on; `ends` says where each of the `parts` ends.
    """
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
