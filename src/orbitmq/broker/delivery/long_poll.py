"""Long polls: pulls that found nothing new and wait for something, or for their time to be over.

A parked pull is tried again when its queue grew, when somebody wakes the queue (an offset reset, a
deleted topic, the end of the broker) and, for the last time, at its deadline. Messages that it does not
want leave it parked; it remembers up to where it has looked.

Dispatch runs in a thread of the store: it only leaves the numbers of the queues that grew. All else
happens in the event loop's thread.
"""

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any, Final, Protocol

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.deadlines import Deadlines
from orbitmq.net.connection import Connection
from orbitmq.units import KiB

logger = logging.getLogger(__name__)

_NAMES_MAX: Final = 100_000
CATCH_UP_BYTES: Final = 64 * KiB
"""So much the loop dispatches itself: what was just sent can be read."""
CONVERSATION_MS: Final = 5
"""So long after a message that somebody waited for the next one is expected to be one too."""
REST_MS: Final = 10
"""So long a message that nobody waits for, as a stored reply, is left for the next round."""
_LOOK_AT_QUEUES: Final = 64
"""Of more parked pulls none is asked: a round costs less."""


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


class OtherPolls(Protocol):
    """Requests that wait for messages, and are no pulls of one queue."""

    def __len__(self) -> int:
        """Return how many wait."""

    def look(self, grown: Collection[tuple[str, int | None]]) -> None:
        """Try those that wait for one of these queues; None: of any queue of the topic."""

    def wake_all(self) -> None:
        """Answer all as things are now."""

    def stop(self) -> None:
        """Answer all; from now on nobody waits."""


class LongPoll:
    """The parked pulls of one broker. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._clock, self._loop = context.store, context.clock, context.loop
        self._queues: dict[tuple[str, int], dict[int, Parked]] = {}
        self._by_connection: dict[Connection, dict[int, Parked]] = {}
        self.deadlines = Deadlines[Parked](context, partial(self._attempt, last=True))
        self._names: dict[int, tuple[str, int]] = {}
        self._grown: deque[Iterable[Any]] = deque()  # filled by the dispatching thread
        self._wake_pending = False  # the loop has been asked to look at it
        self._thread = threading.get_ident()
        self._round_pending = False  # the loop dispatches in its next turn
        self._rest_timer: asyncio.TimerHandle | None = None  # for what nobody waits for
        self._woke_at_ms = -math.inf  # when a queue grew that somebody waited for
        self._stopped = False
        self.others: list[OtherPolls] = []
        """Those who wait for messages in another way, and hear of queues that grew too."""
        context.store.on_dispatched(self._on_dispatched)
        context.store.watch_dispatch(self._is_awaited)
        context.store.offer_dispatch(self._takes_over)
        context.on_close.append(self.drop)

    @property
    def count(self) -> int:
        """How many pulls are parked."""
        return len(self.deadlines)

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
        if self._stopped:
            self._attempt(parked, last=True)
            return
        self._queues.setdefault((parked.topic, parked.queue_id), {})[id(parked)] = parked
        self._by_connection.setdefault(parked.connection, {})[id(parked)] = parked
        self.deadlines.add(parked)
        # Dispatch may have passed between the look and the parking; it did not tell of it.
        self._attempt_if_grown(parked)
        if not parked.done:
            self._store.wake_dispatch(parked.topic, parked.queue_id, parked.offset)

    def wake(self, topic: str, queue_id: int | None = None) -> None:
        """Answer all pulls of a topic, or of one of its queues, as things are now."""
        for key in [key for key in self._queues if key[0] == topic]:
            if queue_id is None or key[1] == queue_id:
                for parked in list(self._queues.get(key, {}).values()):
                    self._attempt(parked, last=True)
        for others in self.others:
            others.look([(topic, queue_id)])

    def wake_all(self) -> None:
        """Answer all pulls as things are now."""
        for parked in self.deadlines.all():
            self._attempt(parked, last=True)
        for others in self.others:
            others.wake_all()

    def stop(self) -> None:
        """Answer all; from now on every pull is answered at once."""
        self._stopped = True
        self.wake_all()
        for others in self.others:
            others.stop()
        self.deadlines.clear()
        if self._rest_timer is not None:
            self._rest_timer.cancel()

    def drop(self, connection: Connection) -> None:
        """Forget the pulls of a connection that is gone."""
        for parked in list(self._by_connection.get(connection, {}).values()):
            self._remove(parked)

    # --- queues that grew ---

    def _is_awaited(self) -> bool:
        return bool(self._queues) or any(map(len, self.others))

    def _on_dispatched(self, numbers: Iterable[Any]) -> None:
        """Called in the dispatching thread, which may be the loop's."""
        if not self._is_awaited():
            return
        self._grown.append(numbers)
        if not self._wake_pending:
            self._wake_pending = True
            is_own = threading.get_ident() == self._thread  # then the loop need not be woken
            call = self._loop.call_soon if is_own else self._loop.call_soon_threadsafe
            try:
                call(self.look)
            except RuntimeError:
                self._wake_pending = False  # the loop is closed: nobody waits any more

    def _takes_over(self) -> bool:
        """Called in any thread after an append: does the loop dispatch it?

        It does while what is appended is what somebody waits for, as in a conversation: to wake a thread
        and to be woken by it takes longer than the round. Else appends come first. Who has just got
        something is about to wait again, so nobody need be parked this very moment.
        """
        if (
            threading.get_ident() != self._thread
            or self._clock.monotonic_ms() - self._woke_at_ms > CONVERSATION_MS
        ):
            return False
        if not self._round_pending:
            self._round_pending = True
            self._loop.call_soon(self._dispatch_awaited)
        return True

    def _dispatch_awaited(self) -> None:
        """Dispatch what somebody waits for, and all else with it; if there is nothing, do it later."""
        self._round_pending = False
        if self._has_awaited():
            self._dispatch()
        elif self._rest_timer is None:
            self._rest_timer = self._loop.call_later(REST_MS / 1000, self._dispatch)

    def _has_awaited(self) -> bool:
        """Tell whether something that is not dispatched may be what somebody waits for."""
        if len(self._queues) > _LOOK_AT_QUEUES or any(map(len, self.others)):
            return True
        behind = self._store.is_undispatched
        return any(
            behind(topic, queue_id, parked.offset)
            for (topic, queue_id), waiting in self._queues.items()
            for parked in waiting.values()
        )

    def _dispatch(self) -> None:
        if self._rest_timer is not None:
            self._rest_timer.cancel()
            self._rest_timer = None
        if not self._store.catch_up(CATCH_UP_BYTES):
            self._store.wake_dispatch()  # it is much, or the thread is at it

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
                self._woke_at_ms = self._clock.monotonic_ms()
                for parked in list(waiting.values()):
                    self._attempt_if_grown(parked)
        for others in self.others:
            if len(others):
                others.look(grown)

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
        self.deadlines.remove(parked)
        _discard(self._queues, (parked.topic, parked.queue_id), parked)
        _discard(self._by_connection, parked.connection, parked)


def _discard(table: dict[Any, dict[int, Parked]], key: object, parked: Parked) -> None:
    kept = table.get(key)
    if kept is not None:
        kept.pop(id(parked), None)
        if not kept:
            del table[key]
