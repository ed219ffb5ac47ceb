"""Tokens: how a primary knows whose connection comes to its HA port.

Nothing at that port says who somebody is. A replica of ours asks at the port of requests first, and gets a
number that it says at the HA port before anything else: so both ports are of one start of one primary, and
a member of failover is known by it. RocketMQ's replicas never ask, and say none.
"""

import secrets
from collections import OrderedDict
from typing import Final

from orbitmq.wire.bodies.failover import Member

TOKENS_MAX: Final = 1000


class Tokens:
    """Those that were given and not said yet. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._given: OrderedDict[int, Member] = OrderedDict()

    def give(self, member: Member) -> int:
        token = secrets.randbits(62) | 1
        self._given[token] = member
        if len(self._given) > TOKENS_MAX:
            self._given.popitem(last=False)
        return token

    def take(self, token: int) -> Member | None:
        """Return who was given this one; each is good once."""
        return self._given.pop(token, None)
