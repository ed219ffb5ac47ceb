"""What queue files on disk say of lost records: units that point into a part of the log."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from orbitmq.errors import StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import QueueFiles, SegmentFile, list_segments
from orbitmq.format import batch_unit, cq_unit
from orbitmq.store.recovery.lost_records import LostRecord
from orbitmq.store.recovery.plan import UnitsBetween

UNITS_MAX: Final = 1_000_000
"""Of one queue in one place; more cannot be right."""

_UNIT_BYTES: Final = {
    QueueKind.SIMPLE: cq_unit.UNIT_BYTES,
    QueueKind.BATCH: batch_unit.UNIT_BYTES,
}


def file_units(layout: StoreLayout, disk: Disk) -> UnitsBetween:
    """Return what looks into the queue files of a store, each time it is asked. Reads only."""

    def units_between(start: int, end: int) -> list[LostRecord]:
        found: list[LostRecord] = []
        for kind in _UNIT_BYTES:
            for queue in layout.list_queues(kind, on_problem=_ignore):
                if queue.file_count:
                    found += _queue_units(layout, disk, kind, queue, start, end)
        return sorted(found, key=lambda record: record.start)

    return units_between


def _queue_units(
    layout: StoreLayout, disk: Disk, kind: QueueKind, queue: QueueFiles, start: int, end: int
) -> Iterator[LostRecord]:
    directory = layout.queue_directory(kind, queue.topic, queue.queue_id)
    for file in list_segments(directory, on_problem=_ignore):
        try:
            fd = disk.open(file.path, writable=False)
        except StoreError:
            continue
        try:
            read = partial(_read_unit, disk, file, fd, _UNIT_BYTES[kind])
            for number in _numbers(read, file.length // _UNIT_BYTES[kind], start, end):
                queue_offset = file.base_offset // cq_unit.UNIT_BYTES + number
                lost = _lost_record(kind, queue, queue_offset, read(number))
                if lost is not None and start <= lost.start < end:
                    yield lost
        finally:
            disk.close(file.path, fd)


def _read_unit(disk: Disk, file: SegmentFile, fd: int, unit_bytes: int, number: int) -> bytes:
    return disk.read_at(file.path, fd, number * unit_bytes, unit_bytes)


def _numbers(read: Callable[[int], bytes], count: int, start: int, end: int) -> range:
    """Return which units of a file may lie in this part of the log; their log offsets grow."""

    def first_at(log_offset: int) -> int:
        def lies_behind(number: int) -> bool:
            unit = cq_unit.decode_unit(read(number)[: cq_unit.UNIT_BYTES])
            # Padding stands before the first real unit, zeros behind the last.
            is_padding = unit.size == cq_unit.PADDING_SIZE
            return not is_padding and not (unit.size > 0 and unit.log_offset < log_offset)

        return bisect_left(range(count), True, key=lies_behind)

    first = first_at(start)
    return range(first, min(first_at(end), first + UNITS_MAX))


def _lost_record(
    kind: QueueKind, queue: QueueFiles, queue_offset: int, raw: bytes
) -> LostRecord | None:
    name = queue.topic.encode(), queue.queue_id
    if kind is QueueKind.BATCH:
        batch = batch_unit.decode_unit(raw)
        place = batch.base_offset, batch.log_offset, batch.size, batch.message_count
        return LostRecord(*name, *place) if batch.is_valid else None
    unit = cq_unit.decode_unit(raw)
    if unit.size <= 0 or unit.size == cq_unit.PADDING_SIZE:
        return None
    return LostRecord(*name, queue_offset, unit.log_offset, unit.size)


def _ignore(problem: WrongFileError) -> None:
    """A damaged queue directory tells nothing; whoever checks the queues reports it."""
