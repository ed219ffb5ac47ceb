"""Find a queue offset by store time.

In a simple queue the store time is not in the unit: it is read from the record. So first the file is
chosen by the times of its first and last unit, then the unit by halving. Answers are RocketMQ's,
odd ones included; a queue offset below the min or above the next offset is moved to that.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orbitmq.format.cq_unit import PADDING_SIZE, UNIT
from orbitmq.message import Boundary
from orbitmq.store.log.log_reader import RecordReader, store_ms_of
from orbitmq.store.queues.batch_queue import BatchQueues, Units
from orbitmq.store.queues.unit_source import UnitSource


def offset_by_time(
    queues: UnitSource, log: RecordReader, number: int, time_ms: int, boundary: Boundary
) -> int:
    """Return the queue offset that a store time stands for.

    LOWER: the first message at or after it; UPPER: the last message at or before it.
    """
    low, high = queues.min_offset(number), queues.next_offset(number)
    if low >= high:
        return low
    found = _Search(queues, log, number, low, high).run(time_ms, boundary)
    return min(max(found, low), high)


@dataclass(slots=True)
class _Search:
    """One search in one queue, over units [low, high)."""

    _queues: UnitSource
    _log: RecordReader
    _number: int
    _low: int
    _high: int

    def run(self, time_ms: int, boundary: Boundary) -> int:
        chosen = self._choose_file(time_ms, boundary)
        if chosen is None:
            return 0
        file_units = self._queues.file_units
        floor = max(self._low, chosen * file_units)
        ceiling = min(self._high, (chosen + 1) * file_units) - 1
        last_ms, first_ms = self._store_ms(ceiling), self._store_ms(floor)
        if last_ms is not None and last_ms < time_ms:
            return ceiling + 1 if boundary is Boundary.LOWER else ceiling
        if first_ms is not None and first_ms > time_ms:
            return chosen * file_units if boundary is Boundary.LOWER else 0
        if boundary is Boundary.LOWER:
            return self._first(floor, ceiling + 1, lambda store_ms: store_ms >= time_ms)
        after = self._first(floor, ceiling + 1, lambda store_ms: store_ms > time_ms)
        return after - 1

    def _choose_file(self, time_ms: int, boundary: Boundary) -> int | None:
        """Return the number of the file to search in, by halving over the files' times."""
        file_units = self._queues.file_units
        first, last = self._low // file_units, (self._high - 1) // file_units
        if boundary is Boundary.LOWER:
            # The first whose last message is not older, else the last one.
            while first < last:
                middle = (first + last) // 2
                stop = self._store_ms((middle + 1) * file_units - 1)
                if stop is not None and stop >= time_ms:
                    last = middle
                else:
                    first = middle + 1
            return first
        # The last whose first message is not younger.
        chosen = None
        while first <= last:
            middle = (first + last) // 2
            start = self._store_ms(max(middle * file_units, self._low))
            if start is None or start <= time_ms:
                chosen = middle
                first = middle + 1
            else:
                last = middle - 1
        return chosen

    def _first(self, low: int, high: int, holds: Callable[[int], bool]) -> int:
        """Return the first unit in [low, high) whose store time holds, `high` if there is none."""
        while low < high:
            middle = (low + high) // 2
            store_ms = self._store_ms(middle)
            if store_ms is not None and holds(store_ms):
                high = middle
            else:  # earlier, or no longer in the log: too early as well
                low = middle + 1
        return low

    def _store_ms(self, queue_offset: int) -> int | None:
        """Return the store time of a unit's record; of padding, that of the next real unit."""
        while queue_offset < self._high:
            data = self._queues.read_units(self._number, queue_offset, 1)
            if not data:
                return None
            log_offset, size, _ = UNIT.unpack(data)
            if size != PADDING_SIZE:
                return store_ms_of(self._log, log_offset, size)
            queue_offset += 1
        return None


# --- batch queues: their units hold the time ---


def batch_offset_by_time(queues: BatchQueues, number: int, time_ms: int, boundary: Boundary) -> int:
    """Return the queue offset that a store time stands for; see `offset_by_time`.

    The file is chosen by its first unit's time alone, so between two files the last unit of the earlier one
    is the answer; and UPPER, for a time between two units, gives the unit after it or none at all (the
    queue's min), as RocketMQ's way of halving happens to end.
    """
    low, high = queues.min_offset(number), queues.next_offset(number)
    units = _choose_batch_file(queues, number, time_ms)
    found = -1
    if units is not None:
        index = _search_batch(units["store_ms"].tolist(), time_ms, boundary)
        found = int(units["base_offset"][index]) if index is not None else -1
    return min(max(found, low), high)


def _choose_batch_file(queues: BatchQueues, number: int, time_ms: int) -> Units | None:
    """Return the units of the last file whose first unit is not younger, None if all are."""
    first, end = queues.unit_range(number)
    low, high = first // queues.file_units, -(-end // queues.file_units)
    while low < high:
        middle = (low + high) // 2
        unit = queues.read_raw(number, middle * queues.file_units, 1)
        if len(unit) and unit["store_ms"][0] <= time_ms:
            low = middle + 1
        else:
            high = middle
    if low == first // queues.file_units:
        return None
    return queues.read_raw(number, (low - 1) * queues.file_units, queues.file_units)


def _search_batch(times: list[int], time_ms: int, boundary: Boundary) -> int | None:
    left, right = 0, len(times) - 1
    if time_ms >= times[right]:
        return right
    if boundary is Boundary.LOWER:
        while left < right:
            middle = (left + right) // 2
            if times[middle] < time_ms:
                left = middle + 1
            else:
                right = middle
        return left
    while right - left > 1:
        middle = (left + right) // 2
        if times[middle] <= time_ms:
            left = middle
        else:
            right = middle - 1
    return next((index for index in (left, right) if times[index] >= time_ms), None)
