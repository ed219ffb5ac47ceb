"""Number queues and group their units, compiled. `plain.queues` says what each step means.

The table is one open-addressing hash table over (topic, queue id): numbers in power-of-two slots,
the rest in arrays by number, topics one after another in an arena.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import ROW, RUN, Bytes, Mark, PackedUnits, Rows
from orbitmq.format.compiled.arrays import frozen, frozen_rows
from orbitmq.format.compiled.jit import helper, kernel
from orbitmq.format.compiled.memory import load_little_u64, prefetch, store_i32, store_i64
from orbitmq.format.compiled.text import same_bytes
from orbitmq.format.cq_unit import UNIT_BYTES

_QUEUE: Final = np.dtype(
    [("hash", "u8"), ("topic_at", "i8"), ("topic_length", "i4"), ("queue_id", "i4")], align=True
)
FIRST_SLOTS: Final = 64
_SLOTS_PER_QUEUE: Final = 2  # at least: probes stay short while no more than half is used
_NO_UNIT: Final = Mark.NO_UNIT
_AHEAD: Final = 8  # rows; their topics lie far apart, so that memory must be asked for early


class QueueTable:
    """Numbers of queues in arrays: about 60 bytes per queue. Not thread-safe."""

    def __init__(self) -> None:
        self._slots = np.full(FIRST_SLOTS, -1, dtype=np.int32)
        self._queues = np.zeros(FIRST_SLOTS // _SLOTS_PER_QUEUE, dtype=_QUEUE)
        self._arena = np.zeros(1024, dtype=np.uint8)
        self._arena_used = 0
        self._count = 0
        self._last_topic = (b"", 0)

    def add(self, topic: bytes, queue_id: int) -> int:
        found, slot, hashed = self._look_up(topic, queue_id)
        if found >= 0:
            return found
        if self._count == len(self._queues):
            self._grow()
            _, slot, hashed = self._look_up(topic, queue_id)
        number = self._count
        self._queues[number] = (hashed, self._topic_place(topic), len(topic), queue_id)
        self._slots[slot] = number
        self._count += 1
        return number

    def find(self, topic: bytes, queue_id: int) -> int:
        return self._look_up(topic, queue_id)[0]

    def resolve(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.int32]:
        found = np.empty(len(rows), dtype=np.int32)
        wanted = frozen_rows(rows, ROW)
        bad = _resolve(frozen(buffer), wanted, self._slots, self._queues, self._arena, found)
        if bad >= 0:
            raise FormatError("a row's topic lies outside the buffer", int(rows[bad]["topic_at"]))
        return found

    def __len__(self) -> int:
        return self._count

    def _look_up(self, topic: bytes, queue_id: int) -> tuple[int, int, int]:
        """Return number or -1, the slot where it is or would be, and the hash."""
        name = np.frombuffer(topic, dtype=np.uint8)
        found: tuple[int, int, int] = _look_up_one(
            name, int(queue_id), self._slots, self._queues, self._arena
        )
        return found

    def _grow(self) -> None:
        self._queues = np.concatenate((self._queues, np.zeros_like(self._queues)))
        self._slots = np.full(len(self._queues) * _SLOTS_PER_QUEUE, -1, dtype=np.int32)
        _fill_slots(self._slots, self._queues, self._count)

    def _topic_place(self, topic: bytes) -> int:
        """Return where the topic lies in the arena; the queues of a topic mostly come together."""
        last, place = self._last_topic
        if last == topic:
            return place
        place, end = self._arena_used, self._arena_used + len(topic)
        if end > len(self._arena):
            more = np.zeros(max(len(self._arena), len(topic)), dtype=np.uint8)
            self._arena = np.concatenate((self._arena, more))
        self._arena[place:end] = np.frombuffer(topic, dtype=np.uint8)
        self._arena_used, self._last_topic = end, (topic, place)
        return place


def pack_units(rows: Rows, queue_nos: npt.NDArray[np.int32]) -> PackedUnits:
    if len(rows) != len(queue_nos):
        raise FormatError(f"{len(rows)} rows but {len(queue_nos)} queue numbers")
    numbers = np.ascontiguousarray(queue_nos, dtype=np.int32)
    units, runs, order = _pack(frozen_rows(rows, ROW), numbers, _RUN_SAMPLE)
    return PackedUnits(units, runs, order)


_RUN_SAMPLE: Final[npt.NDArray[Any]] = np.empty(0, dtype=RUN)


@helper
def _hash_queue(buffer, at, length, queue_id):
    value = np.uint64(queue_id & 0xFFFFFFFF) ^ (np.uint64(length) << np.uint64(32))
    end = at + length
    while end - at >= 8:
        value = _mix(value ^ load_little_u64(buffer, at))
        at += 8
    last = np.uint64(0)
    while at < end:
        last = (last << np.uint64(8)) | np.uint64(buffer[at])
        at += 1
    return _mix(value ^ last)


@helper
def _mix(value):
    value = (value ^ (value >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return value ^ (value >> np.uint64(32))


@helper
def _probe(buffer, at, length, queue_id, hashed, slots, queues, arena):
    """Return (number or -1, slot). At least one slot is always free."""
    mask = len(slots) - 1
    slot = np.int64(hashed & np.uint64(mask))
    while slots[slot] >= 0:
        queue = queues[slots[slot]]
        if (
            queue.hash == hashed
            and queue.queue_id == queue_id
            and queue.topic_length == length
            and same_bytes(buffer, at, arena, queue.topic_at, length)
        ):
            return np.int64(slots[slot]), slot
        slot = (slot + 1) & mask
    return np.int64(-1), slot


@kernel
def _look_up_one(topic, queue_id, slots, queues, arena):
    hashed = _hash_queue(topic, 0, len(topic), queue_id)
    number, slot = _probe(topic, 0, len(topic), queue_id, hashed, slots, queues, arena)
    return number, slot, hashed


@kernel
def _fill_slots(slots, queues, count):
    mask = len(slots) - 1
    for number in range(count):
        slot = np.int64(queues[number].hash & np.uint64(mask))
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number


@kernel
def _resolve(buffer, rows, slots, queues, arena, found):
    """Fill `found`; return the first row whose topic lies outside the buffer, or -1."""
    for index in range(len(rows)):
        prefetch(buffer, np.int64(rows[min(index + _AHEAD, len(rows) - 1)].topic_at))
        row = rows[index]
        at = np.int64(row.topic_at)
        length = np.int64(row.topic_length)
        if at < 0 or length < 0 or at + length > len(buffer):
            return index
        hashed = _hash_queue(buffer, at, length, np.int64(row.queue_id))
        number, _ = _probe(buffer, at, length, row.queue_id, hashed, slots, queues, arena)
        found[index] = number
    return -1


@helper
def _kept_rows(rows, queue_nos):
    """Return the indexes of rows that get a unit, and the highest queue number among them."""
    kept = np.empty(len(rows), dtype=np.int64)
    count = 0
    highest = np.int64(-1)
    for index in range(len(rows)):
        number = np.int64(queue_nos[index])
        if number >= 0 and rows[index].marks & _NO_UNIT == 0:
            kept[count] = index
            count += 1
            highest = max(highest, number)
    return kept[:count], highest


@helper
def _by_counting(kept, queue_nos, highest):
    """Return the indexes sorted by queue, stable."""
    starts = np.zeros(highest + 2, dtype=np.int64)
    for index in kept:
        starts[queue_nos[index] + 1] += 1
    for number in range(highest + 1):
        starts[number + 1] += starts[number]
    order = np.empty(len(kept), dtype=np.int64)
    for index in kept:
        number = queue_nos[index]
        order[starts[number]] = index
        starts[number] += 1
    return order


@helper
def _by_comparing(kept, queue_nos):
    """Return the indexes sorted by queue, stable: a merge sort, for few rows of many queues."""
    order, other = kept.copy(), np.empty_like(kept)
    width = 1
    while width < len(order):
        for start in range(0, len(order), 2 * width):
            middle = min(start + width, len(order))
            end = min(start + 2 * width, len(order))
            left, right = start, middle
            for place in range(start, end):
                if left < middle and (
                    right >= end or queue_nos[order[left]] <= queue_nos[order[right]]
                ):
                    other[place] = order[left]
                    left += 1
                else:
                    other[place] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@kernel
def _pack(rows, queue_nos, run_sample):
    kept, highest = _kept_rows(rows, queue_nos)
    if highest < 4 * len(kept) + 64:
        order = _by_counting(kept, queue_nos, highest)
    else:
        order = _by_comparing(kept, queue_nos)
    units = np.empty(len(order) * UNIT_BYTES, dtype=np.uint8)
    runs = np.empty(len(order), dtype=run_sample.dtype)
    run_count = 0
    next_offset = np.int64(0)
    for place in range(len(order)):
        row = rows[order[place]]
        at = place * UNIT_BYTES
        store_i64(units, at, row.log_offset)
        store_i32(units, at + 8, np.int64(row.size))
        store_i64(units, at + 12, row.tag_hash)
        number = queue_nos[order[place]]
        if (
            run_count == 0
            or runs[run_count - 1].queue_no != number
            or row.queue_offset != next_offset
        ):
            run = runs[run_count]
            run.queue_no = number
            run.count = 0
            run.first_queue_offset = row.queue_offset
            run.first_unit = place
            run_count += 1
        run = runs[run_count - 1]
        run.count += 1
        run.end_log_offset = row.log_offset + row.size
        run.last_store_ms = row.store_ms
        next_offset = row.queue_offset + 1
    return units, runs[:run_count].copy(), order
