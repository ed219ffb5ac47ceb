"""Consume queue unit: one fixed 20-byte entry per message, big-endian.

Layout of UNIT, 20 bytes:

at | size | type | field      | RocketMQ name             | meaning
 0 |    8 | i64  | log_offset | CommitLog Physical Offset | where the record starts
 8 |    4 | i32  | size       | Body Size (sic)           | bytes of the whole record
12 |    8 | i64  | tag_hash   | Tag HashCode              | 0: no tag; delayed: due time, ms; see below

Unit n of a queue lies at byte 20n of the queue's files. With ext files (`cq_ext_unit`) the third
field holds an ext address, which is below any 32-bit hash. A queue whose first message does not have
queue offset 0 starts with padding units: log offset 0, size 0x7FFFFFFF, tag hash 0.
"""

import struct
from typing import Any, Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.java_hash import java_hash

UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = 20
assert UNIT.size == UNIT_BYTES  # RocketMQ's CQ_STORE_UNIT_SIZE: files would not line up otherwise

UNIT_DTYPE: Final = np.dtype([("log_offset", ">i8"), ("size", ">i4"), ("tag_hash", ">i8")])
assert UNIT_DTYPE.itemsize == UNIT_BYTES

PADDING_SIZE: Final = 0x7FFFFFFF
PADDING: Final = UNIT.pack(0, PADDING_SIZE, 0)


class CqUnit(NamedTuple):
    """One unit; fields in disk order."""

    log_offset: int
    size: int
    tag_hash: int

    def encode(self) -> bytes:
        try:
            return UNIT.pack(*self)
        except struct.error as exc:
            raise FormatError(f"unit {tuple(self)} does not fit: {exc}") from exc

    @property
    def is_padding(self) -> bool:
        return self.log_offset == 0 and self.size == PADDING_SIZE

    @property
    def is_valid(self) -> bool:
        """Whether recovery counts it as written: padding counts, zeros do not."""
        return self.log_offset >= 0 and self.size > 0


def decode_unit(buffer: Any, position: int = 0) -> CqUnit:
    """Return the unit at this position."""
    if not 0 <= position <= len(buffer) - UNIT_BYTES:
        raise FormatError(f"no room for a queue unit in {len(buffer)} bytes", position)
    return CqUnit._make(UNIT.unpack_from(buffer, position))


def decode_units(buffer: Any) -> list[CqUnit]:
    """Return all units of a buffer that holds nothing else."""
    if len(buffer) % UNIT_BYTES:
        raise FormatError(f"{len(buffer)} bytes are not a whole number of queue units")
    return [CqUnit._make(fields) for fields in UNIT.iter_unpack(buffer)]


def tag_hash(tags: str | None) -> int:
    """Return what a unit holds for this TAGS value; 0 without one."""
    return java_hash(tags) if tags else 0


def rounded_file_bytes(wanted: int) -> int:
    """Return the length of queue files for a configured size: RocketMQ rounds up to whole units."""
    return -(-wanted // UNIT_BYTES) * UNIT_BYTES
