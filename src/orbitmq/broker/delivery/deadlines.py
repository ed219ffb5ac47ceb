"""Deadlines: requests that wait for messages, until when, and one timer for the earliest of them."""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from orbitmq.broker.context import BrokerContext

_GONE_MAX: Final = 1_000  # answered requests that may still stand in the heap


class Waiting(Protocol):
    """A request that waits."""

    deadline_ms: float  # by the monotonic clock


_Waiting = TypeVar("_Waiting", bound=Waiting)


class Deadlines(Generic[_Waiting]):
    """Who waits until when. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, on_over: Callable[[_Waiting], object]) -> None:
        """`on_over` is told of each one whose time is over."""
        self._clock, self._loop, self._on_over = context.clock, context.loop, on_over
        self._waiting: dict[int, _Waiting] = {}  # by identity, in the order in which they came
        self._heap: list[tuple[float, int, _Waiting]] = []
        self._order = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._waiting)

    def all(self) -> list[_Waiting]:
        """Return all that wait, those that came first first."""
        return list(self._waiting.values())

    def add(self, waiting: _Waiting) -> None:
        self._waiting[id(waiting)] = waiting
        heapq.heappush(self._heap, (waiting.deadline_ms, next(self._order), waiting))
        self._set_timer()

    def remove(self, waiting: _Waiting) -> None:
        """Forget one that waits no more."""
        self._waiting.pop(id(waiting), None)
        if len(self._heap) > 2 * len(self._waiting) + _GONE_MAX:
            self._heap = [entry for entry in self._heap if self._waits(entry[2])]
            heapq.heapify(self._heap)

    def expire(self) -> None:
        """Tell of those whose time is over."""
        self._timer = None
        now = self._clock.monotonic_ms()
        while self._heap and (self._heap[0][0] <= now or not self._waits(self._heap[0][2])):
            _, _, waiting = heapq.heappop(self._heap)
            if self._waits(waiting):
                self._on_over(waiting)
        self._set_timer()

    def clear(self) -> None:
        """Forget all."""
        self._waiting.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _waits(self, waiting: _Waiting) -> bool:
        return id(waiting) in self._waiting  # whoever stands in the heap keeps its identity

    def _set_timer(self) -> None:
        """Have `expire` called at the earliest deadline."""
        while self._heap and not self._waits(self._heap[0][2]):
            heapq.heappop(self._heap)
        if not self._heap:
            return
        deadline_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return  # at worst it comes too early and is set again
            self._timer.cancel()
        wait_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(wait_ms / 1000, self.expire)
