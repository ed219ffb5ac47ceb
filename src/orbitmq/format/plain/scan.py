"""Find the records in a stretch of the commit log: the reference for `compiled.scan`."""

import re
import struct
from typing import Final, NamedTuple

import numpy as np

from orbitmq.format.columns import ROW, Bytes, Mark, ScanOptions, ScanResult, Stop
from orbitmq.format.crc import masked_crc32
from orbitmq.format.java_hash import java_hash
from orbitmq.format.property_crc import CRC_TAIL_BYTES, property_crc_matches
from orbitmq.format.record import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    FIXED_BY_HOSTS,
    LOG_OFFSET_AT,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    SYS_FLAG_AT,
)
from orbitmq.message import SCHEDULE_TOPIC, Property, SysFlag

UNKNOWN_DELAY_MS: Final = 1000
LENGTHS_BYTES_MIN: Final = 3  # what a record has behind its body even if it is empty

_INT64: Final = struct.Struct(">q")
_INT32: Final = struct.Struct(">i")
_INT16: Final = struct.Struct(">h")
_MAGIC_PATTERN: Final = re.compile(rb"\xda\xa3\x20[\xa7\xab]", re.DOTALL)
_NUMBER: Final = re.compile(rb"[+-]?[0-9]+")
_SCHEDULE_TOPIC: Final = SCHEDULE_TOPIC.encode()

_TAGS: Final = Property.TAGS.encode()
_KEYS: Final = Property.KEYS.encode()
_UNIQ_KEY: Final = Property.UNIQ_KEY.encode()
_DELAY: Final = Property.DELAY.encode()
_INNER_NUM: Final = Property.INNER_NUM.encode()
_INNER_BASE: Final = Property.INNER_BASE.encode()
_MULTI_DISPATCH: Final = Property.MULTI_DISPATCH.encode()
_FILLER: Final = Property.FILLER.encode()
_WANTED: Final = frozenset(
    (_TAGS, _KEYS, _UNIQ_KEY, _DELAY, _INNER_NUM, _INNER_BASE, _MULTI_DISPATCH, _FILLER)
)

Row = tuple[int, ...]  # in the order of columns.ROW


class _NotANumberError(ValueError):
    """A property that must hold a number does not; Java's dispatch fails on such a record."""


class Layout(NamedTuple):
    """Where the parts of one record lie, counted from the start of the buffer."""

    body_at: int
    body_length: int
    topic_at: int
    topic_length: int
    properties_at: int
    properties_length: int


def scan(buffer: Bytes, start: int, end: int, base_offset: int, options: ScanOptions) -> ScanResult:
    """Read records from position `start` up to `end`; `base_offset` is the offset of buffer[0].

    Every row is a whole record that passed the checks asked for: known magic, lengths that fill the
    size exactly, numbers where DELAY (schedule topic), INNER_NUM and INNER_BASE must be some.
    Never raises on bad bytes.
    """
    view = buffer.data
    at, end = max(start, 0), min(end, len(view))
    found: list[Row] = []
    while True:
        stop, size = _look_at(view, at, end)
        if stop is None and len(found) >= options.max_rows:
            stop = Stop.FULL
        if stop is None:
            row = read_row(view, at, size, base_offset, options)
            if row is not None:
                found.append(row)
                at += size
                continue
            stop = Stop.BAD
        return ScanResult(np.array(found, dtype=ROW), stop, at, size)


def find_record(
    buffer: Bytes, start: int, end: int, base_offset: int, *, check_crc: bool = True
) -> int:
    """Return the first position >= start of a record that names its own place, or -1.

    Such a record passes `scan` with `check_offset` and (if asked) `check_crc`.
    """
    view = buffer.data
    start, end = max(start, 0), min(end, len(view))
    options = ScanOptions(check_crc=check_crc, check_offset=True)
    for match in _MAGIC_PATTERN.finditer(view, start + 4, max(end, 0)):
        at = match.start() - 4
        stop, size = _look_at(view, at, end)
        if stop is None and read_row(view, at, size, base_offset, options) is not None:
            return at
    return -1


