"""The page config/timercheck: how far timer messages are, big-endian, 4096 bytes.

Layout of FIELDS, 56 bytes:

at | size | type | field               | RocketMQ name            | meaning
 0 |    8 | i64  | read_ms             | lastReadTimeMs           | slots before this time are delivered
 8 |    8 | i64  | timer_log_end       | lastTimerLogFlushPos     | the timer log is on disk up to here
16 |    8 | i64  | queue_offset        | lastTimerQueueOffset     | next message to put into the wheel
24 |    8 | i64  | master_queue_offset | masterTimerQueueOffset   | the same of the primary
32 |    8 | i64  | state_version       | dataVersion.stateVersion |
40 |    8 | i64  | version_ms          | dataVersion.timestamp    |
48 |    8 | i64  | version_counter     | dataVersion.counter      |

The answer to GET_TIMER_CHECK_POINT (60) is FIELDS.
"""

import struct
from typing import Any, Final, NamedTuple

from orbitmq.errors import FormatError

FIELDS: Final = struct.Struct(">qqqqqqq")
assert FIELDS.size == 56
PAGE_BYTES: Final = 4096


class TimerCheckpoint(NamedTuple):
    """The values of the page."""

    read_ms: int = 0
    timer_log_end: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    version_ms: int = 0
    version_counter: int = 0

    def encode(self) -> bytes:
        """Return FIELDS."""
        return FIELDS.pack(*self)


def decode(page: Any) -> TimerCheckpoint:
    """Return the values of a page. FormatError: it is too short, or holds what no broker writes."""
    if len(page) < FIELDS.size:
        raise FormatError(f"a timer checkpoint has {FIELDS.size} bytes, not {len(page)}", len(page))
    value = TimerCheckpoint(*FIELDS.unpack_from(page))
    if min(value[:4]) < 0:
        raise FormatError("a timer checkpoint has a negative time or offset")
    return value
