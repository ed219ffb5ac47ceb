"""Who may be the primary: what a broker makes of what the coordinator holds. Nothing is done here."""

from enum import Enum, auto
from typing import NamedTuple

from orbitmq.wire.bodies.failover import FailoverState, Member, Seen


class Standing(NamedTuple):
    """What a broker knows of itself."""

    member: str
    number: int  # of its newest epoch
    is_replica: bool
    is_joined: bool  # a coordinator has named it before
    holds: bool  # it became the holder by the lease that it has now


class Act(Enum):
    """What a broker does now."""

    STAY = auto()  # nothing: `why` says what keeps it from being the primary
    SERVE = auto()  # it is the primary
    TAKE = auto()  # take the lease and go on as the primary that it is
    TAKE_OVER = auto()  # take the lease, begin the epoch, and become the primary
    FOLLOW = auto()  # somebody else is the primary


class Decision(NamedTuple):
    """An act, with the epoch of those that take the lease."""

    act: Act
    why: str = ""
    epoch: int = 0


def decide(own: Standing, seen: Seen) -> Decision:
    """Return what a broker does, by what the coordinator holds.

    It takes the lease when nobody has it and its log has everything that was acknowledged. The epoch
    rises when another one becomes the primary; one that was interrupted between lease and disk goes on.
    """
    state = seen.state
    if state is None:
        return _first(own)
    if state.epoch < own.number:
        what = f"the coordinator knows epoch {state.epoch}, and this log has {own.number}"
        return Decision(Act.STAY, f"{what}: it was set back")
    is_own = state.primary.id == own.member
    if not is_own and (state.epoch > own.number or own.is_replica) and seen.holder:
        return Decision(Act.FOLLOW, problem(own, state))
    if seen.holder not in ("", own.member):
        return Decision(Act.STAY, f"{_name(state, seen.holder)} has the lease")
    why = problem(own, state)
    if why:
        follows = own.is_replica or state.epoch > own.number
        return Decision(Act.FOLLOW if follows else Act.STAY, why)
    if is_own and state.epoch == own.number and not own.is_replica:
        serves = own.holds and seen.holder == own.member
        return Decision(Act.SERVE if serves else Act.TAKE, epoch=state.epoch)
    goes_on = is_own and state.epoch > own.number
    return Decision(Act.TAKE_OVER, epoch=state.epoch if goes_on else state.epoch + 1)


def _first(own: Standing) -> Decision:
    if own.is_joined:
        return Decision(Act.STAY, "the coordinator has forgotten who is in sync")
    if own.is_replica:
        return Decision(Act.STAY, "nobody has been the primary at the coordinator yet")
    return Decision(Act.TAKE, epoch=own.number)


def problem(own: Standing, state: FailoverState) -> str:
    """Return why a broker may not be the primary, whoever has the lease; empty: it may."""
    if state.has(own.member):
        return ""
    known = ", ".join(member.address or member.id for member in state.in_sync)
    return f"it may lack what was acknowledged: in sync are {known}"


def heirs(state: FailoverState, own: Member, least: int) -> tuple[Member, ...]:
    """Return who is in sync when this member takes over.

    All were; the primary before is left out, for it is away, if enough are left without it.
    """
    others = [member for member in state.in_sync if member.id not in (own.id, state.primary.id)]
    before = [member for member in state.in_sync if member.id == state.primary.id != own.id]
    return (own, *others, *(before if len(others) + 1 < least else ()))


def _name(state: FailoverState, member: str) -> str:
    known = (state.primary, *state.in_sync)
    return next((one.address for one in known if one.id == member and one.address), member)
