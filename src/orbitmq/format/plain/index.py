"""Keys of records, and the chains of an index file: the reference for `compiled.index`."""

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import ITEM, Bytes, Ints, Rows
from orbitmq.format.index_file import (
    ENTRY,
    ENTRY_BYTES,
    FIRST_ITEM,
    HEADER,
    SLOT,
    entry_position,
    entry_seconds,
    key_hash,
    slot_position,
)
from orbitmq.format.plain.scan import Layout, int64, read_properties, split_keys


def index_items(buffer: Bytes, rows: Rows) -> npt.NDArray[np.void]:
    """Return ITEM rows of all keys: per record UNIQ_KEY first, then the parts of KEYS."""
    view = buffer.data
    items: list[tuple[int, int, int]] = []
    for row in rows[rows["key_count"] != 0]:
        layout = Layout(0, 0, *(int(row[name]) for name in Layout._fields[2:]))
        if not _lies_inside(layout, len(view)):
            raise FormatError("a row lies outside the buffer", layout.topic_at)
        keys = split_keys(read_properties(view, layout))
        if len(keys) != row["key_count"]:
            raise FormatError("a row counts other keys than its record has", layout.properties_at)
        topic = _text(view, layout.topic_at, layout.topic_length)
        for key in keys:
            hashed = key_hash(topic, key.decode("utf-8", "replace"))
            items.append((int(row["log_offset"]), int(row["store_ms"]), hashed))
    return np.array(items, dtype=ITEM)


def _lies_inside(layout: Layout, length: int) -> bool:
    parts = (
        (layout.topic_at, layout.topic_length),
        (layout.properties_at, layout.properties_length),
    )
    return all(0 <= at <= at + size <= length for at, size in parts)


def _text(view: memoryview, at: int, length: int) -> str:
    return bytes(view[at : at + length]).decode("utf-8", "replace")


def index_insert(
    items: npt.NDArray[np.void],
    first: int,
    slots: npt.NDArray[np.int32],
    entries: Bytes,
    entries_first: int,
    state: Ints,
    items_max: int,
) -> int:
    """Insert items[first:] into an index file; return how many went in.

    `slots` is the file's slot table in native byte order, `entries` the packed 20-byte entries from
    entry number `entries_first` on, `state` the header as six numbers (`IndexHeader`), updated in
    place. Ends early when the file is full (next_item >= items_max) or `entries` has no room.
    """
    require_insert_arguments(items, first, slots, entries_first, state)
    begin_ms, end_ms, begin_offset, end_offset, slot_count, next_item = (int(n) for n in state)
    next_item = max(next_item, FIRST_ITEM)
    view = entries.data
    inserted = 0
    for item in items[first:]:
        place = (next_item - entries_first) * ENTRY_BYTES
        if next_item >= items_max or place + ENTRY_BYTES > len(view):
            break
        log_offset, store_ms, hashed = item.item()
        slot = hashed % len(slots)
        previous = int(slots[slot])
        if previous <= 0 or previous > next_item:
            previous = 0
            slot_count += 1
        seconds = entry_seconds(store_ms, begin_ms)
        ENTRY.pack_into(view, place, hashed, log_offset, seconds, previous)
        slots[slot] = next_item
        if next_item <= FIRST_ITEM:
            begin_offset, begin_ms = log_offset, store_ms
        next_item += 1
        end_offset, end_ms = log_offset, store_ms
        inserted += 1
    if inserted:
        state[:] = begin_ms, end_ms, begin_offset, end_offset, slot_count, next_item
    return inserted


def require_insert_arguments(
    items: npt.NDArray[np.void],
    first: int,
    slots: npt.NDArray[np.int32],
    entries_first: int,
    state: Ints,
) -> None:
    """Raise FormatError unless the arguments of `index_insert` fit together."""
    if len(slots) == 0:
        raise FormatError("an index file without slots holds no key")
    if not 0 <= first <= len(items):
        raise FormatError(f"there is no item {first} of {len(items)}")
    if len(state) != 6:
        raise FormatError(f"the state of an index file has 6 numbers, not {len(state)}")
    if not 0 <= entries_first <= max(state[5], 1):
        raise FormatError(f"entries start at {entries_first}, behind the next one ({state[5]})")


def index_chain(
    file: Bytes, slot_count: int, key_hash: int, begin_ms: int, end_ms: int, count_max: int
) -> list[int]:
    """Follow a key's chain in the bytes of an index file; newest first, no exact match."""
    view = file.data
    if slot_count <= 0 or entry_position(0, slot_count) > len(view):
        return []
    file_begin_ms, _, _, _, _, next_item = HEADER.unpack_from(view)
    if next_item <= FIRST_ITEM:
        return []
    (entry,) = SLOT.unpack_from(view, slot_position(key_hash, slot_count))
    found: list[int] = []
    # A sound chain only goes back; a damaged one may go in a circle, so that it is followed for no
    # more steps than the file has entries.
    for _ in range(min(next_item, (len(view) - entry_position(0, slot_count)) // ENTRY_BYTES)):
        place = entry_position(entry, slot_count)
        if not 0 < entry <= next_item or place + ENTRY_BYTES > len(view):
            break
        if len(found) >= count_max:
            break
        entry_hash, log_offset, seconds, previous = ENTRY.unpack_from(view, place)
        if seconds < 0:
            break
        time_ms = int64(file_begin_ms + seconds * 1000)
        if entry_hash == key_hash and begin_ms <= time_ms <= end_ms:
            found.append(log_offset)
        if previous == entry or time_ms < begin_ms:
            break
        entry = previous
    return found
