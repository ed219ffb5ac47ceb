"""The two ids of a message: where it lies (given by the broker), and who made it (given by the client).

Layout of OFFSET_ID_TAIL, 12 bytes, behind the 4 or 16 address bytes of the store host:

at | size | type | field      | RocketMQ name   | meaning
 0 |    4 | i32  | port       | port            | of the store host
 4 |    8 | i64  | log_offset | commitLogOffset | where the record starts

Layout of UNIQUE_ID_TAIL, 12 bytes, behind the 4 or 16 address bytes of the client:

at | size | type | field       | RocketMQ name         | meaning
 0 |    2 | u16  | pid         | pid                   | low 16 bits of the process id
 2 |    4 | u32  | process_tag | class loader hash     | any constant of the process
 6 |    4 | i32  | month_ms    | time since startTime  | ms since the month began, local time
10 |    2 | u16  | counter     | COUNTER               | low 16 bits of a counter from 0

Both are written as upper-case hex, 32 characters with an IPv4 address and 56 with IPv6. Nothing but
the context tells them apart.
"""

import itertools
import re
import struct
import time
from typing import Final, NamedTuple

from orbitmq.clock import Clock
from orbitmq.errors import FormatError
from orbitmq.message import Host

OFFSET_ID_TAIL: Final = struct.Struct(">iq")
UNIQUE_ID_TAIL: Final = struct.Struct(">HIiH")
assert OFFSET_ID_TAIL.size == UNIQUE_ID_TAIL.size == 12
MEMORY_LOG_OFFSET: Final = 1 << 62
"""Log offsets from here on are of topics in memory; no log on disk grows so long."""

_HEX_ID: Final = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})\Z")
_UINT32: Final = 0xFFFFFFFF


def encode_offset_id(host: Host, log_offset: int) -> str:
    """Return the id of the record at this log offset on this store host (RocketMQ: offsetMsgId)."""
    try:
        tail = OFFSET_ID_TAIL.pack(host.port, log_offset)
    except struct.error as exc:
        raise FormatError(f"port {host.port} or offset {log_offset} does not fit an id") from exc
    return (_checked_address(host.address) + tail).hex().upper()


def decode_offset_id(message_id: str) -> tuple[Host, int]:
    """Return store host and log offset of an offset id."""
    raw = _from_hex(message_id)
    port, log_offset = OFFSET_ID_TAIL.unpack_from(raw, len(raw) - OFFSET_ID_TAIL.size)
    if log_offset < 0:
        raise FormatError(f"id {message_id!r} holds the negative offset {log_offset}")
    return Host(raw[: -OFFSET_ID_TAIL.size], port), log_offset


class UniqueId(NamedTuple):
    """The parts of a client's id (RocketMQ: UNIQ_KEY)."""

    address: bytes
    pid: int
    process_tag: int
    month_ms: int
    counter: int

    def encode(self) -> str:
        try:
            tail = UNIQUE_ID_TAIL.pack(*self[1:])
        except struct.error as exc:
            raise FormatError(f"parts {self[1:]} do not fit an id: {exc}") from exc
        return (_checked_address(self.address) + tail).hex().upper()


def decode_unique_id(message_id: str) -> UniqueId:
    """Return the parts of a client's id."""
    raw = _from_hex(message_id)
    address = raw[: -UNIQUE_ID_TAIL.size]
    return UniqueId(address, *UNIQUE_ID_TAIL.unpack_from(raw, len(address)))


class UniqueIds:
    """Makes ids that no other process and no earlier call has made. Any thread may call `next_id`."""

    def __init__(self, address: bytes, pid: int, process_tag: int, clock: Clock) -> None:
        self._clock = clock
        self._counter = itertools.count()  # next() on it is one step for the interpreter
        self._month = month_range(clock.now_ms())
        sample = UniqueId(address, pid & 0xFFFF, process_tag & _UINT32, 0, 0).encode()
        self._prefix = sample[:-12]  # all that stays the same
        self._latest = (-1, "")  # a millisecond, and all of its ids but the counter

    def next_id(self) -> str:
        now, (at, front) = self._clock.now_ms(), self._latest
        if now != at:
            front = self._front(now)
            self._latest = (now, front)
        return f"{front}{next(self._counter) & 0xFFFF:04X}"

    def _front(self, now: int) -> str:
        start, end = self._month
        if now >= end:
            start, end = self._month = month_range(now)
        # 31 days are more than 2**31 ms: Java's int wraps to negative in the last week of a month. A clock
        # that was set back counts as the start of the month; the counter keeps ids apart.
        since = max(now - start, 0) & _UINT32
        return f"{self._prefix}{since:08X}"


def month_range(epoch_ms: int) -> tuple[int, int]:
    """Return when the month of this moment began and when the next one begins, in local time."""
    local = time.localtime(epoch_ms // 1000)
    return _month_start_ms(local.tm_year, local.tm_mon), _month_start_ms(
        local.tm_year, local.tm_mon + 1
    )


def _month_start_ms(year: int, month: int) -> int:
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000  # month 13 is next January


def _checked_address(address: bytes) -> bytes:
    if len(address) not in (4, 16):
        raise FormatError(f"an address has 4 or 16 bytes, not {len(address)}")
    return address


def _from_hex(message_id: str) -> bytes:
    if not _HEX_ID.match(message_id):
        raise FormatError(f"{message_id[:80]!r} is no message id: 32 or 56 hex digits expected")
    return bytes.fromhex(message_id)
