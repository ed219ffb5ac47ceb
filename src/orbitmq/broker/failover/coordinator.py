"""Coordinator: what is asked of an existing service that many brokers agree with.

A lease that ends when it is not kept, and one state of a broker name that is replaced only if it is as it
was read. Whoever has something like that can stand in for etcd.
"""

from typing import NamedTuple, Protocol

from orbitmq.wire.bodies.failover import FailoverState, Seen


class Grant(NamedTuple):
    """A lease, and for how long it lasts if it is not kept."""

    id: int
    ms: int


class Coordinator(Protocol):
    """The state of one broker name. All raise WireError: whether something was done is not known then."""

    async def look(self) -> Seen:
        """Return what holds now; nothing that was answered to anybody before is missing in it."""

    async def grant(self, ms: int) -> Grant:
        """Make a lease of at least so long."""

    async def keep(self, lease: int) -> int:
        """Let a lease begin again; return its milliseconds, counted from then; 0: it has ended."""

    async def revoke(self, lease: int) -> None:
        """End a lease now."""

    async def take(self, before: Seen, state: FailoverState, member: str, lease: int) -> int:
        """Become the holder with this state, if all is as it was seen; return the revision, 0: it is not."""

    async def change(self, before: Seen, state: FailoverState) -> int:
        """Replace the state, if it is as it was seen; return the revision, 0: it is not."""

    async def wait_change(self, seen: Seen) -> None:
        """Return when something is different from what was seen, perhaps some time later."""

    def close(self) -> None:
        """Close all connections."""
