"""Consume queue ext unit: tag, store time and filter bitmap of one message, big-endian.

Layout of HEAD, 20 bytes, the bitmap follows:

at | size | type | field         | RocketMQ name  | meaning
 0 |    2 | i16  | size          | size           | bytes of the whole unit, bitmap included
 2 |    8 | i64  | tag_hash      | tagsCode       | as in a queue unit without ext files
10 |    8 | i64  | store_ms      | msgStoreTime   |
18 |    2 | i16  | bitmap_length | bitMapSize     | 0: no bitmap was computed

A unit never crosses the end of a file: where it would come closer than 4 bytes, the end mark
(0xFFFF) is written and the rest of the file is skipped. The queue unit then holds the address of the
ext unit: its byte offset over all ext files, minus `2**63`.
"""

import struct
from typing import Any, Final, NamedTuple

from orbitmq.errors import FormatError

HEAD: Final = struct.Struct(">hqqh")
HEAD_BYTES: Final = 20
assert HEAD.size == HEAD_BYTES  # RocketMQ's MIN_EXT_UNIT_SIZE

UNIT_BYTES_MAX: Final = 32767
BITMAP_BYTES_MAX: Final = UNIT_BYTES_MAX - HEAD_BYTES
END_MARK: Final = b"\xff\xff"
END_RESERVE_BYTES: Final = 4
"""Room that stays behind the last unit of a file, so that the end mark always fits."""

_ADDRESS_BASE: Final = -(2**63)
ADDRESS_MAX: Final = -(2**31) - 1
"""Greatest ext address; any tag hash is greater."""


class ExtUnit(NamedTuple):
    """One ext unit; an empty bitmap means that none was computed."""

    tag_hash: int
    store_ms: int
    bitmap: bytes = b""

    @property
    def size(self) -> int:
        return HEAD_BYTES + len(self.bitmap)

    def encode(self) -> bytes:
        try:
            head = HEAD.pack(self.size, self.tag_hash, self.store_ms, len(self.bitmap))
        except struct.error as exc:
            raise FormatError(f"ext unit of {self.size} bytes does not fit: {exc}") from exc
        return head + self.bitmap


def decode_ext_unit(buffer: Any, position: int = 0) -> ExtUnit:
    """Return the unit at this position; the end mark and zeros are FormatErrors."""
    room = len(buffer) - position
    if position < 0 or room < HEAD_BYTES:
        raise FormatError(f"no room for an ext unit in {len(buffer)} bytes", position)
    size, tag_hash, store_ms, bitmap_length = HEAD.unpack_from(buffer, position)
    if bitmap_length < 0 or size != HEAD_BYTES + bitmap_length or size > room:
        reason = f"ext unit of {size} bytes with a bitmap of {bitmap_length}, {room} bytes left"
        raise FormatError(reason, position)
    start = position + HEAD_BYTES
    return ExtUnit(tag_hash, store_ms, bytes(buffer[start : start + bitmap_length]))


def fits(position: int, size: int, file_bytes: int) -> bool:
    """Return whether a unit of this size may be written at this position of a file."""
    return size <= file_bytes - position - END_RESERVE_BYTES


def is_ext_address(value: int) -> bool:
    """Return whether the third field of a queue unit is an ext address, not a hash."""
    return value <= ADDRESS_MAX


def ext_address(offset: int) -> int:
    """Return the address for a byte offset over all ext files of a queue."""
    address = offset + _ADDRESS_BASE
    if offset < 0 or not is_ext_address(address):
        raise FormatError(f"offset {offset} has no ext address")
    return address


def ext_offset(address: int) -> int:
    """Return the byte offset that an ext address stands for."""
    if not is_ext_address(address) or address < _ADDRESS_BASE:
        raise FormatError(f"{address} is no ext address")
    return address - _ADDRESS_BASE
