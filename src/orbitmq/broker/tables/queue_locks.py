"""QueueLocks: which client of a group may consume a queue, for orderly consumption."""

from collections.abc import Iterable

from orbitmq.clock import Clock
from orbitmq.wire.bodies.message_queue import MessageQueue


class QueueLocks:
    """Locks by group and queue; one that is not renewed expires. Belongs to the event loop's thread."""

    def __init__(self, clock: Clock, expiry_ms: int) -> None:
        self._clock, self._expiry_ms = clock, expiry_ms
        self._locks: dict[str, dict[MessageQueue, tuple[str, float]]] = {}  # (client, renewed)

    def lock(
        self, group: str, client_id: str, queues: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Lock or renew what is free or the client's own; return the queues that it holds now."""
        now = self._clock.monotonic_ms()
        held = self._locks.setdefault(group, {})
        granted = []
        for queue in dict.fromkeys(queues):
            owner = held.get(queue)
            if owner is None or owner[0] == client_id or self._is_expired(owner, now):
                held[queue] = client_id, now
                granted.append(queue)
        return granted

    def unlock(self, group: str, client_id: str, queues: Iterable[MessageQueue]) -> None:
        """Give back queues; those of other clients stay locked."""
        held = self._locks.get(group, {})
        for queue in queues:
            owner = held.get(queue)
            if owner is not None and owner[0] == client_id:
                del held[queue]
        if not held:
            self._locks.pop(group, None)

    def is_any_locked(self, group: str) -> bool:
        """Tell whether any queue is locked for the group: it consumes in order."""
        now = self._clock.monotonic_ms()
        held = self._locks.get(group, {})
        return any(not self._is_expired(owner, now) for owner in held.values())

    def expire(self) -> None:
        """Forget locks that expired long ago."""
        now = self._clock.monotonic_ms()
        for group, held in list(self._locks.items()):
            for queue in [queue for queue, owner in held.items() if self._is_expired(owner, now)]:
                del held[queue]
            if not held:
                del self._locks[group]

    def _is_expired(self, owner: tuple[str, float], now: float) -> bool:
        return now - owner[1] > self._expiry_ms
