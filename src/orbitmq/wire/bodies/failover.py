"""What a coordinator keeps of the brokers of one name, and what brokers say of it."""

from typing import NamedTuple

from orbitmq.wire.bodies.body import Body


class Member(Body):
    """A log, by the id that its store gave it, and the broker that has it."""

    id: str
    address: str = ""


class FailoverState(Body):
    """Who is the primary, since which epoch, and who has everything that was acknowledged."""

    epoch: int
    primary: Member
    in_sync: tuple[Member, ...] = ()

    def has(self, member: str) -> bool:
        """Tell whether a member has everything that was acknowledged."""
        return any(one.id == member for one in self.in_sync)


class Seen(NamedTuple):
    """What a coordinator holds of one broker name, all at one moment."""

    state: FailoverState | None = None
    revision: int = 0  # of the state; 0: there is none
    holder: str = ""  # the member whose lease lives; empty: nobody's does
    at: int = 0  # the coordinator's own count of changes then


class FailoverTold(Body):
    """What a broker tells of its failover (part of the answer of GET_EPOCHS)."""

    coordinator: str
    state: str  # in words
    lease_ms: int = 0  # how long its own lease lasts; 0: it has none
    has_primary: bool = False  # somebody's lease lives
    may: bool = False  # it may be the primary: it has everything that was acknowledged
    known: bool = False  # the coordinator has answered lately
    epoch: int = 0
    in_sync: list[str] = []  # addresses
