"""SyncSet: who has everything that was acknowledged, as the coordinator has it, and what answers wait for.

A member of the published set may become the primary, so an answer waits until all of them have its message.
To leave one behind the smaller set is published first; until that is answered with yes, all are waited for.
To take one in it is waited for first, and published when it has everything.

A change that was not answered may have been made, or may still be: whoever it would let in is waited
for until a later change was answered with yes, for only one of two changes from the same state is made.

The set gets no smaller than what answers need anyway (inSyncReplicas; with enableAutoInSyncReplicas
minInSyncReplicas): that would let nothing be acknowledged, and would leave fewer who may take over.
"""

from collections.abc import Callable, Hashable
from typing import NamedTuple

from orbitmq.broker.config import BrokerConfig
from orbitmq.clock import Clock
from orbitmq.wire.bodies.failover import Member


class _Progress(NamedTuple):
    link: Hashable
    address: str
    log_offset: int  # it has everything before


class SyncSet:
    """The members of one primary. Belongs to the event loop's thread."""

    def __init__(
        self, own: Member, config: BrokerConfig, clock: Clock, written_offset: Callable[[], int]
    ) -> None:
        self._own, self._config, self._clock = own, config, clock
        self._written_offset = written_offset
        self.published: tuple[Member, ...] = ()
        self._doubtful: set[str] = set()  # may be published: a change was not answered
        self._joining: dict[str, tuple[int, float]] = {}  # where the log ended then, and when
        self._progress: dict[str, _Progress] = {}  # of those that are connected
        self._near_ms: dict[str, float] = {}  # when one last had what there was a look before
        self._end_before = written_offset()
        self._common = -1  # all that are waited for have everything before this offset

    # What replicas tell

    def put(self, member: Member, link: Hashable, log_offset: int) -> None:
        """Note that a member has everything before this offset."""
        self._progress[member.id] = _Progress(link, member.address, log_offset)
        self._count()

    def remove(self, member: str, link: Hashable) -> None:
        """Forget how far it is when its connection has ended, unless it has another one."""
        known = self._progress.get(member)
        if known is not None and known.link is link:
            del self._progress[member]
            self._count()

    # What answers wait for

    def reached(self, log_offset: int) -> bool:
        """Tell whether all have everything before this offset, and are enough."""
        return log_offset <= self._common and len(self.published) >= least_of(self._config)

    @property
    def awaited(self) -> set[str]:
        """Who is waited for, besides this broker."""
        members = {member.id for member in self.published}
        return (members | self._doubtful | self._joining.keys()) - {self._own.id}

    def _count(self) -> None:
        offsets = [
            self._progress[member].log_offset if member in self._progress else -1
            for member in self.awaited
        ]
        self._common = min(offsets, default=1 << 62)

    # What the coordinator is to hold

    def look(self) -> tuple[Member, ...] | None:
        """Look how far each one is; return the set that should be published, None: as it is."""
        now, end = self._clock.monotonic_ms(), self._written_offset()
        for member, known in self._progress.items():
            if known.log_offset >= self._end_before:
                self._near_ms[member] = now
        self._end_before = end
        wanted = self._without_late(now) or self._with_joined(now, end)
        if wanted is None and self._doubtful:
            return self.published  # the same once more: what was not answered can be made no more
        return wanted

    def _without_late(self, now: float) -> tuple[Member, ...] | None:
        late = {m.id for m in self.published if m.id != self._own.id and self._is_late(m.id, now)}
        room = len(self.published) - least_of(self._config)
        for member in sorted(late)[: max(room, 0)]:
            return tuple(one for one in self.published if one.id != member)
        return None

    def _is_late(self, member: str, now: float) -> bool:
        since = self._near_ms.setdefault(member, now)
        return now - since >= self._config.sync_lag_ms

    def _with_joined(self, now: float, end: int) -> tuple[Member, ...] | None:
        known = {member.id for member in self.published}
        for member, progress in self._progress.items():
            if member in known:
                continue
            if member not in self._joining:
                if self._near_ms.get(member) == now:
                    self._joining[member] = end, now
                    self._count()
            elif progress.log_offset >= self._joining[member][0]:
                # A log that has another id now is at the address where it was before.
                others = (one for one in self.published if one.address != progress.address)
                return (*others, Member(id=member, address=progress.address))
        self._give_up(now)
        return None

    def _give_up(self, now: float) -> None:
        """Wait no longer for those who came near and fell back, if nobody was told that they are in."""
        for member, (_, since) in list(self._joining.items()):
            is_gone = member not in self._progress
            if is_gone or now - since >= self._config.sync_lag_ms:
                del self._joining[member]
                self._count()

    def asked(self, wanted: tuple[Member, ...]) -> None:
        """Note that this is about to be published: from now on it may be."""
        self._doubtful |= {member.id for member in wanted}
        self._count()

    def settled(self, published: tuple[Member, ...]) -> None:
        """Note what a change that was answered with yes has published; nothing else can be made now."""
        self.published = published
        self._doubtful.clear()
        for member in published:
            self._joining.pop(member.id, None)
        self._count()


def least_of(config: BrokerConfig) -> int:
    """Return how many must have what is acknowledged, the primary included."""
    if config.auto_in_sync:
        return config.min_in_sync_replicas
    return max(config.in_sync_replicas, config.min_in_sync_replicas, 2 if config.sync_as_v4 else 1)
