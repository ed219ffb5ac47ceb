"""Published: the in-sync set of a primary as its coordinator holds it, and how it is changed there."""

import logging

from orbitmq.broker.failover.coordinator import Coordinator
from orbitmq.broker.failover.sync_set import SyncSet
from orbitmq.broker.replication.in_sync import InSync
from orbitmq.wire.bodies.failover import FailoverState, Member, Seen

logger = logging.getLogger(__name__)


class Published:
    """Of one start of a primary. Belongs to the event loop's thread."""

    def __init__(self, coordinator: Coordinator, sync: SyncSet, in_sync: InSync) -> None:
        self._coordinator, self._in_sync = coordinator, in_sync
        self.sync = sync
        self._revision = -1  # of the state whose members answers wait for

    async def serve(self, seen: Seen, own: Member) -> Seen | None:
        """Take over who is in sync by the coordinator, and publish who is now.

        Returns what holds then; None: somebody changed it meanwhile, and it has to be looked at again.
        """
        assert seen.state is not None
        self._settle(seen.state, seen.revision)
        wanted = self.sync.look()
        if wanted is None and seen.state.primary == own:
            return seen
        in_sync = wanted or self.sync.published
        state = FailoverState(epoch=seen.state.epoch, primary=own, in_sync=in_sync)
        self.sync.asked(state.in_sync)
        revision = await self._coordinator.change(seen, state)
        if not revision:
            return None
        self._settle(state, revision)
        logger.info("failover: in sync: %s", ", ".join(m.address for m in state.in_sync))
        return Seen(state, revision, seen.holder, seen.at)

    def _settle(self, state: FailoverState, revision: int) -> None:
        if revision != self._revision:
            self.sync.settled(state.in_sync)
            self._revision = revision
            self._in_sync.changed()
