"""RebalanceWatch: makes rebalances of looks at a group.

    old owner reads   ...|held_ms     lost_ms|
    new owner reads              |absent_ms      answered_ms|...
    looks                |           |              |

Each queue has a ledger: who read it at the last look, and between which looks that ended. A figure that
follows from looks alone is a pair of bounds; where members tell what they noted themselves (ours do), both
bounds are equal. What each figure means is told in docs/REBALANCE.md.
"""

from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.rebalance.report import GivenUpNote
from orbitmq.client.rebalance.sample import GroupSample, MemberSample, QueueReach
from orbitmq.wire.bodies.message_queue import MessageQueue

PATIENT_LOOKS: Final = 10
"""A rebalance that leaves queues without reader is told after so many looks without a change."""
SETTLE_MS: Final = 500
"""A rebalance is over when nothing has changed for so long, and for one look."""
RESTLESS_MS: Final = 20_000
"""One that goes on for so long is told before it is over: members that never agree have to be seen."""

_Identity = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """A figure that is known to lie between two values, both included."""

    least: float
    most: float

    @property
    def exact(self) -> bool:
        return self.least == self.most


@dataclass(frozen=True, slots=True)
class QueueMove:
    """A queue that has another reader. A figure is None where nothing can be said of it."""

    queue: MessageQueue
    source: str | None  # client ids
    target: str
    pause_ms: Bounds | None
    duplicates: Bounds | None
    burst: Bounds | None


@dataclass(slots=True)
class Rebalance:
    """What happened from the first change that was seen until nothing changed any more."""

    at_ms: int
    duration_ms: float
    members: list[str]
    joined: list[str]
    left: list[str]
    restarted: list[str]
    moves: list[QueueMove]
    unread: list[MessageQueue]  # that nobody reads although the group has members
    removed: list[MessageQueue]  # that the topic does not have any more
    settled: bool  # False: it still goes on


@dataclass(slots=True)
class _Ledger:
    """Who read a queue last, and what was seen of it since."""

    owner: _Identity | None
    held_ms: float  # the owner read it then, at least
    done: int | None  # and had handled everything before this offset
    lost_ms: float | None = None  # the owner did not read it any more then
    lost_reach: QueueReach | None = None
    absent_ms: float = 0.0  # no other reader was there then, at least
    absent_reach: QueueReach | None = None
    told: bool = False  # that nobody reads it


@dataclass(slots=True)
class _Open:
    """A rebalance that goes on."""

    at_ms: int
    asked_ms: float
    members: set[_Identity]
    client_ids: set[str]
    changed_ms: float = 0.0
    quiet: int = 0
    moves: list[QueueMove] = field(default_factory=list)
    removed: list[MessageQueue] = field(default_factory=list)


