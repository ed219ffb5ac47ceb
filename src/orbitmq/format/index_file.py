"""Index file: a hash table from a message's keys to its log offset, big-endian.

One file is the header, then the slots, then the entries; entry 0 is never used.

Layout of HEADER, 40 bytes:

at | size | type | field            | RocketMQ name  | meaning
 0 |    8 | i64  | begin_ms         | beginTimestamp | store time of the first entry
 8 |    8 | i64  | end_ms           | endTimestamp   | store time of the last entry
16 |    8 | i64  | begin_log_offset | beginPhyOffset | of the first entry's record
24 |    8 | i64  | end_log_offset   | endPhyOffset   | of the last entry's record
32 |    4 | i32  | slot_count       | hashSlotCount  | slots in use
36 |    4 | i32  | next_item        | indexCount     | number of the next entry; 1 in a new file

Layout of SLOT, 4 bytes:

at | size | type | field  | RocketMQ name | meaning
 0 |    4 | i32  | newest | slotValue     | number of the newest entry of the chain; 0: empty

Layout of ENTRY, 20 bytes:

at | size | type | field      | RocketMQ name        | meaning
 0 |    4 | i32  | key_hash   | keyHash              | never negative
 4 |    8 | i64  | log_offset | phyOffset            | where the record starts
12 |    4 | i32  | seconds    | timeDiff             | since begin_ms, cut to whole seconds
16 |    4 | i32  | previous   | prevIndexNo, slotValue | next older entry of the chain; 0: the last
"""

import struct
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.java_hash import INT_MIN, java_hash
from orbitmq.message import SysFlag

HEADER: Final = struct.Struct(">qqqqii")
HEADER_BYTES: Final = 40
assert HEADER.size == HEADER_BYTES
SLOT: Final = struct.Struct(">i")
SLOT_BYTES: Final = 4
assert SLOT.size == SLOT_BYTES
ENTRY: Final = struct.Struct(">iqii")
ENTRY_BYTES: Final = 20
assert ENTRY.size == ENTRY_BYTES

ENTRY_DTYPE: Final = np.dtype(
    [("key_hash", ">i4"), ("log_offset", ">i8"), ("seconds", ">i4"), ("previous", ">i4")]
)
assert ENTRY_DTYPE.itemsize == ENTRY_BYTES

FIRST_ITEM: Final = 1
SECONDS_MAX: Final = 2**31 - 1
KEY_SEPARATOR: Final = "#"


class IndexHeader(NamedTuple):
    """The header; fields in disk order, which kernels have as an int64 array."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_log_offset: int = 0
    end_log_offset: int = 0
    slot_count: int = 0
    next_item: int = FIRST_ITEM

    def encode(self) -> bytes:
        try:
            return HEADER.pack(*self)
        except struct.error as exc:
            raise FormatError(f"index header {tuple(self)} does not fit: {exc}") from exc

    def following(self) -> "IndexHeader":
        """Return the header that a file starts with when it follows a full one.

        RocketMQ presets times and offsets from the end of the file before, and counts the seconds of
        the first entry from there.
        """
        return IndexHeader(self.end_ms, self.end_ms, self.end_log_offset, self.end_log_offset)


class IndexEntry(NamedTuple):
    """One entry; fields in disk order."""

    key_hash: int
    log_offset: int
    seconds: int
    previous: int

    def encode(self) -> bytes:
        try:
            return ENTRY.pack(*self)
        except struct.error as exc:
            raise FormatError(f"index entry {tuple(self)} does not fit: {exc}") from exc


def decode_header(buffer: Any) -> IndexHeader:
    """Return the header of an index file; a next item of 0 (a file never used) reads as 1."""
    if len(buffer) < HEADER_BYTES:
        raise FormatError(f"{len(buffer)} bytes are no index file: the header has {HEADER_BYTES}")
    header = IndexHeader._make(HEADER.unpack_from(buffer))
    if header.next_item < 0 or header.slot_count < 0:
        raise FormatError(
            f"index header counts {header.slot_count} slots, {header.next_item} items", 32
        )
    return header._replace(next_item=max(header.next_item, FIRST_ITEM))


def decode_entry(buffer: Any, position: int = 0) -> IndexEntry:
    """Return the entry at this position."""
    if not 0 <= position <= len(buffer) - ENTRY_BYTES:
        raise FormatError(f"no room for an index entry in {len(buffer)} bytes", position)
    return IndexEntry._make(ENTRY.unpack_from(buffer, position))


def slot_position(key_hash: int, slots: int) -> int:
    """Return where in the file the slot of this hash lies."""
    return HEADER_BYTES + SLOT_BYTES * (key_hash % slots)


def entry_position(item: int, slots: int) -> int:
    """Return where in the file the entry of this number lies."""
    return HEADER_BYTES + SLOT_BYTES * slots + ENTRY_BYTES * item


def key_hash(topic: str, key: str) -> int:
    """Return the hash under which this key of this topic is entered: never negative."""
    value = java_hash(f"{topic}{KEY_SEPARATOR}{key}")
    # Java's Math.abs of the smallest int stays negative, and RocketMQ maps that hash to 0. Keep the
    # quirk: a key is found only if both sides choose the same slot.
    return 0 if value == INT_MIN else abs(value)


def entry_seconds(store_ms: int, begin_ms: int) -> int:
    """Return what an entry holds as its time: whole seconds since begin_ms, from 0 to 2**31 - 1."""
    if begin_ms <= 0:
        return 0
    return min(max(store_ms - begin_ms, 0) // 1000, SECONDS_MAX)


def index_keys(unique_key: str | None, keys: Iterable[str], sys_flag: int) -> list[str]:
    """Return the keys under which a message is entered, in order: its unique key, then KEYS.

    A rolled back transaction has none.
    """
    if sys_flag & SysFlag.TRANSACTION.value == SysFlag.ROLLBACK.value:
        return []
    return [unique_key, *keys] if unique_key else list(keys)
