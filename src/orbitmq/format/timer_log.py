"""Timer log unit: one waiting message, linked to the one before it in its slot, big-endian.

Layout of UNIT, 52 bytes:

at | size | type | field      | RocketMQ name | meaning
 0 |    4 | i32  | size       | size          | 52
 4 |    8 | i64  | previous   | prev pos      | timer log offset of the slot's unit before this one, -1: none
12 |    4 | i32  | magic      | magic value   | bits: 1 always, 2 rolled, 4 cancels another message
16 |    8 | i64  | write_ms   | currWriteTime | when it was put into the wheel, a multiple of the precision
24 |    4 | i32  | delay_ms   | delayed time  | from write_ms to the time of its slot
28 |    8 | i64  | log_offset | offsetPy      | its record in the commit log, of topic rmq_sys_wheel_timer
36 |    4 | i32  | log_size   | sizePy        | size of that record
40 |    4 | i32  | topic_hash | hash code of real topic | Java's hash of the topic that it waits for
44 |    8 | i64  | reserved   | reserved value | 0

A unit leaves room for a blank in its file. The rest of a full file is one blank:

Layout of BLANK, 16 bytes:

at | size | type | field    | RocketMQ name | meaning
 0 |    4 | i32  | size     | size          | bytes to the end of the file
 4 |    8 | i64  | reserved | prev pos      | 0
12 |    4 | i32  | magic    | magic value   | CBD43194
"""

import struct
from typing import Final, NamedTuple

import numpy as np

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_BYTES: Final = 52
assert UNIT.size == UNIT_BYTES
BLANK: Final = struct.Struct(">iqi")
BLANK_BYTES: Final = 16
assert BLANK.size == BLANK_BYTES
BLANK_MAGIC: Final = -875286124  # 0xCBD43194

MAGIC_WAITS: Final = 1
MAGIC_ROLLED: Final = 2
MAGIC_CANCELS: Final = 4
MAGIC_BITS: Final = 0xF  # a unit has no other bit

NO_POSITION: Final = -1

UNIT_DTYPE: Final = np.dtype(
    [
        ("size", ">i4"),
        ("previous", ">i8"),
        ("magic", ">i4"),
        ("write_ms", ">i8"),
        ("delay_ms", ">i4"),
        ("log_offset", ">i8"),
        ("log_size", ">i4"),
        ("topic_hash", ">i4"),
        ("reserved", ">i8"),
    ]
)


class TimerUnit(NamedTuple):
    """One unit, decoded."""

    size: int
    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    log_offset: int
    log_size: int
    topic_hash: int
    reserved: int = 0

    @property
    def slot_ms(self) -> int:
        """The time of the slot in which it waits."""
        return self.write_ms + self.delay_ms

    @property
    def is_rolled(self) -> bool:
        """It waits for longer than the wheel reaches: when its slot is due it is put in again."""
        return bool(self.magic & MAGIC_ROLLED)

    @property
    def cancels(self) -> bool:
        return bool(self.magic & MAGIC_CANCELS)

    @property
    def is_sound(self) -> bool:
        """Tell whether bytes that were decoded as a unit are one."""
        return self.size == UNIT_BYTES and 0 <= self.magic <= MAGIC_BITS


def last_unit_at(file_bytes: int) -> int:
    """Return the position of the last unit of a full file of this size."""
    return (file_bytes - BLANK_BYTES) // UNIT_BYTES * UNIT_BYTES - UNIT_BYTES
