"""Which records groups and delayed messages still need: the store can keep those (waitForReaders=groups).

A group needs what lies behind each offset that it has committed; of queues of which it has none, nothing.
The broker itself needs the delayed messages that are not delivered yet, and those that wait in the timer
wheel. It runs in the store's cleaning thread and takes copies of the loop's tables, each in one step.
"""

from collections.abc import Iterator

from orbitmq.broker.delivery.schedule import Schedule
from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
from orbitmq.message import SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.store.readers import Unread
from orbitmq.store.store import MessageStore
from orbitmq.store.timer.timer_store import TimerStore


class GroupReaders:
    """Tells the first record that somebody has not read."""

    def __init__(
        self,
        store: MessageStore,
        offsets: ConsumerOffsets,
        schedule: Schedule,
        timers: TimerStore | None = None,
    ) -> None:
        self._store, self._offsets, self._schedule = store, offsets, schedule
        self._timers = timers

    def first_unread(self) -> Unread | None:
        """Return the first needed record and who needs it; None: all is read."""
        return min((*self._by_groups(), *self._by_schedule(), *self._by_timers()), default=None)

    def _by_groups(self) -> Iterator[Unread]:
        for (topic, group), row in list(self._offsets.all().items()):
            for queue_id, offset in dict(row).items():
                reader = f"group {group} at offset {offset} of queue {queue_id} of topic {topic}"
                yield from self._unread(topic, queue_id, offset, reader)

    def _by_schedule(self) -> Iterator[Unread]:
        for level, (offset, _) in self._schedule.progress().items():
            reader = f"delayed messages of level {level} from offset {offset} on"
            yield from self._unread(SCHEDULE_TOPIC, level - 1, offset, reader)

    def _by_timers(self) -> Iterator[Unread]:
        if self._timers is None:
            return
        offset = self._timers.queue_offset
        yield from self._unread(TIMER_TOPIC, 0, offset, f"timer messages from offset {offset} on")
        first = self._timers.first_needed()
        if first is not None and first >= self._store.min_log_offset:
            yield Unread(first, "a message in the timer wheel")

    def _unread(self, topic: str, queue_id: int, offset: int, reader: str) -> Iterator[Unread]:
        store = self._store
        first = max(offset, store.min_offset(topic, queue_id))
        if first < store.max_offset(topic, queue_id):
            for unit in store.units(topic, queue_id, first, 1):
                yield Unread(unit.log_offset, reader)
