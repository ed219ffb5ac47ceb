"""The timer wheel: a file of slots, one for each moment, with the first and last unit that wait there.

Layout of SLOT, 32 bytes, big-endian:

at | size | type | field    | RocketMQ name | meaning
 0 |    8 | i64  | time     | timeMs        | the slot's time, in units of the precision (timerPrecisionMs)
 8 |    8 | i64  | first    | firstPos      | timer log offset of its first unit
16 |    8 | i64  | last     | lastPos       | timer log offset of its last unit, which leads to the others
24 |    4 | i32  | count    | num           | units that wait, less those that cancel one
28 |    4 | i32  | reserved | magic         | 0

The file has 1 209 600 slots, 14 days of seconds: a time's slot is number time mod 1 209 600. Slots are not
cleared; one belongs to a time only if it says so.
"""

import struct
from typing import Final

import numpy as np

SLOT: Final = struct.Struct(">qqqii")
SLOT_BYTES: Final = 32
assert SLOT.size == SLOT_BYTES
WINDOW_SLOTS: Final = 7 * 24 * 3600
"""How far ahead a message may wait in one go, in slots."""
WHEEL_SLOTS: Final = 2 * WINDOW_SLOTS
WHEEL_BYTES: Final = WHEEL_SLOTS * SLOT_BYTES

SLOT_DTYPE: Final = np.dtype(
    [("time", ">i8"), ("first", ">i8"), ("last", ">i8"), ("count", ">i4"), ("reserved", ">i4")]
)
