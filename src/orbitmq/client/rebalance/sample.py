"""GroupSample: one look at a group from outside, through its brokers.

An answer was true at some moment between `asked_ms` and `answered_ms`, both monotonic and of the observer.
Everything that a watch says of times follows from this.
"""

from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.rebalance.report import (
    NOTES_PROPERTY,
    GivenUpNote,
    MemberNotes,
    TakenNote,
    parse_notes,
)
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo

STARTED_PROPERTY: Final = "PROP_CONSUMER_START_TIMESTAMP"


@dataclass(frozen=True, slots=True)
class QueueReach:
    """How far a queue is, and how far the group is in it as its broker knows."""

    broker_offset: int
    consumer_offset: int


@dataclass(slots=True)
class MemberSample:
    """What one member told."""

    client_id: str
    started: str  # tells a member that was restarted from the one before
    asked_ms: float
    answered_ms: float
    reading: dict[MessageQueue, int | None]  # up to which offset all is handled; None: not known
    notes: MemberNotes = field(default_factory=MemberNotes)

    @classmethod
    def of(
        cls, client_id: str, info: ConsumerRunningInfo, asked_ms: float, answered_ms: float
    ) -> "MemberSample":
        """Return what a running info says."""
        properties = info.properties
        reading = {
            queue: None if one.commit_offset < 0 else one.commit_offset
            for queue, one in info.mq_table.items()
            if not one.droped
        }
        reading |= {queue: None for queue, one in info.mq_pop_table.items() if not one.droped}
        notes = parse_notes(properties.get(NOTES_PROPERTY, "")) or MemberNotes()
        started = properties.get(STARTED_PROPERTY, "")
        return cls(client_id, started, asked_ms, answered_ms, reading, notes)

    @property
    def identity(self) -> tuple[str, str]:
        return self.client_id, self.started

    def taken(self, queue: MessageQueue) -> TakenNote | None:
        """Return when and where the member says that it began to read a queue."""
        return next((one for one in self.notes.taken if one.queue == queue), None)

    def given_up(self, queue: MessageQueue, since_ms: float) -> GivenUpNote | None:
        """Return what the member says of a queue that it gave up since then."""
        found = [one for one in self.notes.given_up if one.queue == queue]
        return found[-1] if found and self.moment_ms(found[-1].ago_ms) >= since_ms else None

    def moment_ms(self, ago_ms: float) -> float:
        """Return when something was that the member told as so long ago."""
        return self.answered_ms - ago_ms


@dataclass(slots=True)
class GroupSample:
    """What there was to be seen of a group."""

    at_ms: int  # by the clock on the wall
    asked_ms: float
    answered_ms: float
    members: dict[str, MemberSample]
    silent: set[str]  # members that did not say what they read
    reach: dict[MessageQueue, QueueReach]
    broadcasting: bool = False

    @property
    def client_ids(self) -> set[str]:
        return {*self.members, *self.silent}

    def readers(self, queue: MessageQueue) -> dict[tuple[str, str], MemberSample]:
        """Return the members that read a queue."""
        return {one.identity: one for one in self.members.values() if queue in one.reading}

    def no_longer_has(self, queue: MessageQueue) -> bool:
        """Tell whether the topic is there, but without this queue."""
        return queue not in self.reach and any(one.topic == queue.topic for one in self.reach)
