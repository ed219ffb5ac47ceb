"""The reading side of topics in memory: the same questions as to a store on disk, and the same answers."""

import re
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.cq_unit import UNIT, CqUnit, decode_units
from orbitmq.format.record import BLANK, Record, decode_record
from orbitmq.message import Boundary
from orbitmq.store.log.log_reader import store_ms_of
from orbitmq.store.memory.queues import MemoryQueues
from orbitmq.store.memory.slabs import MemoryLog, Slab, TopicRecords
from orbitmq.store.queues.time_search import offset_by_time
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.read import TOTAL_BYTES_MAX, QueueReader
from orbitmq.store.reads.tag_filter import MessageFilter

NO_TIME: Final = -1


class MemoryReads:
    """What topics in memory hold. Any thread may ask; `_lock` is held for that moment."""

    _reader: QueueReader

    def __init__(self, lock: threading.Lock, queues: MemoryQueues, log: MemoryLog) -> None:
        self._lock, self._queues, self._log = lock, queues, log
        self._topics: dict[str, TopicRecords] = {}

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = TOTAL_BYTES_MAX,
        filter: MessageFilter | None = None,  # noqa: A002
    ) -> GetResult:
        """Return messages of a queue from an offset on; the records stay as they are, evicted or not."""
        with self._lock:
            return self._reader.get(
                topic, queue_id, offset, max_count, max_bytes=max_bytes, filter=filter
            )

    def record_bytes(self, log_offset: int) -> memoryview | None:
        """Return the record that starts at this log offset: a unit must lead to it."""
        with self._lock:
            slab = self._log.find(log_offset)
            if slab is None or not slab.first <= log_offset - slab.base < slab.used:
                return None
            at = log_offset - slab.base
            try:
                record = decode_record(slab.view[at : slab.used], check_crc=False)
            except FormatError:
                return None
            return slab.view[at : at + record.size] if self._leads(record, log_offset) else None

    def _leads(self, record: Record, log_offset: int) -> bool:
        number = self._queues.find(record.topic, record.queue_id)
        units = self._queues.read_units(number, record.queue_offset, 1) if number >= 0 else b""
        return bool(units) and UNIT.unpack(units)[0] == log_offset

    def query(
        self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int
    ) -> list[memoryview]:
        """Return the newest records with this key or unique key, in order; all of the topic is looked at."""
        pattern = re.compile(re.escape(key.encode()))
        found: list[memoryview] = []
        with self._lock:
            records = self._topics.get(topic)
            for slab in reversed(records.slabs if records is not None else ()):
                hits = (match.start() for match in pattern.finditer(slab.view[: slab.used]))
                of_slab = [
                    raw for raw in _records_at(slab, hits) if _has(raw, key, begin_ms, end_ms)
                ]
                found = of_slab + found
                if len(found) >= max_count:
                    break
        return found[-max_count:] if max_count > 0 else []

    def min_offset(self, topic: str, queue_id: int) -> int:
        number = self._queues.find(topic, queue_id)
        return self._queues.min_offset(number) if number >= 0 else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        number = self._queues.find(topic, queue_id)
        if number < 0:
            return 0
        with self._lock:
            return self._queues.next_offset(number)

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        number = self._queues.find(topic, queue_id)
        if number < 0:
            return 0
        with self._lock:
            return offset_by_time(self._queues, self._log, number, time_ms, boundary)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        units = self.units(topic, queue_id, queue_offset, 1)
        store_ms = store_ms_of(self._log, units[0].log_offset, units[0].size) if units else None
        return NO_TIME if store_ms is None else store_ms

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[CqUnit]:
        number = self._queues.find(topic, queue_id)
        if number < 0 or count <= 0:
            return []
        with self._lock:
            return decode_units(self._queues.read_units(number, offset, count))

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue."""
        with self._lock:
            return [(queue.topic, queue.queue_id) for queue in self._queues]

    def queue_number(self, topic: str, queue_id: int) -> int:
        return self._queues.find(topic, queue_id)

    def queue_name(self, number: int) -> tuple[str, int]:
        queue = self._queues[number]
        return queue.topic, queue.queue_id


def _records_at(slab: Slab, hits: Iterable[int]) -> Iterator[memoryview]:
    """Yield the records that hold these positions, each once."""
    start = end = slab.first
    for hit in hits:
        if hit < end:  # the last one again, or one that is gone
            continue
        while end <= hit:
            start = end
            end += BLANK.unpack_from(slab.view, start)[0]
        yield slab.view[start:end]


def _has(raw: memoryview, key: str, begin_ms: int, end_ms: int) -> bool:
    record = decode_record(raw, check_crc=False)
    if not begin_ms <= record.store_ms <= end_ms:
        return False
    return key == record.unique_key or key in record.keys
