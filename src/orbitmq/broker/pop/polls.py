"""PopPolls: pops that found nothing and wait for something, or for their time to be over.

They wait by topic, group and queue (-1: any). When a queue of the topic grew, or one of the group's retry
topic, the one that waits longest is tried, and the next one as long as messages are left. A request that was
tried for the last time is answered, whatever it found.
"""

import logging
from collections.abc import Callable, Collection
from enum import Enum
from functools import partial
from typing import TypeVar

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.deadlines import Deadlines
from orbitmq.broker.pop.progress import QueueKey
from orbitmq.net.connection import Connection
from orbitmq.wire.receipt import retry_topic_v1, retry_topic_v2

logger = logging.getLogger(__name__)

_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


class Tried(Enum):
    """What came of trying a request that waits."""

    NOTHING = "nothing"  # it goes on waiting
    ANSWERED = "answered"
    ANSWERED_ALL = "answered, and nothing is left for the next"


class PollResult(Enum):
    """Whether a request waits."""

    PARKED = "parked"
    FULL = "too many wait"
    TIME_OVER = "its time is over"


class Poll:
    """A request that waits. `attempt(last)` tries it again."""

    __slots__ = ("attempt", "connection", "deadline_ms", "done", "key")

    def __init__(
        self,
        connection: Connection,
        key: QueueKey,
        deadline_ms: float,
        attempt: Callable[[bool], Tried],
    ) -> None:
        self.connection, self.key = connection, key
        self.deadline_ms = deadline_ms  # by the monotonic clock
        self.attempt = attempt
        self.done = False


class PopPolls:
    """The requests of one kind that wait. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, *, newest_first: bool = False) -> None:
        self._context, self._config, self._clock = context, context.config, context.clock
        self._newest_first = newest_first
        self._polls: dict[QueueKey, dict[int, Poll]] = {}
        self._keys_of: dict[str, set[QueueKey]] = {}  # by topic, retry topics too
        self._by_connection: dict[Connection, set[Poll]] = {}
        self.deadlines = Deadlines[Poll](context, partial(self._attempt, last=True))
        self._stopped = False
        context.long_poll.others.append(self)
        context.on_close.append(self.drop)

    def __len__(self) -> int:
        return len(self.deadlines)

    def count(self, key: QueueKey) -> int:
        """Return how many wait for this group, topic and queue."""
        return len(self._polls.get(key, ()))

    def park(self, poll: Poll) -> PollResult:
        """Have a request wait, unless there are too many."""
        if self._stopped or poll.deadline_ms <= self._clock.monotonic_ms():
            return PollResult.TIME_OVER
        waiting = self._polls.get(poll.key, {})
        if len(self) >= self._config.pop_polls_max or len(waiting) > self._config.pop_polls_each:
            return PollResult.FULL
        self._polls.setdefault(poll.key, waiting)[id(poll)] = poll
        self._by_connection.setdefault(poll.connection, set()).add(poll)
        for topic in _topics(poll.key):
            self._keys_of.setdefault(topic, set()).add(poll.key)
        self.deadlines.add(poll)
        self._context.store.wake_dispatch()
        return PollResult.PARKED

    # --- waking ---

    def look(self, grown: Collection[tuple[str, int | None]]) -> None:
        """Try those that wait for one of these queues, or for a retry topic; None: for any of the topic."""
        woken: dict[QueueKey, None] = {}
        for topic, queue_id in grown:
            for key in self._keys_of.get(topic, ()):
                if queue_id is None or topic != key[1] or key[2] in (-1, queue_id):
                    woken[key] = None
        for key in woken:
            self.wake(key)

    def wake(self, key: QueueKey) -> None:
        """Try those that wait for this group, topic and queue, as long as something is left."""
        waiting = list(self._polls.get(key, {}).values())
        for poll in reversed(waiting) if self._newest_first else waiting:
            if self._attempt(poll, last=False) is not Tried.ANSWERED:
                break

    def wake_queue(self, group: str, topic: str, queue_id: int) -> None:
        """Try those that wait for any queue, then those that wait for this one."""
        self.wake((group, topic, -1))
        if queue_id >= 0:
            self.wake((group, topic, queue_id))

    def wake_soon(self, key: QueueKey) -> None:
        """Try them after what the loop does now."""
        self._context.loop.call_soon(self.wake, key)

    def wake_all(self) -> None:
        """Answer all as things are now."""
        for poll in self.deadlines.all():
            self._attempt(poll, last=True)

    def stop(self) -> None:
        """Answer all; from now on nobody waits."""
        self._stopped = True
        self.wake_all()
        self.deadlines.clear()

    def drop(self, connection: Connection) -> None:
        """Forget the requests of a connection that is gone."""
        for poll in list(self._by_connection.get(connection, ())):
            self._remove(poll)

    def _attempt(self, poll: Poll, *, last: bool) -> Tried:
        if poll.done:
            return Tried.ANSWERED
        try:
            tried = poll.attempt(last)
        except Exception:
            logger.exception("a pop of %s that waited failed", poll.key)
            tried = Tried.ANSWERED
        if last or tried is not Tried.NOTHING:
            self._remove(poll)
        return tried

    def _remove(self, poll: Poll) -> None:
        if poll.done:
            return
        poll.done = True
        self.deadlines.remove(poll)
        _discard(self._by_connection, poll.connection, poll)
        waiting = self._polls.get(poll.key, {})
        waiting.pop(id(poll), None)
        if not waiting:
            self._polls.pop(poll.key, None)
            for topic in _topics(poll.key):
                _discard(self._keys_of, topic, poll.key)


def _discard(table: dict[_Key, set[_Item]], key: _Key, item: _Item) -> None:
    kept = table.get(key)
    if kept is not None:
        kept.discard(item)
        if not kept:
            del table[key]


def _topics(key: QueueKey) -> tuple[str, str, str]:
    """Return the topics whose messages a request waits for."""
    group, topic, _ = key
    return topic, retry_topic_v1(topic, group), retry_topic_v2(topic, group)
