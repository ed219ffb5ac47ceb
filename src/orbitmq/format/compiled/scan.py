"""Find the records in a stretch of the commit log, compiled. `plain.scan` says what each step means."""

from functools import lru_cache
from typing import Final

import numpy as np

from orbitmq.format.columns import ROW, Bytes, Ints, Mark, Rows, ScanOptions, ScanResult, Stop
from orbitmq.format.compiled.arrays import frozen
from orbitmq.format.compiled.crc import masked_crc32
from orbitmq.format.compiled.jit import helper, inlined, kernel
from orbitmq.format.compiled.memory import (
    load_i16,
    load_i32,
    load_i64,
    load_little_u32,
    load_little_u64,
    prefetch,
    raw,
    trailing_zeros,
)
from orbitmq.format.compiled.text import (
    as_int32,
    count_parts,
    hash_text,
    parse_number,
    read_properties,
    same_bytes,
)
from orbitmq.format.plain.scan import LENGTHS_BYTES_MIN, UNKNOWN_DELAY_MS
from orbitmq.format.property_crc import CRC_TAIL_BYTES
from orbitmq.format.record import (
    BLANK_BYTES,
    BLANK_MAGIC,
    BODY_AT,
    BODY_CRC_AT,
    HOST_V6_EXTRA,
    LOG_OFFSET_AT,
    MAGIC_AT,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    STORE_MS_AT,
    SYS_FLAG_AT,
)
from orbitmq.message import SCHEDULE_TOPIC, Property

_END: Final = int(Stop.END)
_BLANK: Final = int(Stop.BLANK)
_BAD: Final = int(Stop.BAD)
_FULL: Final = int(Stop.FULL)
_CUT: Final = int(Stop.CUT)
_GO_ON: Final = -1

_OFFSET_WRONG: Final = Mark.OFFSET_WRONG
_CRC_CHECKED: Final = Mark.CRC_CHECKED
_MULTI_DISPATCH: Final = Mark.MULTI_DISPATCH
_FILLER: Final = Mark.FILLER
_NO_UNIT: Final = Mark.NO_UNIT

_SCHEDULE_TOPIC: Final = np.frombuffer(SCHEDULE_TOPIC.encode(), dtype=np.uint8)
_CRC_NAME: Final = np.frombuffer(Property.CRC32.encode() + b"\x01", dtype=np.uint8)
_MAGIC_FIRST: Final = np.uint64((MAGIC_V1 & 0xFFFFFFFF) >> 24)
_LITTLE_V1: Final = np.uint32(int.from_bytes(MAGIC_V1.to_bytes(4, "big", signed=True), "little"))
_LITTLE_V2: Final = np.uint32(int.from_bytes(MAGIC_V2.to_bytes(4, "big", signed=True), "little"))
_ONES: Final = np.uint64(0x0101010101010101)
_HIGHS: Final = np.uint64(0x8080808080808080)


def scan(buffer: Bytes, start: int, end: int, base_offset: int, options: ScanOptions) -> ScanResult:
    source = frozen(buffer)
    at, end = max(int(start), 0), min(int(end), len(source))
    delays = _delays(options.delay_ms)
    checks = (
        bool(options.check_crc),
        bool(options.check_property_crc),
        bool(options.check_offset),
        len(delays),
    )
    parts: list[Rows] = []
    count = 0
    while True:
        wanted = min(options.max_rows - count, max(_likely_rows(source, at, end), 2 * count))
        rows = np.empty(max(wanted, 0), dtype=ROW)
        found, stop, at, stop_size = _scan(source, at, end, int(base_offset), checks, delays, rows)
        # Do not let a few rows keep the memory of the many that could have been there.
        parts.append(rows[:found] if 2 * found >= len(rows) else rows[:found].copy())
        count += found
        if stop != _FULL or count >= options.max_rows:
            break
    all_rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return ScanResult(all_rows, Stop(stop), at, stop_size)


@lru_cache(maxsize=16)
def _delays(delay_ms: tuple[int, ...]) -> Ints:
    return np.array(delay_ms, dtype=np.int64)


def _likely_rows(source: Bytes, at: int, end: int) -> int:
    """Return how many records a range may hold if they are as long as its first one, and some more."""
    size = int.from_bytes(source[at : at + 4].tobytes(), "big", signed=True)
    return (end - at) // max(size, OVERHEAD_BYTES) * 5 // 4 + 16


def find_record(
    buffer: Bytes, start: int, end: int, base_offset: int, *, check_crc: bool = True
) -> int:
    source = frozen(buffer)
    start, end = max(int(start), 0), min(int(end), len(source))
    found: int = _find_record(source, start, end, int(base_offset), bool(check_crc))
    return found


