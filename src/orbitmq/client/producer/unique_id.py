"""Unique ids for messages (UNIQ_KEY), made before a message leaves: a repeated send keeps its id."""

import ipaddress
import os
import secrets
from functools import cache

from orbitmq.clock import SystemClock
from orbitmq.format.message_id import UniqueIds


@cache
def unique_ids(client_ip: str) -> UniqueIds:
    """Return the maker of this process: two of them would count from the same number."""
    try:
        address = ipaddress.ip_address(client_ip).packed
    except ValueError:
        address = b"\x7f\x00\x00\x01"  # a configured host name: the other parts make ids differ
    return UniqueIds(address, os.getpid(), secrets.randbits(32), SystemClock())


# A child would go on with its parent's numbers.
os.register_at_fork(after_in_child=unique_ids.cache_clear)
