"""The queues of topics in memory: 20-byte units as in a consume queue's file, and nothing else.

Read as `ConsumeQueues` are (`UnitSource`), so that one reader serves both. Units are made when somebody
asks for one, or when enough records have come together: for many at once they cost little.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from orbitmq.format.columns import ScanOptions
from orbitmq.format.cq_unit import UNIT, UNIT_BYTES, UNIT_DTYPE, tag_hash
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import BLANK, decode_record
from orbitmq.store.memory.slabs import Slab
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.units import MiB

_ONE_FILE: Final = 1 << 62  # no queue gets so long
_WAITING_BYTES_MAX: Final = 1 * MiB
"""So many bytes of records may be without units: whoever reads next has to wait for them."""
_SCAN: Final = ScanOptions()


class MemoryQueue:
    """One queue: its messages from `first` on. The last of them may still be without their units."""

    __slots__ = ("first", "next_offset", "number", "queue_id", "reserved", "topic", "units")

    def __init__(self, topic: str, queue_id: int, number: int, first: int) -> None:
        self.topic, self.queue_id, self.number = topic, queue_id, number
        self.first = self.next_offset = first  # the min offset and the max offset
        self.reserved = first  # offsets below it are on disk as used
        self.units = bytearray()

    def drop(self, count: int) -> None:
        """Forget the oldest messages."""
        del self.units[: count * UNIT_BYTES]
        self.first += count


class MemoryQueues:
    """All queues, numbered from 0. A number is never given to another queue."""

    file_units: Final = _ONE_FILE

    def __init__(self, kernels: Callable[[], Kernels]) -> None:
        self._kernels = kernels
        self._numbers: dict[tuple[str, int], int] = {}
        self._all: list[MemoryQueue] = []
        self._waiting: dict[Slab, str] = {}  # slabs with records without units, and their topics
        self._waiting_bytes = 0

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

    def written(self, topic: str, slab: Slab, size: int) -> None:
        """Note records of so many bytes at the end of a slab; the next offsets count them already."""
        self._waiting[slab] = topic
        self._waiting_bytes += size
        if self._waiting_bytes > _WAITING_BYTES_MAX:
            self.make_units()

    def make_units(self) -> None:
        """Give every record its unit."""
        if not self._waiting:
            return
        for slab, topic in self._waiting.items():
            self._make_units(topic, slab)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _make_units(self, topic: str, slab: Slab) -> None:
        start, end = slab.with_units, slab.used
        slab.with_units = end
        if BLANK.unpack_from(slab.view, start)[0] == end - start:  # hardly worth a kernel
            record = decode_record(slab.view[start:end], check_crc=False)
            unit = UNIT.pack(slab.base + start, end - start, tag_hash(record.tags))
            self._all[self._numbers[topic, record.queue_id]].units += unit
            return
        rows = self._kernels().scan(slab.data, start, end, slab.base, _SCAN).rows
        rows = rows[np.argsort(rows["queue_id"], kind="stable")]
        units = np.empty(len(rows), dtype=UNIT_DTYPE)
        for name in UNIT_DTYPE.names or ():
            units[name] = rows[name]
        data, at = units.tobytes(), 0
        queue_ids, counts = np.unique(rows["queue_id"], return_counts=True)
        for queue_id, count in zip(queue_ids.tolist(), counts.tolist(), strict=True):
            length = count * UNIT_BYTES
            self._all[self._numbers[topic, queue_id]].units += data[at : at + length]
            at += length

    def min_offset(self, number: int) -> int:
        return self._all[number].first

    def next_offset(self, number: int) -> int:
        return self._all[number].next_offset

    def read_units(self, number: int, first: int, count: int) -> bytes:
        """Return up to `count` units from queue offset `first` on."""
        self.make_units()
        queue = self._all[number]
        start = (first - queue.first) * UNIT_BYTES
        return bytes(queue.units[start : start + count * UNIT_BYTES]) if start >= 0 else b""


class NoBatchQueues(BatchQueues):
    """What a reader asks for batch queues where there are none."""

    def __init__(self) -> None:
        """Have no files."""

    def find(self, topic: str, queue_id: int) -> int:
        return -1
