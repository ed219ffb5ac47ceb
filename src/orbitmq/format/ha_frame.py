"""Replication frames: what a primary and a replica say to each other on the HA port, big-endian.

There is no greeting. The replica says how long its log is, and says it again whenever it has grown and
every few seconds (haSendHeartbeatInterval). Its first report asks for what follows there:

Layout of REPORT, 8 bytes:

at | size | type | field      | RocketMQ name  | meaning
 0 |    8 | i64  | log_offset | slaveMaxOffset | behind the last byte that the replica has; 0: it has none

The primary sends its log as it lies in its segments, blanks included. A frame lies within one segment and
may end anywhere, in the middle of a record too. Behind this header follow `size` bytes of the log; a frame
without any is a heartbeat:

Layout of HEADER, 12 bytes:

at | size | type | field      | RocketMQ name  | meaning
 0 |    8 | i64  | log_offset | physicalOffset | where the bytes belong; of a heartbeat: of the next ones
 8 |    4 | i32  | size       | bodySize       | how many bytes of the log follow
"""

import struct
from typing import Final

from orbitmq.units import MiB

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")
FRAME_BYTES_MAX: Final = 4 * MiB
"""A frame with its header: RocketMQ's replicas have no room for more."""
BATCH_BYTES_MAX: Final = FRAME_BYTES_MAX - HEADER.size
