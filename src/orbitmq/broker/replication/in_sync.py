"""InSync: how far replicas have the log, and how many of them an answer to a send waits for.

brokerRole=SYNC_MASTER only. All numbers count the primary itself, as RocketMQ 5 does: inSyncReplicas=2 waits
for one replica, and 1, the default, for none. With enableAutoInSyncReplicas as many are waited for as are in
sync, but never fewer than minInSyncReplicas; when fewer than those are in sync, messages are refused before
they are written. syncMasterAsInV4 is RocketMQ 4's meaning: at least one replica, and if none is in sync
the message is stored and its producer told at once (SLAVE_NOT_AVAILABLE).
"""

from collections.abc import Callable, Hashable
from typing import Protocol

from orbitmq.broker.config import BrokerConfig
from orbitmq.message import AppendStatus


class Guard(Protocol):
    """Who says that this broker is the primary, and who else has to have what is acknowledged (failover)."""

    def reached(self, log_offset: int) -> bool:
        """Tell whether everything before this offset may be acknowledged now."""

    @property
    def least(self) -> int:
        """How many must have it, the primary included."""

    @property
    def refusal(self) -> str:
        """Why messages are refused now; empty: they are not."""


class InSync:
    """What the replicas of a primary have told. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, written_offset: Callable[[], int]) -> None:
        self._config, self._written_offset = config, written_offset
        self._offsets: dict[Hashable, int] = {}
        self.guard: Guard | None = (
            None  # None: nobody but the configuration says who is the primary
        )
        self.on_change: list[Callable[[], None]] = []
        """Called when a replica has more than before."""
        self.send_soon: Callable[[], None] = lambda: None
        """Has what is new sent to replicas; their server sets it."""

    def put(self, replica: Hashable, log_offset: int) -> None:
        """Note that a replica has everything before this offset."""
        self._offsets[replica] = log_offset
        self.changed()

    def changed(self) -> None:
        """Have all look who wait for replicas."""
        for callback in self.on_change:
            callback()

    def remove(self, replica: Hashable) -> None:
        self._offsets.pop(replica, None)

    @property
    def count(self) -> int:
        """How many have the log, the primary included, but for less than haMaxGapNotInSync."""
        return 1 + sum(map(self.is_near, self._offsets.values()))

    def is_near(self, log_offset: int) -> bool:
        """Tell whether who has everything before this offset lacks less than haMaxGapNotInSync."""
        return self._written_offset() - log_offset < self._config.in_sync_gap_bytes

    def reached(self, log_offset: int, needed: int) -> bool:
        """Tell whether so many, the primary included, have everything before this offset."""
        if self.guard is not None:
            return self.guard.reached(log_offset)
        have = 1
        if have >= needed:
            return True
        for offset in self._offsets.values():
            have += offset >= log_offset
        return have >= needed

    def needed(self) -> int:
        """Return how many must have what is appended now, the primary included."""
        config = self._config
        if self.guard is not None:
            return self.guard.least
        needed = max(config.in_sync_replicas, 2 if config.sync_as_v4 else 1)
        if config.auto_in_sync:
            needed = max(min(needed, self.count), config.min_in_sync_replicas)
        return needed

    def verdict(self) -> AppendStatus:
        """Return what can be said at once of a message: that nobody is there to wait for."""
        if self._config.sync_as_v4 and self.count < 2:
            return AppendStatus.SLAVE_NOT_AVAILABLE
        return AppendStatus.PUT_OK

    @property
    def refusal(self) -> str:
        """Why messages are refused before they are written (minInSyncReplicas, failover), or empty."""
        least = self._config.min_in_sync_replicas
        if least > 1 and self.count < least:
            return f"in-sync replicas not enough: {self.count} of {least} (minInSyncReplicas)"
        return self.guard.refusal if self.guard is not None else ""
