"""Find a queue offset by store time in a batch queue.

The answers are RocketMQ's, and some of them are odd: the file is chosen by its first unit's time alone, so
between two files the last unit of the earlier one is the answer; and UPPER, for a time between two units,
gives the unit after it or none at all (the queue's min), as its way of halving happens to end.
"""

from orbitmq.message import Boundary
from orbitmq.store.queues.batch_queue import BatchQueues, Units


def batch_offset_by_time(queues: BatchQueues, number: int, time_ms: int, boundary: Boundary) -> int:
    """Return the queue offset that a store time stands for; see `time_search.offset_by_time`."""
    low, high = queues.min_offset(number), queues.next_offset(number)
    units = _choose_file(queues, number, time_ms)
    found = -1
    if units is not None:
        index = _search(units["store_ms"].tolist(), time_ms, boundary)
        found = int(units["base_offset"][index]) if index is not None else -1
    return min(max(found, low), high)


def _choose_file(queues: BatchQueues, number: int, time_ms: int) -> Units | None:
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


def _search(times: list[int], time_ms: int, boundary: Boundary) -> int | None:
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
