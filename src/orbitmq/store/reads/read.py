"""Read messages of a queue from a queue offset on: the broker's pull.

Records are not decoded: the answer holds slices of the mapped log, in queue order.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from orbitmq.errors import FormatError
from orbitmq.format.batch_unit import UNIT_BYTES as BATCH_UNIT_BYTES
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus
from orbitmq.store.log.log_reader import LogReader
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.reads.read_plain import FILLER_NAME, FILLER_TAIL_BYTES, PlainReader
from orbitmq.store.reads.result import GetResult, ReadLimits
from orbitmq.store.reads.tag_filter import MessageFilter, TagFilter
from orbitmq.units import MiB

__all__ = ["GetResult", "QueueReader", "ReadLimits", "is_filler"]

TOTAL_BYTES_MAX: Final = 128 * MiB
TOTAL_BYTES_LEAST: Final = 100

_BLOCK_UNITS: Final = 64


class _Unit(NamedTuple):
    queue_offset: int
    messages: int
    log_offset: int
    size: int
    tag_hash: int


class QueueReader:
    """Reads queues of one store. Any thread may call it."""

    def __init__(
        self,
        queues: ConsumeQueues,
        batch_queues: BatchQueues,
        log: LogReader,
        *,
        ext: ExtQueues | None = None,
        limits: ReadLimits | None = None,
    ) -> None:
        self._queues = queues
        self._batch_queues = batch_queues
        self._log = log
        self._ext = ext
        self._limits = limits if limits is not None else ReadLimits()
        self._recent_bytes = self._limits.recent_bytes
        self._segment_bytes = queues.layout.segment_bytes
        self._plain = PlainReader(queues, log, self._limits, self._recent_bytes)

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
        if not is_batch and (filter is None or type(filter) is TagFilter):
            hashes = filter.hashes if filter is not None else frozenset()
            found = self._plain.read(number, offset, low, high, max_count, max_bytes, hashes)
            if found is not None:
                return found
        reading = _Reading(self, number, is_batch, offset, low, high)
        return reading.run(max_count, max_bytes, filter)

    def is_in_memory(self, log_offset: int) -> bool:
        """Tell whether a record there is taken to be in the page cache: near enough to the log's end."""
        return self._log.visible_offset() - log_offset <= self._recent_bytes


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


class _Reading:
    """One read of one queue."""

    def __init__(
        self, reader: QueueReader, number: int, is_batch: bool, offset: int, low: int, high: int
    ) -> None:
        self._queues = reader._queues
        self._batch_queues = reader._batch_queues
        self._log = reader._log
        self._ext = reader._ext
        self._limits = reader._limits
        self._recent_bytes = reader._recent_bytes
        self._segment_bytes = reader._segment_bytes
        self._number = number
        self._is_batch = is_batch
        self._offset = offset
        self._result = GetResult(GetStatus.NO_MATCHED_MESSAGE, offset, low, high)

    def run(self, max_count: int, max_bytes: int, wanted: MessageFilter | None) -> GetResult:
        result = self._result
        unit_bytes = BATCH_UNIT_BYTES if self._is_batch else UNIT_BYTES
        scan_bytes = max(self._limits.filter_bytes, max_count * unit_bytes)
        scan_units = -(-scan_bytes // unit_bytes)
        log_end = self._log.visible_offset()
        newest = 0
        skip_until = -1
        visited = False
        for unit in self._units(scan_units):
            visited = True
            if (unit.queue_offset - self._offset) * unit_bytes >= scan_bytes:
                break
            if unit.size == PADDING_SIZE:  # no record ever had this queue offset
                result.next_offset = unit.queue_offset + 1
                continue
            in_memory = log_end - unit.log_offset <= self._recent_bytes
            if self._is_full(unit, max_count, max_bytes, in_memory):
                break
            newest = unit.log_offset
            result.next_offset = unit.queue_offset + unit.messages
            if unit.log_offset < skip_until or not self._wanted(unit, wanted):
                continue
            record = self._log.read(unit.log_offset, unit.size)
            if record is None:
                if not result.records:
                    result.status = GetStatus.MESSAGE_WAS_REMOVING
                # The segment is gone: no other unit of it can be read either.
                skip_until = (unit.log_offset // self._segment_bytes + 1) * self._segment_bytes
                continue
            if (wanted is not None and not wanted.by_record(record)) or is_filler(record):
                self._nothing_matched()
                continue
            self._collect(unit, record)
            skip_until = -1
        if not visited:
            result.status = GetStatus.OFFSET_FOUND_NULL
            result.next_offset = self._next_file()
        result.suggest_replica = visited and log_end - newest > self._recent_bytes
        return result

    def _units(self, scan_units: int) -> Iterator[_Unit]:
        """Yield units from the offset on, of one file (or as many as the limits say)."""
        if self._is_batch:
            for unit in self._batch_queues.read_units(self._number, self._offset, scan_units):
                yield _Unit(
                    unit.base_offset,
                    unit.message_count,
                    unit.log_offset,
                    unit.size,
                    unit.tag_hash,
                )
            return
        file_units = self._queues.file_units
        offset, files_left = self._offset, self._limits.files_per_read
        end = offset + scan_units + 1
        while offset < end:
            data = self._queues.read_units(self._number, offset, min(_BLOCK_UNITS, end - offset))
            if not data:
                return
            for log_offset, size, tag_hash in UNIT.iter_unpack(data):
                yield _Unit(offset, 1, log_offset, size, tag_hash)
                offset += 1
            if offset % file_units == 0:
                files_left -= 1
                if not files_left or self._result.records:
                    return

    def _is_full(self, unit: _Unit, max_count: int, max_bytes: int, in_memory: bool) -> bool:
        result, limits = self._result, self._limits
        if not result.records:
            return False
        total = result.total_bytes + unit.size
        if result.message_count + unit.messages > max_count or total > max_bytes:
            return True
        if in_memory:
            count_max, bytes_max = limits.count_in_memory, limits.bytes_in_memory
        else:
            count_max, bytes_max = limits.count_on_disk, limits.bytes_on_disk
        return total > bytes_max or result.message_count >= count_max

    def _wanted(self, unit: _Unit, wanted: MessageFilter | None) -> bool:
        if wanted is None:
            return True
        tag_hash: int | None = unit.tag_hash
        ext = None
        if unit.tag_hash <= ADDRESS_MAX:
            ext = self._ext.get(self._number, unit.tag_hash) if self._ext is not None else None
            tag_hash = ext.tag_hash if ext is not None else None
        if wanted.by_unit(tag_hash, ext):
            return True
        self._nothing_matched()
        return False

    def _nothing_matched(self) -> None:
        if not self._result.records:
            self._result.status = GetStatus.NO_MATCHED_MESSAGE

    def _collect(self, unit: _Unit, record: memoryview) -> None:
        result = self._result
        result.status = GetStatus.FOUND
        result.records.append(record)
        result.queue_offsets.append(unit.queue_offset)
        result.log_offsets.append(unit.log_offset)
        result.message_count += unit.messages
        result.total_bytes += len(record)

    def _next_file(self) -> int:
        """Return the first queue offset of the next file; batch queues start over, as upstream."""
        if self._is_batch:
            return 0
        file_units = self._queues.file_units
        return (self._offset // file_units + 1) * file_units


def is_filler(record: memoryview) -> bool:
    """Tell whether a record only stands where a damaged one was."""
    if FILLER_NAME not in bytes(record[-FILLER_TAIL_BYTES:]):
        return False
    try:
        return decode_record(record, check_crc=False).is_filler
    except FormatError:
        return False
