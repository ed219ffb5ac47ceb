"""Write the fields of a record, compiled: whoever writes one by a kernel uses these helpers."""

from typing import Final

import numpy as np

from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper
from orbitmq.format.compiled.memory import copy, store_i16, store_i32, store_i64
from orbitmq.format.record import (
    BODY_CRC_AT,
    BORN_HOST_AT,
    BORN_MS_AT,
    FLAG_AT,
    HOST_V6_EXTRA,
    LOG_OFFSET_AT,
    MAGIC_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from orbitmq.message import SysFlag

BORN_V6: Final = SysFlag.BORN_HOST_V6.value
STORE_V6: Final = SysFlag.STORE_HOST_V6.value
_HOST_BYTES: Final = 8


@helper
def host_bytes(sys_flag, bit):
    """Return how long a packed host is, by its bit."""
    return _HOST_BYTES + (HOST_V6_EXTRA if sys_flag & bit else 0)


@helper
def write_head(
    out,
    at,
    magic,
    offsets,
    store_ms,
    hosts,
    row,
    prepared_offset,
    flag,
    source,
    body_at,
    body_length,
):
    """Write all up to the end of the body, the size as zero; return where the topic goes.

    `offsets` are those of log and queue, `hosts` the producer's and the store's, packed, one behind the
    other. `row` has queue_id, sys_flag, born_ms and reconsume_times; the body lies in `source`.
    """
    sys_flag = np.int64(row.sys_flag)
    store_i32(out, at, np.int64(0))
    store_i32(out, at + MAGIC_AT, np.int64(magic))
    store_i32(out, at + BODY_CRC_AT, masked_crc32(source, body_at, body_at + body_length))
    store_i32(out, at + QUEUE_ID_AT, np.int64(row.queue_id))
    store_i32(out, at + FLAG_AT, flag)
    store_i64(out, at + QUEUE_OFFSET_AT, offsets[1])
    store_i64(out, at + LOG_OFFSET_AT, offsets[0])
    store_i32(out, at + SYS_FLAG_AT, sys_flag)
    store_i64(out, at + BORN_MS_AT, row.born_ms)
    born_bytes = host_bytes(sys_flag, BORN_V6)
    copy(out, at + BORN_HOST_AT, hosts, 0, born_bytes)
    place = at + BORN_HOST_AT + born_bytes
    store_i64(out, place, store_ms)
    store_bytes = host_bytes(sys_flag, STORE_V6)
    copy(out, place + 8, hosts, born_bytes, store_bytes)
    place += 8 + store_bytes
    store_i32(out, place, np.int64(row.reconsume_times))
    store_i64(out, place + 4, prepared_offset)
    store_i32(out, place + 12, body_length)
    copy(out, place + 16, source, body_at, body_length)
    return place + 16 + body_length


@helper
def write_topic(out, at, version, source, start, length):
    """Write the topic with its length; return where the properties start, behind their length."""
    if version == 1:
        out[at] = length
    else:
        store_i16(out, at, length)
    copy(out, at + version, source, start, length)
    return at + version + length + 2
