"""Find the record that starts at a log offset which somebody names: a message id, a peer, an index entry.

What the bytes there say of themselves proves nothing. A body may hold a whole record that is right in
every field: who sends messages can foretell where the next one lies. Only two things know where records
start: the unit of a queue, which dispatch made, and the chain of records from a place that is known to
start one. The unit is asked first, one small read. A record without one (a half message, one of a deleted
topic, one that is not dispatched yet) is proved by walking the log up to it.

Places that walks came through are remembered, so that all walks over a segment together cost little more
than reading it once, whoever asks.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.cq_unit import UNIT
from orbitmq.format.record import BLANK, MAGIC_V1, MAGIC_V2, OVERHEAD_BYTES, Record, decode_record
from orbitmq.store.log.log_reader import LogReader
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues

STEP_RECORDS: Final = 1024
"""Of so many records that a walk passes, one is remembered."""

_MAGICS: Final = (MAGIC_V1, MAGIC_V2)


class RecordFinder:
    """Finds records of one store. Any thread may call it."""

    def __init__(
        self,
        log: LogReader,
        queues: ConsumeQueues,
        batch_queues: BatchQueues,
        *,
        dispatched_offset: Callable[[], int],
    ) -> None:
        self._log = log
        self._queues, self._batch_queues = queues, batch_queues
        self._dispatched_offset = dispatched_offset
        self._lock = threading.Lock()  # guards the places
        self._places: dict[int, list[int]] = {}  # by segment: where records are known to start

    def find(self, log_offset: int) -> memoryview | None:
        """Return the bytes of the record that starts at this log offset, None if none does."""
        raw = record_shaped(self._log, log_offset)
        if raw is None:
            return None
        try:
            record = decode_record(raw, check_crc=False)
        except FormatError:
            return None
        if self._has_unit(record, log_offset):
            return raw
        named = record.log_offset == log_offset
        return raw if named and self._is_met(log_offset) else None

    def _has_unit(self, record: Record, log_offset: int) -> bool:
        place = record.topic, record.queue_id
        number = self._queues.find(*place)
        if number >= 0:
            data = self._queues.read_units(number, record.queue_offset, 1)
            return bool(data) and UNIT.unpack(data)[:2] == (log_offset, record.size)
        number = self._batch_queues.find(*place)
        if number < 0:
            return False
        units = self._batch_queues.read_units(number, record.queue_offset, 1)
        return bool(units) and (units[0].log_offset, units[0].size) == (log_offset, record.size)

    def _is_met(self, log_offset: int) -> bool:
        """Tell whether the chain of records comes by this offset."""
        for base, data, end, _ in self._log.iter_ranges(log_offset, log_offset + 1):
            at, passed = self._nearest(base, log_offset) - base, 0
            while at < end:
                size, magic = BLANK.unpack_from(data.data, at)
                if magic not in _MAGICS or size < OVERHEAD_BYTES:
                    return False
                at += size
                passed += 1
                if passed % STEP_RECORDS == 0:
                    self._remember(base, base + at)
            return at == end
        return False

    def _nearest(self, base: int, log_offset: int) -> int:
        """Return the last place up to `log_offset` where a record is known to start."""
        dispatched = self._dispatched_offset()
        with self._lock:
            places = self._places.get(base, [])
            index = bisect_right(places, log_offset)
            nearest = places[index - 1] if index else base
        return dispatched if nearest < dispatched <= log_offset else nearest

    def _remember(self, base: int, log_offset: int) -> None:
        with self._lock:
            for gone in [known for known in self._places if known < self._log.min_offset]:
                del self._places[gone]
            places = self._places.setdefault(base, [])
            index = bisect_right(places, log_offset)
            if not index or places[index - 1] != log_offset:
                places.insert(index, log_offset)


def record_shaped(log: LogReader, log_offset: int) -> memoryview | None:
    """Return the bytes from a log offset on that its size field spans, if they look like a record.

    None of them lies past what readers may see.
    """
    head = log.read(log_offset, BLANK.size)
    if head is None:
        return None
    size, magic = BLANK.unpack(head)
    if magic not in _MAGICS or size < OVERHEAD_BYTES:
        return None
    if log_offset + size > log.visible_offset():
        return None
    return log.read(log_offset, size)
