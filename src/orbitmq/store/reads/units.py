"""The queue units that a read looks at, one after another, read from files in blocks."""

from collections.abc import Callable, Iterator
from typing import Final

from orbitmq.format.cq_unit import UNIT
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.unit_source import UnitSource

BLOCK_UNITS: Final = 64

Unit = tuple[int, int, int, int, int]
"""Queue offset, messages, log offset, size, tag hash."""


def file_units(
    queues: UnitSource,
    number: int,
    offset: int,
    count: int,
    *,
    files: int,
    is_found: Callable[[], bool],
) -> Iterator[Unit]:
    """Yield so many units: of one file, or of so many files while nothing is found."""
    end = offset + count
    while offset < end:
        data = queues.read_units(number, offset, min(BLOCK_UNITS, end - offset))
        if not data:
            return
        for log_offset, size, tag_hash in UNIT.iter_unpack(data):
            yield offset, 1, log_offset, size, tag_hash
            offset += 1
        if offset % queues.file_units == 0:
            files -= 1
            if not files or is_found():
                return


def batch_units(queues: BatchQueues, number: int, offset: int, count: int) -> Iterator[Unit]:
    """Yield the units of a queue of batches from an offset on, up to so many offsets further."""
    for unit in queues.read_units(number, offset, count):
        if unit.base_offset >= offset + count:
            return
        yield (
            unit.base_offset,
            unit.message_count,
            unit.log_offset,
            unit.size,
            unit.tag_hash,
        )
