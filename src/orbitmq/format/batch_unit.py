"""Batch consume queue unit: one fixed 46-byte entry per record of a BatchCQ topic, big-endian.

Layout of UNIT, 46 bytes:

at | size | type | field            | RocketMQ name   | meaning
 0 |    8 | i64  | log_offset       | physicalOffset  | where the record starts
 8 |    4 | i32  | size             | size            | bytes of the whole record
12 |    8 | i64  | tag_hash         | tagsCode        | 0: no tag
20 |    8 | i64  | store_ms         | storeTimestamp  |
28 |    8 | i64  | base_offset      | msgBaseOffset   | queue offset of the first inner message
36 |    2 | i16  | message_count    | batchSize       | inner messages; 1 for a plain record
38 |    4 | i32  | compacted_offset | compactedOffset | -1: not compacted
42 |    4 | i32  | reserved         |                 | 0

Units stand in log order; the number of a unit is not a queue offset.
"""

import struct
from typing import Any, Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError

UNIT: Final = struct.Struct(">qiqqqhii")
UNIT_BYTES: Final = 46
assert UNIT.size == UNIT_BYTES  # RocketMQ's BatchConsumeQueue.CQ_STORE_UNIT_SIZE

UNIT_DTYPE: Final = np.dtype(
    [
        ("log_offset", ">i8"),
        ("size", ">i4"),
        ("tag_hash", ">i8"),
        ("store_ms", ">i8"),
        ("base_offset", ">i8"),
        ("message_count", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)
assert UNIT_DTYPE.itemsize == UNIT_BYTES

NOT_COMPACTED: Final = -1
MESSAGE_COUNT_MAX: Final = 32767


class BatchUnit(NamedTuple):
    """One unit; fields in disk order."""

    log_offset: int
    size: int
    tag_hash: int
    store_ms: int
    base_offset: int
    message_count: int
    compacted_offset: int = NOT_COMPACTED
    reserved: int = 0

    def encode(self) -> bytes:
        try:
            return UNIT.pack(*self)
        except struct.error as exc:
            raise FormatError(f"batch unit {tuple(self)} does not fit: {exc}") from exc

    @property
    def is_valid(self) -> bool:
        """Whether recovery counts it as written."""
        placed = self.log_offset >= 0 and self.size > 0
        return placed and self.base_offset >= 0 and self.message_count > 0

    @property
    def end_offset(self) -> int:
        """The queue offset behind the last inner message."""
        return self.base_offset + self.message_count


def decode_unit(buffer: Any, position: int = 0) -> BatchUnit:
    """Return the unit at this position."""
    if not 0 <= position <= len(buffer) - UNIT_BYTES:
        raise FormatError(f"no room for a batch unit in {len(buffer)} bytes", position)
    return BatchUnit._make(UNIT.unpack_from(buffer, position))


def decode_units(buffer: Any) -> list[BatchUnit]:
    """Return all units of a buffer that holds nothing else."""
    if len(buffer) % UNIT_BYTES:
        raise FormatError(f"{len(buffer)} bytes are not a whole number of batch units")
    return [BatchUnit._make(fields) for fields in UNIT.iter_unpack(buffer)]
