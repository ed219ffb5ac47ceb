"""PopProgress: how far each group has popped each queue, and how far that may be saved.

A pop moves on at once: the next one reads behind it. The consumer offset follows when what the pop took
cannot be lost any more: its check point is on disk, or all of its messages are acknowledged. Steps of one
queue are committed in their order.
"""

from collections import deque
from dataclasses import dataclass
from typing import Final

from orbitmq.broker.context import BrokerContext

NOWHERE: Final = -1

QueueKey = tuple[str, str, int]
"""Group, topic, queue id."""


@dataclass(slots=True, eq=False)
class Step:
    """One pop of a queue."""

    next_offset: int
    end_offset: int | None  # the log must be flushed so far; None: it is not known yet


class PopProgress:
    """The steps of all queues that are not committed. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext) -> None:
        self._store, self._offsets = context.store, context.offsets
        self._queues: dict[QueueKey, deque[Step]] = {}

    @property
    def is_settled(self) -> bool:
        return not self._queues

    def queues(self) -> list[QueueKey]:
        """Return the queues that have steps."""
        return list(self._queues)

    def position(self, key: QueueKey) -> int:
        """Return where the next pop of the queue reads if steps are pending; -1: at the consumer offset."""
        steps = self._queues.get(key)
        return steps[-1].next_offset if steps is not None else NOWHERE

    def step_count(self, key: QueueKey) -> int:
        return len(self._queues.get(key, ()))

    def add(self, key: QueueKey, next_offset: int, end_offset: int | None) -> Step:
        """Note a step. It is committed when the log is flushed up to `end_offset`; None: that comes later."""
        step = Step(next_offset, end_offset)
        self._queues.setdefault(key, deque()).append(step)
        self.settle(key)
        return step

    def settle(self, key: QueueKey) -> None:
        """Commit what may be committed of one queue."""
        steps = self._queues.get(key)
        if steps is None:
            return
        flushed, last = self._store.flushed_offset, None
        while steps and steps[0].end_offset is not None and steps[0].end_offset <= flushed:
            last = steps.popleft()
        if last is not None:
            self._offsets.commit(*key, last.next_offset)
        if not steps:
            del self._queues[key]

    def settle_all(self) -> None:
        for key in self.queues():
            self.settle(key)

    def forget(self, key: QueueKey) -> None:
        """Drop the steps of a queue: somebody has set the group's offset."""
        self._queues.pop(key, None)
