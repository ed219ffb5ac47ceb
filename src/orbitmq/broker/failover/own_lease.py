"""OwnLease: until when this broker may say that it is the primary, by its own clock.

The coordinator counts from when it got the request to keep the lease, which was after it was sent. So
the lease is counted from before the request was sent, less a tenth: clocks do not run alike. Whoever asks
looks at the clock at that moment. No timer decides: a process that was paused has none that came in time.
"""

import logging
from typing import Final

from orbitmq.broker.failover.coordinator import Coordinator
from orbitmq.clock import Clock
from orbitmq.errors import ResponseError
from orbitmq.wire.bodies.failover import FailoverState, Seen

logger = logging.getLogger(__name__)

MARGIN: Final = 0.1
"""This share of a lease is not used."""


class OwnLease:
    """One lease after the other at a coordinator. Belongs to the event loop's thread."""

    def __init__(self, coordinator: Coordinator, clock: Clock, ms: int) -> None:
        self._coordinator, self._clock, self._ms = coordinator, clock, ms
        self._id = 0  # 0: there is none
        self.is_taken = False  # the coordinator holds us as the primary by it
        self._until_ms = 0.0

    @property
    def left_ms(self) -> float:
        """How long it lasts from now on; 0: it has ended, or may have."""
        return max(0.0, self._until_ms - self._clock.monotonic_ms()) if self.is_taken else 0.0

    @property
    def is_valid(self) -> bool:
        """Whether nobody else can be the primary, at this moment."""
        return self.is_taken and self._clock.monotonic_ms() < self._until_ms

    async def keep(self) -> bool:
        """Let it begin again; tell whether it had ended instead. WireError: nobody knows."""
        lease, asked_ms = self._id, self._clock.monotonic_ms()
        if not lease:
            return False
        ms = await self._coordinator.keep(lease)
        if lease != self._id:
            return False
        if ms:
            self._count(asked_ms, ms)
            return False
        logger.warning("failover: the lease has ended")
        self._end()
        return True

    async def take(self, before: Seen, state: FailoverState) -> int:
        """Have the coordinator hold the primary of this state by it; return the revision, 0: refused."""
        if self._id:
            try:
                return await self._take(before, state)
            except ResponseError as error:
                logger.info("failover: another lease is needed: %s", error)
                self._end()
        asked_ms = self._clock.monotonic_ms()
        granted = await self._coordinator.grant(self._ms)
        self._id = granted.id
        self._count(asked_ms, granted.ms)
        return await self._take(before, state)

    async def _take(self, before: Seen, state: FailoverState) -> int:
        revision = await self._coordinator.take(before, state, state.primary.id, self._id)
        self.is_taken = self.is_taken or revision > 0
        return revision

    async def give_back(self) -> None:
        """End it at once, if there is one. WireError: it ends by itself."""
        lease = self._id
        self._end()
        if lease:
            await self._coordinator.revoke(lease)

    def _count(self, asked_ms: float, ms: int) -> None:
        self._until_ms = asked_ms + ms * (1 - MARGIN)

    def _end(self) -> None:
        self._id, self.is_taken, self._until_ms = 0, False, 0.0