def skip_records(buffer: Bytes, start: int, end: int, base_offset: int) -> tuple[int, int]:
    source = frozen(buffer)
    start, end = max(int(start), 0), min(int(end), len(source))
    found: tuple[int, int] = _skip_records(source, start, end, int(base_offset))
    return found


@kernel
def _skip_records(buffer, start, end, base_offset):
    at, last = start, -1
    while end - at >= OVERHEAD_BYTES:
        size = load_i32(buffer, at)
        magic = load_i32(buffer, at + MAGIC_AT)
        if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < OVERHEAD_BYTES:  # noqa: PLR1714
            break
        if size > end - at or load_i64(buffer, at + LOG_OFFSET_AT) != base_offset + at:
            break
        last = at
        at += size
    return at, last


@kernel
def _scan(buffer, start, end, base_offset, checks, delays, rows):
    source, delay_ms = raw(buffer), raw(delays)
    at = start
    count = 0
    while True:
        stop, size = _look_at(source, at, end)
        if stop == _GO_ON and count >= len(rows):
            stop = _FULL
        if stop == _GO_ON:
            if _read_row(source, at, size, base_offset, checks, delay_ms, rows, count):
                count += 1
                at += size
                continue
            stop = _BAD
        return count, stop, at, size


@kernel
def _find_record(buffer, start, end, base_offset, check_crc):
    row, no_delays = np.empty(1, dtype=ROW), np.empty(0, dtype=np.int64)
    checks = (check_crc, False, True, 0)
    source, delay_ms = raw(buffer), raw(no_delays)
    at = _next_magic(source, start + MAGIC_AT, end)
    while at < end:
        here = at - MAGIC_AT
        stop, size = _look_at(source, here, end)
        if stop == _GO_ON and _read_row(source, here, size, base_offset, checks, delay_ms, row, 0):
            return here
        at = _next_magic(source, at + 1, end)
    return -1


@helper
def _next_magic(buffer, at, end):
    """Return the next position of the magic of a record, or `end`."""
    pattern = _MAGIC_FIRST * _ONES
    while end - at >= 8:
        mixed = load_little_u64(buffer, at) ^ pattern
        hits = (mixed - _ONES) & ~mixed & _HIGHS
        if hits == np.uint64(0):
            at += 8
            continue
        at += trailing_zeros(hits) >> 3
        if end - at >= 4 and _is_record_magic(load_little_u32(buffer, at)):
            return at
        at += 1
    while end - at >= 4:
        if _is_record_magic(load_little_u32(buffer, at)):
            return at
        at += 1
    return end


@helper
def _is_record_magic(little):
    return little == _LITTLE_V1 or little == _LITTLE_V2  # noqa: PLR1714 - no tuples of constants


@inlined
def _look_at(buffer, at, end):
    """Return (_GO_ON, the record's size), or why no record can be read here and the size field."""
    left = end - at
    if left < BLANK_BYTES:
        return _END, load_i32(buffer, at) if left >= 4 else 0
    size = load_i32(buffer, at)
    magic = load_i32(buffer, at + MAGIC_AT)
    if magic == BLANK_MAGIC:
        return _BLANK, size
    if (magic != MAGIC_V1 and magic != MAGIC_V2) or size < OVERHEAD_BYTES:  # noqa: PLR1714
        return _BAD, size
    if size > left:
        return _CUT if _is_plausible(buffer, at, end, size) else _BAD, size
    return _GO_ON, size


@helper
def _is_plausible(buffer, at, end, size):
    if end - at < SYS_FLAG_AT + 4:
        return True
    body_at = at + _fixed_bytes(load_i32(buffer, at + SYS_FLAG_AT))
    room = size - (body_at - at) - LENGTHS_BYTES_MIN
    if body_at > end or room < 0:
        return room >= 0
    body_length = load_i32(buffer, body_at - 4)
    return 0 <= body_length <= room


@helper
def _fixed_bytes(sys_flag):
    return BODY_AT + HOST_V6_EXTRA * ((sys_flag >> 4 & 1) + (sys_flag >> 5 & 1))