class RebalanceWatch:
    """Follows one group. Begins with a first look, which tells no rebalance."""

    def __init__(self, first: GroupSample, settle_ms: float = SETTLE_MS) -> None:
        self._before, self._settle_ms = first, settle_ms
        self._open: _Open | None = None
        self._ledgers: dict[MessageQueue, _Ledger] = {}
        for queue in _queues(first):
            self._follow(queue, first)

    @property
    def owners(self) -> dict[MessageQueue, str]:
        """Who reads each queue, as far as that was seen."""
        ledgers = sorted(self._ledgers.items())
        return {q: one.owner[0] for q, one in ledgers if one.owner and one.lost_ms is None}

    def see(self, sample: GroupSample) -> Rebalance | None:
        """Take in a look; return a rebalance that is over by now."""
        reads_before = set(self.owners)
        moves, removed = [], []
        for queue in sorted({*self._ledgers, *_queues(sample)}):
            if not sample.readers(queue) and sample.no_longer_has(queue):
                del self._ledgers[queue]
                removed.append(queue)
            elif (move := self._follow(queue, sample)) is not None:
                moves.append(move)
        before, self._before = self._before, sample
        other_members = before.client_ids != sample.client_ids
        if not before.silent and not sample.silent:
            other_members |= _identities(before) != _identities(sample)
        changed = bool(moves or removed) or other_members or set(self.owners) != reads_before
        if changed and self._open is None:
            self._open = _Open(
                sample.at_ms, before.asked_ms, _identities(before), before.client_ids
            )
        if self._open is None:
            return None
        return self._go_on(self._open, sample, moves, removed, changed)

    def _go_on(
        self,
        open_: _Open,
        sample: GroupSample,
        moves: list[QueueMove],
        removed: list[MessageQueue],
        changed: bool,
    ) -> Rebalance | None:
        open_.moves += moves
        open_.removed += removed
        if changed:
            open_.quiet, open_.changed_ms = 0, sample.answered_ms
        else:
            open_.quiet += 1
        unread = [q for q, one in sorted(self._ledgers.items()) if one.lost_ms is not None]
        waits = any(not self._ledgers[queue].told for queue in unread) and sample.client_ids
        quiet_ms = sample.asked_ms - open_.changed_ms
        looks = PATIENT_LOOKS if waits else 1
        settled = open_.quiet >= looks and quiet_ms >= self._settle_ms
        if not settled and sample.answered_ms - open_.asked_ms < RESTLESS_MS:
            return None
        self._open = None
        for queue in unread:
            self._ledgers[queue].told = True
        return self._over(open_, sample, unread, settled)

    def _over(
        self, open_: _Open, sample: GroupSample, unread: list[MessageQueue], settled: bool
    ) -> Rebalance:
        other = open_.members - _identities(sample)
        restarted = {client_id for client_id, _ in other if client_id in sample.members}
        return Rebalance(
            at_ms=open_.at_ms,
            duration_ms=open_.changed_ms - open_.asked_ms,
            members=sorted(sample.client_ids),
            joined=sorted(sample.client_ids - open_.client_ids),
            left=sorted(open_.client_ids - sample.client_ids),
            restarted=sorted(restarted),
            moves=open_.moves,
            unread=unread,
            removed=open_.removed,
            settled=settled,
        )

    # --- one queue ---

    def _follow(self, queue: MessageQueue, sample: GroupSample) -> QueueMove | None:
        """Bring a queue's ledger up to date; return what it is if another member reads the queue now."""
        readers, reach = sample.readers(queue), sample.reach.get(queue)
        ledger = self._ledgers.get(queue)
        if ledger is None:
            ledger = self._ledgers[queue] = _Ledger(None, sample.asked_ms, None)
            ledger.absent_ms, ledger.absent_reach = self._before.asked_ms, reach
            is_first = sample is self._before
            if is_first or not readers:
                self._hold(queue, readers, sample)
                return None
        if ledger.owner in readers:
            held = readers[ledger.owner]
            ledger.held_ms, ledger.done = held.asked_ms, held.reading[queue]
            ledger.lost_ms = ledger.lost_reach = None
            ledger.told = False
            if len(readers) == 1:
                ledger.absent_ms, ledger.absent_reach = sample.asked_ms, reach
            return None
        if readers:
            move = self._moved(queue, ledger, sample)
            self._hold(queue, readers, sample)
            return move
        if ledger.owner is None or ledger.owner[0] not in sample.silent:
            if ledger.lost_ms is None:
                ledger.lost_ms, ledger.lost_reach = sample.answered_ms, reach
            ledger.absent_ms, ledger.absent_reach = sample.asked_ms, reach
        return None

    def _hold(
        self, queue: MessageQueue, readers: dict[_Identity, MemberSample], sample: GroupSample
    ) -> None:
        """Begin a ledger with whoever reads the queue now."""
        reach = sample.reach.get(queue)
        owner = min(readers, default=None)
        if owner is None:
            one = _Ledger(None, sample.asked_ms, None, sample.answered_ms, reach, told=True)
        else:
            one = _Ledger(owner, readers[owner].asked_ms, readers[owner].reading[queue])
        one.absent_ms, one.absent_reach = sample.asked_ms, reach
        self._ledgers[queue] = one

    def _moved(self, queue: MessageQueue, ledger: _Ledger, sample: GroupSample) -> QueueMove:
        reader = min(sample.readers(queue).items())[1]
        reach = sample.reach.get(queue)
        begin, start = _beginning(queue, ledger, reader, reach)
        end, duplicates = Bounds(ledger.held_ms, ledger.lost_ms or sample.answered_ms), None
        old = sample.members.get(ledger.owner[0]) if ledger.owner is not None else None
        note = None
        if old is not None and old.identity == ledger.owner:
            note = old.given_up(queue, ledger.held_ms)
            if note is not None:
                end = _exactly(old.moment_ms(note.ago_ms))
        if note is not None:
            duplicates = _noted_duplicates(note, start)
        elif ledger.owner is not None:
            duplicates = _duplicates(ledger, start, ledger.lost_reach or reach)
        return QueueMove(
            queue,
            None if ledger.owner is None else ledger.owner[0],
            reader.client_id,
            None if ledger.owner is None else _difference(begin, end),
            duplicates,
            _difference(_ends(ledger.absent_reach, reach), start),
        )


