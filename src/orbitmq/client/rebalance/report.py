"""What a member of a group notes of the queues that it takes and gives up.

It tells its user (`RebalanceReport`, to the function `on_rebalance` of a consumer) and, in the properties of
its running info (307), whoever watches the group. Times are told there as milliseconds ago, so that clocks
of different machines do not matter.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from orbitmq.wire.bodies.message_queue import MessageQueue

NOTES_PROPERTY: Final = "orbitmq.rebalance"
"""The property of the running info that holds a member's notes."""
_GIVEN_UP_KEPT: Final = 256


@dataclass(frozen=True, slots=True)
class GainedQueue:
    """A queue that this member reads now."""

    queue: MessageQueue
    offset: int  # where it began to read
    after_ms: float  # since the round began: this member's own part of the pause
    waiting: int | None = (
        None  # messages that were there already, the burst; None: nobody could tell
    )


@dataclass(frozen=True, slots=True)
class LostQueue:
    """A queue that this member does not read any more."""

    queue: MessageQueue
    offset: int | None  # where the next reader begins; None: not stored, the lock was lost
    repeated: int  # messages that a handler had here and that come again there


@dataclass(frozen=True, slots=True)
class RebalanceReport:
    """What one rebalance changed for this member.

    `reasons`: start, notice (of a broker), route (queues changed), interval, again (after a failure), reset
    (of offsets), lock (lost), close.
    """

    group: str
    client_id: str
    reasons: tuple[str, ...]
    at_ms: int  # when the round began
    duration_ms: float
    gained: tuple[GainedQueue, ...]
    lost: tuple[LostQueue, ...]
    queues: tuple[MessageQueue, ...]  # all that this member has now

    @property
    def repeated(self) -> int:
        """Messages that come twice because queues went to other members."""
        return sum(one.repeated for one in self.lost)

    @property
    def waiting(self) -> int:
        """Messages that waited in queues that came here."""
        return sum(one.waiting or 0 for one in self.gained)


RebalanceListener = Callable[[RebalanceReport], Awaitable[None] | None]


class TakenNote(msgspec.Struct, frozen=True):
    """Tells of a queue that the member reads."""

    queue: MessageQueue
    offset: int
    ago_ms: float


class GivenUpNote(msgspec.Struct, frozen=True):
    """Tells of a queue that the member gave up."""

    queue: MessageQueue
    offset: int | None
    repeated: int
    ago_ms: float


class MemberNotes(msgspec.Struct, frozen=True):
    """What a member tells of its queues."""

    taken: list[TakenNote] = []
    given_up: list[GivenUpNote] = []


@dataclass(frozen=True, slots=True)
class _Change:
    queue: MessageQueue
    offset: int | None
    at_ms: float  # monotonic
    repeated: int = 0


class QueueChanges:
    """Notes when queues came and went. Belongs to its loop's thread; times are monotonic."""

    def __init__(self) -> None:
        self._taken: dict[MessageQueue, _Change] = {}
        self._given_up: deque[_Change] = deque(maxlen=_GIVEN_UP_KEPT)
        self._gained: list[_Change] = []  # since the last report
        self._lost: list[_Change] = []

    def took(self, queue: MessageQueue, offset: int, now_ms: float) -> None:
        """Note that a queue is read from this offset on."""
        change = self._taken[queue] = _Change(queue, offset, now_ms)
        self._gained.append(change)

    def gave_up(
        self, queue: MessageQueue, offset: int | None, repeated: int, now_ms: float
    ) -> None:
        """Note that a queue is not read any more, and what its next reader gets again."""
        self._taken.pop(queue, None)
        change = _Change(queue, offset, now_ms, repeated)
        self._given_up.append(change)
        self._lost.append(change)

    def pop(self, started_ms: float) -> tuple[tuple[GainedQueue, ...], tuple[LostQueue, ...]]:
        """Return what changed since the last call, for a round that began then."""
        gained, lost = self._gained, self._lost
        self._gained, self._lost = [], []
        return (
            tuple(
                GainedQueue(one.queue, one.offset or 0, max(one.at_ms - started_ms, 0.0))
                for one in gained
            ),
            tuple(LostQueue(one.queue, one.offset, one.repeated) for one in lost),
        )

    def notes(self, now_ms: float) -> str:
        """Return what an observer is told."""
        taken = [
            TakenNote(one.queue, one.offset or 0, now_ms - one.at_ms)
            for one in self._taken.values()
        ]
        given_up = [
            GivenUpNote(one.queue, one.offset, one.repeated, now_ms - one.at_ms)
            for one in self._given_up
        ]
        return msgspec.json.encode(MemberNotes(taken, given_up)).decode()


def parse_notes(text: str) -> MemberNotes | None:
    """Return what a member told of itself; None: it is none of ours, or of another version."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=MemberNotes)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None
