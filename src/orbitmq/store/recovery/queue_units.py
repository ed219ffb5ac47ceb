"""What queue files on disk say of lost records: units that point into a part of the log."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import QueueFiles, list_segments
from orbitmq.format import batch_unit, cq_unit
from orbitmq.store.recovery.lost_records import LostRecord

UNITS_MAX: Final = 1_000_000
"""Of one queue in one place; more cannot be right."""

_Decode = Callable[[bytes, int, int], LostRecord | None]


class FileUnits:
    """Looks into the queue files of a store, each time it is asked. Reads only."""

    def __init__(self, layout: StoreLayout, disk: Disk) -> None:
        self._layout = layout
        self._disk = disk

    def units_between(self, start: int, end: int) -> list[LostRecord]:
        """Return the records that units place at log offsets from `start` up to `end`."""
        found: list[LostRecord] = []
        for kind, unit_bytes, decode in (
            (QueueKind.SIMPLE, cq_unit.UNIT_BYTES, _simple),
            (QueueKind.BATCH, batch_unit.UNIT_BYTES, _batch),
        ):
            for queue in self._layout.list_queues(kind, on_problem=_ignore):
                if queue.file_count:
                    found += self._queue(kind, queue, unit_bytes, decode, start, end)
        return sorted(found, key=lambda record: record.start)

    def _queue(
        self,
        kind: QueueKind,
        queue: QueueFiles,
        unit_bytes: int,
        decode: _Decode,
        start: int,
        end: int,
    ) -> Iterator[LostRecord]:
        directory = self._layout.queue_directory(kind, queue.topic, queue.queue_id)
        topic = queue.topic.encode()
        for file in list_segments(directory, on_problem=_ignore):
            try:
                fd = self._disk.open(file.path, writable=False)
            except StoreError:
                continue
            try:
                reader = _FileReader(self._disk, file.path, fd, unit_bytes, file.length)
                for number in range(*reader.bounds(start, end)):
                    raw = reader.unit(number)
                    queue_offset = file.base_offset // unit_bytes + number
                    record = decode(raw, queue_offset, queue.queue_id)
                    if record is not None and start <= record.start < end:
                        yield LostRecord(
                            topic,
                            queue.queue_id,
                            record.queue_offset,
                            record.start,
                            record.size,
                            record.batch_count,
                        )
            finally:
                self._disk.close(file.path, fd)


class _FileReader:
    """The units of one file, found by halving: their log offsets grow. Zeros and padding aside."""

    def __init__(self, disk: Disk, path: Path, fd: int, unit_bytes: int, length: int) -> None:
        self._disk = disk
        self._path = path
        self._fd = fd
        self._unit_bytes = unit_bytes
        self._count = length // unit_bytes

    def unit(self, number: int) -> bytes:
        position = number * self._unit_bytes
        return self._disk.read_at(self._path, self._fd, position, self._unit_bytes)

    def bounds(self, start: int, end: int) -> tuple[int, int]:
        first = self._first_at(start)
        return first, min(self._first_at(end), first + UNITS_MAX)

    def _first_at(self, log_offset: int) -> int:
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            if self._lies_before(middle, log_offset):
                low = middle + 1
            else:
                high = middle
        return low

    def _lies_before(self, number: int, log_offset: int) -> bool:
        unit = cq_unit.decode_unit(self.unit(number)[: cq_unit.UNIT_BYTES])
        if unit.size == cq_unit.PADDING_SIZE:
            return True  # padding stands before the first real unit
        return unit.size > 0 and unit.log_offset < log_offset


def _simple(raw: bytes, queue_offset: int, queue_id: int) -> LostRecord | None:
    unit = cq_unit.decode_unit(raw)
    if unit.size <= 0 or unit.size == cq_unit.PADDING_SIZE:
        return None
    return LostRecord(b"", queue_id, queue_offset, unit.log_offset, unit.size)


def _batch(raw: bytes, _: int, queue_id: int) -> LostRecord | None:
    unit = batch_unit.decode_unit(raw)
    if not unit.is_valid:
        return None
    return LostRecord(
        b"", queue_id, unit.base_offset, unit.log_offset, unit.size, unit.message_count
    )


def _ignore(problem: WrongFileError) -> None:
    """A damaged queue directory tells nothing; whoever checks the queues reports it."""