def skip_records(buffer: Bytes, start: int, end: int, base_offset: int) -> tuple[int, int]:
    """Skip whole records that lie one behind the other from `start` on, up to `end`.

    Each has a known magic, a size that can be, and its own offset; `base_offset` is the offset of buffer[0].
    Return where something else begins (a cut record, a blank, no record at all), and where the last one
    begins that was skipped; -1: none was.
    """
    view = buffer.data
    at, end, last = max(start, 0), min(end, len(view)), -1
    while end - at >= OVERHEAD_BYTES:
        size, magic = BLANK.unpack_from(view, at)
        if magic not in (MAGIC_V1, MAGIC_V2) or not OVERHEAD_BYTES <= size <= end - at:
            break
        if _INT64.unpack_from(view, at + LOG_OFFSET_AT)[0] != base_offset + at:
            break
        last, at = at, at + size
    return at, last


def _look_at(view: memoryview, at: int, end: int) -> tuple[Stop | None, int]:
    """Return None and the record's size, or why no record can be read here and the size field."""
    left = end - at
    if left < BLANK_BYTES:
        return Stop.END, _INT32.unpack_from(view, at)[0] if left >= 4 else 0
    size, magic = BLANK.unpack_from(view, at)
    if magic == BLANK_MAGIC:
        return Stop.BLANK, size
    if magic not in (MAGIC_V1, MAGIC_V2) or size < OVERHEAD_BYTES:
        return Stop.BAD, size
    if size > left:
        return Stop.CUT if _is_plausible(view, at, end, size) else Stop.BAD, size
    return None, size


def _is_plausible(view: memoryview, at: int, end: int, size: int) -> bool:
    """Return whether what can be seen of a record that is cut off agrees with its size."""
    if end - at < SYS_FLAG_AT + 4:
        return True
    body_at = at + _fixed(view, at).size
    room = size - (body_at - at) - LENGTHS_BYTES_MIN
    if body_at > end or room < 0:
        return room >= 0
    (body_length,) = _INT32.unpack_from(view, body_at - 4)
    fits: bool = 0 <= body_length <= room
    return fits


def _fixed(view: memoryview, at: int) -> struct.Struct:
    """Return the layout of the fields before the body, which depends on the hosts."""
    (sys_flag,) = _INT32.unpack_from(view, at + SYS_FLAG_AT)
    return FIXED_BY_HOSTS[sys_flag >> 4 & 3]


def read_row(
    view: memoryview, at: int, size: int, base_offset: int, options: ScanOptions
) -> Row | None:
    """Return the row of the record of `size` bytes at `at`, or None if it fails a check."""
    fixed = _fixed(view, at)
    if fixed.size + LENGTHS_BYTES_MIN > size:
        return None
    fields = fixed.unpack_from(view, at)
    magic, body_crc, queue_id, _, queue_offset, stored_offset, sys_flag = fields[1:8]
    store_ms, body_length = fields[10], fields[14]
    layout = _read_layout(view, at + fixed.size, body_length, magic, at + size)
    if layout is None:
        return None
    log_offset = int64(base_offset + at)
    if options.check_offset and stored_offset != log_offset:
        return None
    if not _crc_matches(view, at, size, body_crc, layout, options):
        return None
    properties = read_properties(view, layout)
    topic = bytes(view[layout.topic_at : layout.topic_at + layout.topic_length])
    try:
        tag_hash = _tag_hash(topic, store_ms, properties, options.delay_ms)
        queue_offset, batch_count = _inner_batch(properties, queue_offset)
    except _NotANumberError:
        return None
    return (
        log_offset,
        store_ms,
        queue_offset,
        tag_hash,
        size,
        queue_id,
        sys_flag,
        batch_count,
        layout.topic_at,
        layout.topic_length,
        layout.body_at,
        layout.body_length,
        layout.properties_at,
        layout.properties_length,
        _key_count(sys_flag, properties),
        _marks(sys_flag, stored_offset == log_offset, properties, options),
    )