@inlined
def _read_row(buffer, at, size, base_offset, checks, delay_ms, rows, count):
    """Check the record of `size` bytes at `at` and fill its row; return whether it passed."""
    check_crc, check_property_crc, check_offset, delay_count = checks
    end = at + size
    # Without these the processor waits for memory at the start and at the end of each record. The next
    # ones are expected to be about as long as this one. Where no body is read, the one after the next is
    # asked for as well: a record takes less time than memory does.
    prefetch(buffer, end)
    ahead = end + size
    if not (check_crc or check_property_crc):
        prefetch(buffer, end + 64)
        prefetch(buffer, ahead)
        ahead += size
    for line in range(4):
        prefetch(buffer, ahead - 64 * line)
    sys_flag = load_i32(buffer, at + SYS_FLAG_AT)
    body_at = at + _fixed_bytes(sys_flag)
    length_bytes = 2 if load_i32(buffer, at + MAGIC_AT) == MAGIC_V2 else 1
    if body_at + length_bytes + 2 > end:
        return False
    body_length = load_i32(buffer, body_at - 4)
    if body_length < 0 or body_length > end - body_at - length_bytes - 2:
        return False
    topic_at = body_at + body_length + length_bytes
    if length_bytes == 2:
        topic_length = load_i16(buffer, topic_at - 2)
    else:
        topic_length = np.int64(np.int8(buffer[topic_at - 1]))
    if topic_length < 0 or topic_length > end - topic_at - 2:
        return False
    properties_at = topic_at + topic_length + 2
    if load_i16(buffer, properties_at - 2) != end - properties_at:
        return False

    log_offset = base_offset + at
    offset_right = load_i64(buffer, at + LOG_OFFSET_AT) == log_offset
    if check_offset and not offset_right:
        return False
    if check_property_crc:
        if end - properties_at < CRC_TAIL_BYTES or not _property_crc_matches(buffer, at, end):
            return False
    elif check_crc and body_length > 0:
        expected = load_i32(buffer, at + BODY_CRC_AT)
        if masked_crc32(buffer, body_at, body_at + body_length) != expected:
            return False

    tags, keys, unique, delay, number, base, dispatched, filler = read_properties(
        buffer, properties_at, end
    )
    store_ms = load_i64(buffer, at + STORE_MS_AT + HOST_V6_EXTRA * (sys_flag >> 4 & 1))
    tag_hash = np.int64(0)
    delayed = False
    if (
        delay[0] > 0
        and topic_length == len(_SCHEDULE_TOPIC)
        and same_bytes(buffer, topic_at, _SCHEDULE_TOPIC, 0, topic_length)
    ):
        valid, level = parse_number(buffer, delay[0], delay[1], 32)
        if not valid:
            return False
        level = min(level, delay_count - 1)
        if level > 0:
            delayed = True
            wait_ms = delay_ms[level]
            tag_hash = store_ms + (wait_ms if wait_ms >= 0 else UNKNOWN_DELAY_MS)
    if not delayed and tags[0] > 0:
        tag_hash = as_int32(hash_text(buffer, tags[0], tags[1], np.int64(0)))

    queue_offset = load_i64(buffer, at + QUEUE_OFFSET_AT)
    batch_count = np.int64(1)
    if number[0] > 0 and base[0] > 0:
        base_valid, queue_offset = parse_number(buffer, base[0], base[1], 64)
        number_valid, batch_count = parse_number(buffer, number[0], number[1], 16)
        if not (base_valid and number_valid):
            return False

    key_count = 0
    if sys_flag & 0xC != 0xC:
        key_count = count_parts(buffer, keys[0], keys[1]) + (1 if unique[0] > 0 else 0)
    marks = 0 if offset_right else _OFFSET_WRONG
    if check_crc or check_property_crc:
        marks |= _CRC_CHECKED
    if dispatched:
        marks |= _MULTI_DISPATCH
    if filler:
        marks |= _FILLER
    if sys_flag & 0x4:
        marks |= _NO_UNIT

    row = rows[count]
    row.log_offset = log_offset
    row.store_ms = store_ms
    row.queue_offset = queue_offset
    row.tag_hash = tag_hash
    row.size = size
    row.queue_id = load_i32(buffer, at + QUEUE_ID_AT)
    row.sys_flag = sys_flag
    row.batch_count = batch_count
    row.topic_at = topic_at
    row.topic_length = topic_length
    row.body_at = body_at
    row.body_length = body_length
    row.properties_at = properties_at
    row.properties_length = end - properties_at
    row.key_count = key_count
    row.marks = marks
    return True


@helper
def _property_crc_matches(buffer, at, end):
    """Return whether the last 20 bytes are the property with the CRC of all before."""
    tail = end - CRC_TAIL_BYTES
    digits = tail + len(_CRC_NAME)
    if buffer[end - 1] != 2 or not same_bytes(buffer, tail, _CRC_NAME, 0, len(_CRC_NAME)):
        return False
    left = masked_crc32(buffer, at, tail)
    for index in range(10):
        if np.int64(buffer[digits + index]) != 0x30 + left % 10:
            return False
        left //= 10
    return True
