"""Read messages of a queue from a queue offset on: the broker's pull.

Records are not decoded: the answer holds slices of the mapped log, in queue order. Nearly all pulls ask for
messages that simply follow one another: they are taken as one run. Whatever else there is (a filter, gaps,
deleted segments, fillers, batches) is read unit by unit, and gives the same where both can.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.errors import FormatError
from orbitmq.format.batch_unit import UNIT_BYTES as BATCH_UNIT_BYTES
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus, Property
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.log_reader import RecordReader
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.unit_source import UnitSource
from orbitmq.store.reads.tag_filter import MessageFilter, TagFilter
from orbitmq.units import MiB

TOTAL_BYTES_MAX: Final = 128 * MiB
TOTAL_BYTES_LEAST: Final = 100

_BLOCK_UNITS: Final = 64
_LOW_HALF: Final = 0xFFFFFFFF
_FILLER_NAME: Final = Property.FILLER.encode()
_FILLER_TAIL_BYTES: Final = 128  # a filler's properties are few and stand at the end of the record

_Unit = tuple[int, int, int, int, int]  # queue offset, messages, log offset, size, tag hash


@dataclass(slots=True)
class GetResult:
    """What a read found. `next_offset` is where to go on, whatever the status."""

    status: GetStatus
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    records: list[memoryview] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)  # of an inner batch: its first
    log_offsets: list[int] = field(default_factory=list)
    message_count: int = 0  # an inner batch counts as many as it holds
    total_bytes: int = 0
    suggest_replica: bool = False  # the reader is so far behind that a replica should serve it
    packed: bytes | None = (
        None  # all records, one after another, where somebody joined them already
    )


class QueueReader:
    """Reads queues of one store. Any thread may call it."""

    def __init__(
        self,
        config: StoreConfig,
        queues: UnitSource,
        batch_queues: BatchQueues,
        log: RecordReader,
        *,
        ext: ExtQueues | None = None,
    ) -> None:
        self._config = config
        self._queues = queues
        self._batch_queues = batch_queues
        self._log = log
        self._ext = ext
        # So much of the log's end is taken to be in the page cache.
        memory_bytes = config.memory_bytes or physical_memory()
        self._recent_bytes = memory_bytes * config.in_memory_ratio // 100
        # The limits of one answer: how many messages, how many bytes.
        self._in_memory = config.transfer_count_in_memory, config.transfer_bytes_in_memory
        self._on_disk = config.transfer_count_on_disk, config.transfer_bytes_on_disk

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
        """Return up to `max_count` messages from queue offset `offset` on."""
        number = self._queues.find(topic, queue_id)
        is_batch = number < 0
        if is_batch:
            number = self._batch_queues.find(topic, queue_id)
        if number < 0:
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE)
        queues = self._batch_queues if is_batch else self._queues
        low, high = queues.min_offset(number), queues.next_offset(number)
        outside = _outside(offset, low, high)
        if outside is not None:
            return outside
        max_bytes = max(max_bytes, TOTAL_BYTES_LEAST)
        if type(filter) is TagFilter and filter.matches_all:
            filter = None  # noqa: A001
        if filter is None and not is_batch:
            run = self._read_run(number, offset, low, high, max_count, max_bytes)
            if run is not None:
                return run
        result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high)
        units = self._units(number, is_batch, result, max_count)
        self._read_units(number, units, result, max_count, max_bytes, filter)
        if result.next_offset == offset:  # not one unit could be read
            result.status = GetStatus.OFFSET_FOUND_NULL
            result.next_offset = 0 if is_batch else self._next_file(offset)  # as upstream
        return result

    def is_in_memory(self, log_offset: int) -> bool:
        """Tell whether a record there is taken to be in the page cache: near enough to the log's end."""
        return self._log.visible_offset() - log_offset <= self._recent_bytes

    def _read_run(
        self, number: int, offset: int, low: int, high: int, max_count: int, max_bytes: int
    ) -> GetResult | None:
        """Return the next messages, with few steps for each, if all lie in one segment.

        None: they have to be read unit by unit.
        """
        count = min(max_count, max(self._in_memory[0], self._on_disk[0]), high - offset)
        units = list(UNIT.iter_unpack(self._queues.read_units(number, offset, count)))
        if not units:
            return None
        start, log_end = units[0][0], self._log.visible_offset()
        in_memory_from = log_end - self._recent_bytes
        in_memory = start >= in_memory_from
        if not in_memory and units[-1][0] >= in_memory_from:
            return None  # partly so and partly so
        count_max, bytes_max = self._in_memory if in_memory else self._on_disk
        units = units[:count_max]
        total = sum([unit[1] for unit in units])
        # Padding has the greatest size that there is, so it does not pass here. Of long messages few fit:
        # they are not worth a copy of all.
        if total > min(max_bytes, bytes_max):
            return None
        offsets = [unit[0] for unit in units]
        if not units or min(offsets) < start:
            return None
        span = self._log.read(start, offsets[-1] + units[-1][1] - start)
        if span is None:
            return None
        records = [span[at - start : at - start + size] for at, size, _ in units]
        packed = b"".join(records)
        if len(packed) != total or _FILLER_NAME in packed:
            return None
        end = offset + len(units)
        return GetResult(
            GetStatus.FOUND,
            end,
            low,
            high,
            records,
            list(range(offset, end)),
            offsets,
            len(units),
            total,
            offsets[-1] < in_memory_from,
            packed,
        )

    def _units(
        self, number: int, is_batch: bool, result: GetResult, max_count: int
    ) -> Iterator[_Unit]:
        """Yield the units to look at: of one file, or as many as the settings say while nothing is found."""
        offset = result.next_offset
        unit_bytes = BATCH_UNIT_BYTES if is_batch else UNIT_BYTES
        scan_bytes = max(self._config.filter_bytes_max, max_count * unit_bytes)
        count = -(-scan_bytes // unit_bytes)
        end = offset + count
        if is_batch:
            for unit in self._batch_queues.read_units(number, offset, count):
                if unit.base_offset >= end:
                    return
                yield (
                    unit.base_offset,
                    unit.message_count,
                    unit.log_offset,
                    unit.size,
                    unit.tag_hash,
                )
            return
        files_left = self._config.cq_files_per_read
        while offset < end:
            data = self._queues.read_units(number, offset, min(_BLOCK_UNITS, end - offset))
            if not data:
                return
            for log_offset, size, tag_hash in UNIT.iter_unpack(data):
                yield offset, 1, log_offset, size, tag_hash
                offset += 1
            if offset % self._queues.file_units == 0:
                files_left -= 1
                if not files_left or result.records:
                    return

    def _read_units(
        self,
        number: int,
        units: Iterator[_Unit],
        result: GetResult,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter | None,
    ) -> None:
        """Collect the wanted records of these units into the result, up to the limits."""
        records, segment_bytes = result.records, self._config.segment_bytes
        tags = {value & _LOW_HALF for value in wanted.hashes} if type(wanted) is TagFilter else None
        in_memory_from = self._log.visible_offset() - self._recent_bytes
        asked = wanted if tags is None else None  # a filter by tags takes every record
        in_memory = self._in_memory[0], min(self._in_memory[1], max_bytes)
        on_disk = self._on_disk[0], min(self._on_disk[1], max_bytes)
        read, queue_offsets, log_offsets = self._log.read, result.queue_offsets, result.log_offsets
        first, newest, skip_until = result.next_offset, 0, -1
        behind, count, total = first, 0, 0
        missed = GetStatus.NO_MATCHED_MESSAGE
        for queue_offset, messages, log_offset, size, tag_hash in units:
            if size == PADDING_SIZE:  # no record ever had this queue offset
                behind = queue_offset + 1
                continue
            if count:
                count_max, bytes_max = in_memory if log_offset >= in_memory_from else on_disk
                if count >= count_max or count + messages > max_count:
                    break
                if total + size > bytes_max:
                    break
            newest, behind = log_offset, queue_offset + messages
            if log_offset < skip_until:
                continue
            if tags is not None and tag_hash > ADDRESS_MAX:
                if tag_hash & _LOW_HALF not in tags:  # as the filter itself says, for 800 units
                    missed = GetStatus.NO_MATCHED_MESSAGE
                    continue
            elif wanted is not None and not self._matches(number, tag_hash, wanted):
                missed = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = read(log_offset, size)
            if record is None:
                # The segment is gone: no other unit of it can be read either.
                missed = GetStatus.MESSAGE_WAS_REMOVING
                skip_until = (log_offset // segment_bytes + 1) * segment_bytes
            elif is_filler(record) or (asked is not None and not asked.by_record(record)):
                missed = GetStatus.NO_MATCHED_MESSAGE
            else:
                skip_until = -1
                records.append(record)
                queue_offsets.append(queue_offset)
                log_offsets.append(log_offset)
                count += messages
                total += size
        result.next_offset, result.message_count, result.total_bytes = behind, count, total
        result.status = GetStatus.FOUND if records else missed
        result.suggest_replica = result.next_offset != first and newest < in_memory_from

    def _matches(self, number: int, tag_hash: int, wanted: MessageFilter) -> bool:
        """Ask a filter about a unit; what it holds may be the address of an ext unit."""
        if tag_hash > ADDRESS_MAX:
            return wanted.by_unit(tag_hash, None)
        ext = self._ext.get(number, tag_hash) if self._ext is not None else None
        return wanted.by_unit(ext.tag_hash if ext is not None else None, ext)

    def _next_file(self, offset: int) -> int:
        """Return the first queue offset of the next file."""
        file_units = self._queues.file_units
        return (offset // file_units + 1) * file_units


def physical_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _outside(offset: int, low: int, high: int) -> GetResult | None:
    """Return the answer to an offset that the queue does not have."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    if offset > high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
    return None


def is_filler(record: memoryview) -> bool:
    """Tell whether a record only stands where a damaged one was."""
    if _FILLER_NAME not in bytes(record[-_FILLER_TAIL_BYTES:]):
        return False
    try:
        return decode_record(record, check_crc=False).is_filler
    except FormatError:
        return False