def _read_layout(
    view: memoryview, body_at: int, body_length: int, magic: int, end: int
) -> Layout | None:
    """Return where the parts lie, or None if they do not fill the record exactly."""
    length_bytes = 2 if magic == MAGIC_V2 else 1
    if not 0 <= body_length <= end - body_at - length_bytes - 2:
        return None
    topic_at = body_at + body_length + length_bytes
    topic_length = int.from_bytes(view[topic_at - length_bytes : topic_at], "big", signed=True)
    if not 0 <= topic_length <= end - topic_at - 2:
        return None
    properties_at = topic_at + topic_length + 2
    (properties_length,) = _INT16.unpack_from(view, properties_at - 2)
    if properties_length != end - properties_at:
        return None
    return Layout(body_at, body_length, topic_at, topic_length, properties_at, properties_length)


def _crc_matches(
    view: memoryview, at: int, size: int, body_crc: int, layout: Layout, options: ScanOptions
) -> bool:
    if options.check_property_crc:
        # The CRC over the whole record is checked instead of the body's, as RocketMQ does.
        has_tail = layout.properties_length >= CRC_TAIL_BYTES
        return has_tail and property_crc_matches(view[at : at + size])
    if not options.check_crc or layout.body_length == 0:
        return True
    return masked_crc32(view[layout.body_at : layout.body_at + layout.body_length]) == body_crc


def read_properties(view: memoryview, layout: Layout) -> dict[bytes, bytes]:
    """Return the raw values of the properties that the store itself reads."""
    raw = bytes(view[layout.properties_at : layout.properties_at + layout.properties_length])
    found: dict[bytes, bytes] = {}
    for piece in raw.split(b"\x02"):
        name, _, value = piece.partition(b"\x01")
        if value and name in _WANTED:
            found[name] = value
    return found


def _tag_hash(
    topic: bytes, store_ms: int, properties: dict[bytes, bytes], delay_ms: tuple[int, ...]
) -> int:
    if topic == _SCHEDULE_TOPIC and _DELAY in properties:
        level = min(_number(properties[_DELAY], 32), len(delay_ms) - 1)
        if level > 0:
            delay = delay_ms[level] if delay_ms[level] >= 0 else UNKNOWN_DELAY_MS
            return int64(store_ms + delay)
    return java_hash(properties[_TAGS].decode("utf-8", "replace")) if _TAGS in properties else 0


def _inner_batch(properties: dict[bytes, bytes], queue_offset: int) -> tuple[int, int]:
    """Return the first queue offset and the number of messages of this record."""
    if _INNER_NUM not in properties or _INNER_BASE not in properties:
        return queue_offset, 1
    return _number(properties[_INNER_BASE], 64), _number(properties[_INNER_NUM], 16)


def _number(text: bytes, bits: int) -> int:
    """Return what Java's parse of a number of this width returns; ASCII digits only."""
    digits = text.lstrip(b"+-").lstrip(b"0")
    if _NUMBER.fullmatch(text) and len(digits) < 20:  # int() itself refuses very long ones
        value = int(digits or b"0") * (-1 if text.startswith(b"-") else 1)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    raise _NotANumberError


def split_keys(properties: dict[bytes, bytes]) -> list[bytes]:
    """Return what is indexed of a record, in the order of insertion."""
    keys = [part for part in properties.get(_KEYS, b"").split(b" ") if part]
    return [properties[_UNIQ_KEY], *keys] if _UNIQ_KEY in properties else keys


def _key_count(sys_flag: int, properties: dict[bytes, bytes]) -> int:
    if sys_flag & SysFlag.TRANSACTION == SysFlag.ROLLBACK:
        return 0
    return len(split_keys(properties))


def _marks(
    sys_flag: int, offset_right: bool, properties: dict[bytes, bytes], options: ScanOptions
) -> int:
    marks = 0 if offset_right else Mark.OFFSET_WRONG
    if options.check_crc or options.check_property_crc:
        marks |= Mark.CRC_CHECKED
    if _MULTI_DISPATCH in properties:
        marks |= Mark.MULTI_DISPATCH
    if _FILLER in properties:
        marks |= Mark.FILLER
    if sys_flag & SysFlag.PREPARED:  # the bit is set in both prepared and rollback
        marks |= Mark.NO_UNIT
    return marks


def int64(value: int) -> int:
    """Return the value as a 64-bit number that wraps round, as Java and the compiled twin have it."""
    return (value + 2**63) % 2**64 - 2**63
