"""Unique ids for messages (UNIQ_KEY), made before a message leaves: a repeated send keeps its id."""

import ipaddress
import itertools
import os
import secrets
from functools import cache

from orbitmq.clock import Clock, SystemClock
from orbitmq.format.message_id import UniqueId, month_range

_UINT32 = 0xFFFFFFFF


class UniqueIdMaker:
    """Ids that no other process and no earlier call has made. Any thread may call `next_id`.

    The same ids as `format.message_id.UniqueIds` makes, with all that stays the same prepared.
    """

    def __init__(self, address: bytes, pid: int, process_tag: int, clock: Clock) -> None:
        self._clock = clock
        self._counter = itertools.count()  # next() on it is one step for the interpreter
        self._month = month_range(clock.now_ms())
        sample = UniqueId(address, pid & 0xFFFF, process_tag & _UINT32, 0, 0).encode()
        self._prefix = sample[:-12]

    def next_id(self) -> str:
        now = self._clock.now_ms()
        start, end = self._month
        if now >= end:
            start, end = self._month = month_range(now)
        # A clock that was set back counts as the start of the month; the counter keeps ids apart.
        since = max(now - start, 0) & _UINT32
        return f"{self._prefix}{since:08X}{next(self._counter) & 0xFFFF:04X}"


@cache
def unique_ids(client_ip: str) -> UniqueIdMaker:
    """Return the maker of this process: two of them would count from the same number."""
    try:
        address = ipaddress.ip_address(client_ip).packed
    except ValueError:
        address = b"\x7f\x00\x00\x01"  # a configured host name: the other parts make ids differ
    return UniqueIdMaker(address, os.getpid(), secrets.randbits(32), SystemClock())


# A child would go on with its parent's numbers.
os.register_at_fork(after_in_child=unique_ids.cache_clear)
