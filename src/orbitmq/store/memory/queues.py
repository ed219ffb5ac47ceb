"""The queues of topics in memory: 20-byte units as in a consume queue's file, and nothing else.

Read as `ConsumeQueues` are (`UnitSource`), so that one reader serves both.
"""

from collections.abc import Iterator
from typing import Final

from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.store.queues.batch_queue import BatchQueues

_ONE_FILE: Final = 1 << 62  # no queue gets so long


class MemoryQueue:
    """One queue: the units of its messages from `first` on."""

    __slots__ = ("first", "number", "queue_id", "reserved", "topic", "units")

    def __init__(self, topic: str, queue_id: int, number: int, first: int) -> None:
        self.topic, self.queue_id, self.number = topic, queue_id, number
        self.first = first  # the min offset
        self.reserved = first  # offsets below it are on disk as used
        self.units = bytearray()

    @property
    def next_offset(self) -> int:
        return self.first + len(self.units) // UNIT_BYTES

    def drop(self, count: int) -> None:
        """Forget the oldest messages."""
        del self.units[: count * UNIT_BYTES]
        self.first += count


class MemoryQueues:
    """All queues, numbered from 0. A number is never given to another queue."""

    file_units: Final = _ONE_FILE

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, int], int] = {}
        self._all: list[MemoryQueue] = []

    def __iter__(self) -> Iterator[MemoryQueue]:
        return (self._all[number] for number in self._numbers.values())

    def __getitem__(self, number: int) -> MemoryQueue:
        return self._all[number]

    def add(self, topic: str, queue_id: int, first: int = 0) -> MemoryQueue:
        """Return the queue, a new one if there is none."""
        number = self.find(topic, queue_id)
        if number < 0:
            number = self._numbers[topic, queue_id] = len(self._all)
            self._all.append(MemoryQueue(topic, queue_id, number, first))
        return self._all[number]

    def remove_topic(self, topic: str) -> bool:
        """Forget a topic's queues; tell whether there were any."""
        gone = [key for key in self._numbers if key[0] == topic]
        for key in gone:
            self._all[self._numbers.pop(key)].units.clear()
        return bool(gone)

    def find(self, topic: str, queue_id: int) -> int:
        return self._numbers.get((topic, queue_id), -1)

    def min_offset(self, number: int) -> int:
        return self._all[number].first

    def next_offset(self, number: int) -> int:
        return self._all[number].next_offset

    def read_units(self, number: int, first: int, count: int) -> bytes:
        """Return up to `count` units from queue offset `first` on."""
        queue = self._all[number]
        start = (first - queue.first) * UNIT_BYTES
        return bytes(queue.units[start : start + count * UNIT_BYTES]) if start >= 0 else b""


class NoBatchQueues(BatchQueues):
    """What a reader asks for batch queues where there are none."""

    def __init__(self) -> None:
        """Have no files."""

    def find(self, topic: str, queue_id: int) -> int:
        return -1
