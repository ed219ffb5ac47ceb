"""Keys of records, and the chains of an index file, compiled. `plain.index` says what each step means."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import ITEM, ROW, Bytes, Ints, Rows
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import load_i32, load_i64, prefetch, store_i32, store_i64
from orbitmq.format.compiled.text import as_int32, find_byte, hash_text, read_properties
from orbitmq.format.index_file import (
    ENTRY_BYTES,
    FIRST_ITEM,
    HEADER_BYTES,
    KEY_SEPARATOR,
    SECONDS_MAX,
    SLOT_BYTES,
)
from orbitmq.format.java_hash import INT_MIN
from orbitmq.format.plain.index import require_insert_arguments

_SEPARATOR: Final = ord(KEY_SEPARATOR)
_NEXT_ITEM_AT: Final = 36
_INT64_MIN: Final = -(2**63)
_INT64_MAX: Final = 2**63 - 1
_AHEAD: Final = 4  # rows; their keys lie far apart, so that memory must be asked for early
_OUTSIDE: Final = 1
_OTHER_KEYS: Final = 2


def index_items(buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
    wanted = frozen_rows(rows, ROW)
    counts = rows["key_count"]
    total = int(counts.sum(dtype=np.int64))
    if total < 0 or total > len(buffer):  # a key takes a byte at least
        raise FormatError("rows count more keys than the buffer can hold")
    items: npt.NDArray[Any] = np.empty(total, dtype=ITEM)
    problem, bad = _index_items(frozen(buffer), wanted, items)
    if problem == _OUTSIDE:
        raise FormatError("a row lies outside the buffer", int(rows[bad]["topic_at"]))
    if problem == _OTHER_KEYS:
        place = int(rows[bad]["properties_at"])
        raise FormatError("a row counts other keys than its record has", place)
    return items


@kernel
def _index_items(buffer, rows, items):
    """Fill `items`; return (0, -1), or what is wrong and with which row."""
    filled = 0
    for index in range(len(rows)):
        ahead = rows[min(index + _AHEAD, len(rows) - 1)]
        for line in range(3):
            prefetch(buffer, np.int64(ahead.topic_at) + 64 * line)
        row = rows[index]
        if row.key_count == 0:
            continue
        topic_at, topic_end = np.int64(row.topic_at), np.int64(row.topic_at) + row.topic_length
        at, end = np.int64(row.properties_at), np.int64(row.properties_at) + row.properties_length
        if topic_at < 0 or topic_end < topic_at or topic_end > len(buffer):
            return _OUTSIDE, index
        if at < 0 or end < at or end > len(buffer):
            return _OUTSIDE, index
        stop = filled + row.key_count
        if row.key_count < 0 or stop > len(items):
            return _OTHER_KEYS, index
        prefix = hash_text(buffer, topic_at, topic_end, np.int64(0)) * 31 + _SEPARATOR
        _, keys, unique, _, _, _, _, _ = read_properties(buffer, at, end)
        if unique[1] > 0:
            hashed = hash_text(buffer, unique[0], unique[1], prefix)
            _fill_item(items, filled, row.log_offset, row.store_ms, hashed)
            filled += 1
        key_at = keys[0]
        while key_at < keys[1]:
            key_end = find_byte(buffer, key_at, keys[1], 0x20)
            if key_end > key_at:
                if filled == stop:
                    return _OTHER_KEYS, index
                hashed = hash_text(buffer, key_at, key_end, prefix)
                _fill_item(items, filled, row.log_offset, row.store_ms, hashed)
                filled += 1
            key_at = key_end + 1
        if filled != stop:
            return _OTHER_KEYS, index
    return 0, -1


@helper
def _fill_item(items, place, log_offset, store_ms, hashed):
    value = as_int32(hashed)
    item = items[place]
    item.log_offset = log_offset
    item.store_ms = store_ms
    item.key_hash = 0 if value == INT_MIN else abs(value)


def index_insert(
    items: npt.NDArray[np.void],
    first: int,
    slots: npt.NDArray[np.int32],
    entries: Bytes,
    entries_first: int,
    state: Ints,
    items_max: int,
) -> int:
    require_insert_arguments(items, first, slots, entries_first, state)
    wanted = frozen_rows(items, ITEM)
    inserted: int = _index_insert(
        wanted, int(first), slots, entries, int(entries_first), state, int(items_max)
    )
    return inserted


@kernel
def _index_insert(items, first, slots, entries, entries_first, state, items_max):
    begin_ms = state[0]
    slot_count = state[4]
    next_item = max(state[5], FIRST_ITEM)
    index = first
    while index < len(items):
        place = (next_item - entries_first) * ENTRY_BYTES
        if next_item >= items_max or place + ENTRY_BYTES > len(entries):
            break
        item = items[index]
        slot = np.int64(item.key_hash) % len(slots)
        previous = np.int64(slots[slot])
        if previous <= 0 or previous > next_item:
            previous = np.int64(0)
            slot_count += 1
        seconds = np.int64(0)
        if 0 < begin_ms < item.store_ms:
            seconds = min((item.store_ms - begin_ms) // 1000, SECONDS_MAX)
        store_i32(entries, place, np.int64(item.key_hash))
        store_i64(entries, place + 4, item.log_offset)
        store_i32(entries, place + 12, seconds)
        store_i32(entries, place + 16, previous)
        slots[slot] = next_item
        if next_item <= FIRST_ITEM:
            begin_ms = item.store_ms
            state[2] = item.log_offset
        next_item += 1
        index += 1
    if index > first:
        state[0] = begin_ms
        state[1] = items[index - 1].store_ms
        state[3] = items[index - 1].log_offset
        state[4] = slot_count
        state[5] = next_item
    return index - first


def index_chain(
    file: Bytes, slot_count: int, key_hash: int, begin_ms: int, end_ms: int, count_max: int
) -> list[int]:
    entries_at = HEADER_BYTES + SLOT_BYTES * slot_count
    if slot_count <= 0 or entries_at > len(file):
        return []
    steps_max = (len(file) - entries_at) // ENTRY_BYTES
    found = np.empty(max(min(count_max, steps_max), 0), dtype=np.int64)
    begin, end = (min(max(int(limit), _INT64_MIN), _INT64_MAX) for limit in (begin_ms, end_ms))
    count = _index_chain(
        frozen(file), int(slot_count), int(key_hash), begin, end, int(steps_max), found
    )
    offsets: list[int] = found[:count].tolist()
    return offsets


@kernel
def _index_chain(file, slot_count, key_hash, begin_ms, end_ms, steps_max, found):
    file_begin_ms = load_i64(file, 0)
    next_item = load_i32(file, _NEXT_ITEM_AT)
    if next_item <= FIRST_ITEM:
        return 0
    entries_at = HEADER_BYTES + SLOT_BYTES * slot_count
    entry = load_i32(file, HEADER_BYTES + SLOT_BYTES * (key_hash % slot_count))
    count = 0
    for _ in range(min(next_item, steps_max)):
        place = entries_at + entry * ENTRY_BYTES
        if entry <= 0 or entry > next_item or place + ENTRY_BYTES > len(file):
            break
        seconds = load_i32(file, place + 12)
        if count >= len(found) or seconds < 0:
            break
        time_ms = file_begin_ms + seconds * 1000
        if load_i32(file, place) == key_hash and begin_ms <= time_ms <= end_ms:
            found[count] = load_i64(file, place + 4)
            count += 1
        previous = load_i32(file, place + 16)
        if previous == entry or time_ms < begin_ms:
            break
        entry = previous
    return count
