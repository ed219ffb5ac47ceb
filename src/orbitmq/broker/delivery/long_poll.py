"""Long polls: pulls that found nothing new and wait for something, or for their time to be over.

A parked pull is tried again when its queue grew, when somebody wakes the queue (an offset reset, a
deleted topic, the end of the broker) and, for the last time, at its deadline. Messages that it does not
want leave it parked; it remembers up to where it has looked.

Dispatch runs in a thread of the store: it only leaves the numbers of the queues that grew. All else
happens in the event loop's thread.
"""

import asyncio
import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final

from orbitmq.broker.context import BrokerContext
from orbitmq.net.connection import Connection

logger = logging.getLogger(__name__)

_FORGOTTEN_MAX: Final = 1_000  # answered pulls that may still stand in the heap of deadlines
_NAMES_MAX: Final = 100_000


class Parked:
    """A pull that waits. `attempt(parked, last)` tries it again and tells whether it was answered."""

    __slots__ = ("attempt", "connection", "deadline_ms", "done", "offset", "queue_id", "topic")

    def __init__(
        self,
        connection: Connection,
        topic: str,
        queue_id: int,
        offset: int,
        deadline_ms: float,
        attempt: "Callable[[Parked, bool], bool]",
    ) -> None:
        self.connection, self.topic, self.queue_id = connection, topic, queue_id
        self.offset = offset  # the first queue offset that it has not looked at
        self.deadline_ms = deadline_ms  # by the monotonic clock
        self.attempt = attempt
        self.done = False


class LongPoll:
    """The parked pulls of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        self._queues: dict[tuple[str, int], dict[int, Parked]] = {}
        self._by_connection: dict[Connection, dict[int, Parked]] = {}
        self._deadlines: list[tuple[float, int, Parked]] = []
        self._count = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0.0
        self._order = itertools.count()
        self._names: dict[int, tuple[str, int]] = {}
        self._grown: deque[Iterable[Any]] = deque()  # filled by the dispatching thread
        self._wake_pending = False  # the loop has been asked to look at it
        self._stopped = False
        context.store.on_dispatched(self._on_dispatched)
        context.store.watch_dispatch(lambda: bool(self._queues))
        context.on_close.append(self.drop)

    @property
    def count(self) -> int:
        """How many pulls are parked."""
        return self._count

    def ahead(self) -> list[tuple[Parked, int]]:
        """Return pulls that wait beyond the end of their queue, as when dispatch is behind, and that end."""
        found = []
        for (topic, queue_id), waiting in self._queues.items():
            end = self._store.max_offset(topic, queue_id)
            found += [(parked, end) for parked in waiting.values() if parked.offset > end]
        return found

    def park(self, parked: Parked) -> None:
        """Keep a pull until it is answered; what came since it looked is not missed."""
        if parked.connection.closed:
            return
        key = parked.topic, parked.queue_id
        number = next(self._order)
        self._queues.setdefault(key, {})[id(parked)] = parked
        self._by_connection.setdefault(parked.connection, {})[id(parked)] = parked
        self._count += 1
        heapq.heappush(self._deadlines, (parked.deadline_ms, number, parked))
        if self._stopped:
            self._attempt(parked, last=True)
            return
        # Dispatch may have passed between the look and the parking; it did not tell of it.
        self._attempt_if_grown(parked)
        self._set_timer()
        if not parked.done:
            self._store.wake_dispatch()

    def wake(self, topic: str, queue_id: int | None = None) -> None:
        """Answer all pulls of a topic, or of one of its queues, as things are now."""
        for key in [key for key in self._queues if key[0] == topic]:
            if queue_id is None or key[1] == queue_id:
                for parked in list(self._queues.get(key, {}).values()):
                    self._attempt(parked, last=True)

    def wake_all(self) -> None:
        """Answer all pulls as things are now."""
        for _, _, parked in sorted(self._deadlines, key=lambda entry: entry[1]):
            if not parked.done:
                self._attempt(parked, last=True)

    def stop(self) -> None:
        """Answer all; from now on every pull is answered at once."""
        self._stopped = True
        self.wake_all()
        self._deadlines.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is gone."""
        for parked in list(self._by_connection.get(connection, {}).values()):
            self._remove(parked)

    # --- queues that grew ---

    def _on_dispatched(self, numbers: Iterable[Any]) -> None:
        """Called in the dispatching thread."""
        if not self._queues:
            return
        self._grown.append(numbers)
        if not self._wake_pending:
            self._wake_pending = True
            try:
                self._loop.call_soon_threadsafe(self.look)
            except RuntimeError:
                self._wake_pending = False  # the loop is closed: nobody waits any more

    def look(self) -> None:
        """Try the pulls of all queues that grew."""
        self._wake_pending = False  # first: what is added from here on wakes the loop again
        grown: set[tuple[str, int]] = set()
        while self._grown:
            for number in self._grown.popleft():
                grown.add(self._name(int(number)))
        for key in grown:
            waiting = self._queues.get(key)
            if waiting:
                for parked in list(waiting.values()):
                    self._attempt_if_grown(parked)

    def _name(self, number: int) -> tuple[str, int]:
        name = self._names.get(number)
        if name is None:
            if len(self._names) >= _NAMES_MAX:
                self._names.clear()
            name = self._names[number] = self._store.queue_name(number)
        return name

    def _attempt_if_grown(self, parked: Parked) -> None:
        if self._store.max_offset(parked.topic, parked.queue_id) > parked.offset:
            self._attempt(parked, last=False)

    def _attempt(self, parked: Parked, *, last: bool) -> None:
        if parked.done:
            return
        try:
            answered = parked.attempt(parked, last)
        except Exception:
            logger.exception("a parked pull of %s/%d failed", parked.topic, parked.queue_id)
            answered = True
        if answered or last:
            self._remove(parked)

    def _remove(self, parked: Parked) -> None:
        if parked.done:
            return
        parked.done = True
        self._count -= 1
        _discard(self._queues, (parked.topic, parked.queue_id), parked)
        _discard(self._by_connection, parked.connection, parked)
        if len(self._deadlines) > 2 * self._count + _FORGOTTEN_MAX:
            self._deadlines = [entry for entry in self._deadlines if not entry[2].done]
            heapq.heapify(self._deadlines)

    # --- deadlines ---

    def expire(self) -> None:
        """Answer those whose time is over."""
        self._timer = None
        now = self._clock.monotonic_ms()
        while self._deadlines and (self._deadlines[0][2].done or self._deadlines[0][0] <= now):
            self._attempt(heapq.heappop(self._deadlines)[2], last=True)
        self._set_timer()

    def _set_timer(self) -> None:
        """Have `expire` called at the earliest deadline."""
        while self._deadlines and self._deadlines[0][2].done:
            heapq.heappop(self._deadlines)
        if not self._deadlines:
            return
        deadline_ms = self._deadlines[0][0]
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return  # at worst it comes too early and is set again
            self._timer.cancel()
        wait_ms = max(0.0, deadline_ms - self._clock.monotonic_ms())
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later(wait_ms / 1000, self.expire)


def _discard(table: dict[Any, dict[int, Parked]], key: object, parked: Parked) -> None:
    kept = table.get(key)
    if kept is not None:
        kept.pop(id(parked), None)
        if not kept:
            del table[key]
