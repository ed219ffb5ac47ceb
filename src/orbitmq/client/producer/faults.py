"""Which broker gets the next message: round robin, away from the broker that failed, away from slow ones.

Latency fault avoidance (off by default, as in RocketMQ): each send tells how long it took, and a slow
broker is left alone for a while. A failed send counts as 10 seconds.

latency of a send, at least ms | 50 | 100 |  550 | 1800 | 3000 |  5000 | 15000
the broker is avoided for ms   |  0 |   0 | 2000 | 5000 | 6000 | 10000 | 30000
"""

import random
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.client.core.route_cache import PublishRoute
from orbitmq.clock import Clock
from orbitmq.format.java_hash import java_hash
from orbitmq.wire.bodies.message_queue import MessageQueue

LATENCY_MS: Final = (50, 100, 550, 1800, 3000, 5000, 15000)
AVOID_MS: Final = (0, 0, 2000, 5000, 6000, 10000, 30000)
FAILED_LATENCY_MS: Final = 10_000
assert len(LATENCY_MS) == len(AVOID_MS)


def avoid_ms(latency_ms: float) -> int:
    """Return how long to avoid a broker whose last send took so long."""
    for bound, avoided in zip(reversed(LATENCY_MS), reversed(AVOID_MS), strict=True):
        if latency_ms >= bound:
            return avoided
    return 0


def queue_by_key(queues: Sequence[MessageQueue], key: str | int) -> MessageQueue:
    """Return the queue of all messages with this key: Java's hash, so that Java producers agree."""
    value = java_hash(key) if isinstance(key, str) else _java_int_hash(key)
    return queues[abs(value) % len(queues)]


def _java_int_hash(value: int) -> int:
    """Return hashCode of an Integer, or of a Long where the number needs one."""
    if -(1 << 31) <= value < 1 << 31:
        return value
    folded = (value ^ (value & 0xFFFFFFFFFFFFFFFF) >> 32) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >> 31 else folded


class BrokerFaults:
    """Until when each broker is avoided. Not thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._avoided_until: dict[str, float] = {}

    def record(self, broker_name: str, latency_ms: float, *, failed: bool = False) -> None:
        """Remember how a send went. A wait that is longer already is not cut."""
        pause_ms = avoid_ms(FAILED_LATENCY_MS if failed else latency_ms)
        if pause_ms:
            until = self._clock.monotonic_ms() + pause_ms
            if until > self._avoided_until.get(broker_name, 0):
                self._avoided_until[broker_name] = until

    def is_available(self, broker_name: str) -> bool:
        until = self._avoided_until.get(broker_name)
        return until is None or self._clock.monotonic_ms() >= until


class QueueChooser:
    """Round robin over the queues of a topic, started anywhere. Not thread-safe."""

    def __init__(self, faults: BrokerFaults | None = None, start: int | None = None) -> None:
        self._faults = faults
        self._next = random.getrandbits(30) if start is None else start

    def choose(self, route: PublishRoute, last_broker: str | None = None) -> MessageQueue:
        """Return the next queue; after a failure one of another broker, if there is one."""
        if self._faults is not None:
            return self._choose_healthy(self._faults, route, last_broker)
        if last_broker is not None:
            other = self._find(route, lambda name: name != last_broker)
            if other is not None:
                return other
        return self._take(route)

    def _choose_healthy(
        self, faults: BrokerFaults, route: PublishRoute, last_broker: str | None
    ) -> MessageQueue:
        def available(name: str) -> bool:
            return name != last_broker and faults.is_available(name)

        def other(name: str) -> bool:
            return name != last_broker

        return self._find(route, available) or self._find(route, other) or self._take(route)

    def _take(self, route: PublishRoute) -> MessageQueue:
        queues = route.queues
        self._next += 1
        return queues[self._next % len(queues)]

    def _find(self, route: PublishRoute, wanted: Callable[[str], bool]) -> MessageQueue | None:
        for _ in route.queues:
            queue = self._take(route)
            if wanted(queue.broker_name):
                return queue
        return None