def _queues(sample: GroupSample) -> list[MessageQueue]:
    read = {queue for member in sample.members.values() for queue in member.reading}
    return sorted(read | set(sample.reach))


def _identities(sample: GroupSample) -> set[_Identity]:
    return {member.identity for member in sample.members.values()}


# --- figures ---


def _exactly(value: float) -> Bounds:
    return Bounds(value, value)


def _difference(of: Bounds | None, minus: Bounds | None) -> Bounds | None:
    """Return how far the one lies above the other, never less than nothing."""
    if of is None or minus is None:
        return None
    return Bounds(max(of.least - minus.most, 0), max(of.most - minus.least, 0))


def _beginning(
    queue: MessageQueue, ledger: _Ledger, reader: MemberSample, reach: QueueReach | None
) -> tuple[Bounds, Bounds | None]:
    """Return when and at which offset the new reader began."""
    note = reader.taken(queue)
    if note is not None:
        return _exactly(reader.moment_ms(note.ago_ms)), _exactly(note.offset)
    return Bounds(ledger.absent_ms, reader.answered_ms), _start(ledger.absent_reach, reach)


def _start(before: QueueReach | None, now: QueueReach | None) -> Bounds | None:
    """Return where a reader began that does not say it: at the offset that was stored between two looks."""
    if before is None or now is None:
        return None
    # 0 is also said of a group that never stored one; it may have begun anywhere.
    most = now.consumer_offset or now.broker_offset
    return Bounds(min(before.consumer_offset, most), most)


def _ends(before: QueueReach | None, now: QueueReach | None) -> Bounds | None:
    """Return where the queue ended when the new reader began."""
    if before is None or now is None:
        return None
    return Bounds(before.broker_offset, now.broker_offset)


def _noted_duplicates(note: GivenUpNote, start: Bounds | None) -> Bounds | None:
    """Return what comes twice as the old reader counted it, and what the new one began too early."""
    early = None
    if note.offset is not None:
        early = _difference(_exactly(note.offset), start)
    return (
        None if early is None else Bounds(early.least + note.repeated, early.most + note.repeated)
    )


def _duplicates(ledger: _Ledger, start: Bounds | None, lost: QueueReach | None) -> Bounds | None:
    """Return what the old reader had handled and the new one gets again, if the old one cannot be asked.

    At least what it was seen to be done with; at most everything that was in the queue when it was gone.
    """
    if start is None:
        return None
    least = max((ledger.done or 0) - start.most, 0)
    most = max(lost.broker_offset - start.least, least) if lost is not None else least
    return Bounds(least, most)
