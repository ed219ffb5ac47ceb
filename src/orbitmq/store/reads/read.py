"""Read messages of a queue from a queue offset on: the broker's pull.

Records are not decoded: the answer holds slices of the mapped log, in queue order. Nearly all pulls want
ordinary messages, whose units are looked at together (`runs.py`). Whatever else there is (gaps, deleted
segments, fillers, batches) is read unit by unit, and gives the same where both can.
"""

from collections.abc import Iterator
from typing import Final, cast

from orbitmq.errors import FormatError
from orbitmq.format.batch_unit import UNIT_BYTES as BATCH_UNIT_BYTES
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_BYTES
from orbitmq.format.record import decode_record
from orbitmq.message import GetStatus
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.log_reader import RecordReader
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.unit_source import UnitSource
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.limits import TransferLimits
from orbitmq.store.reads.runs import FILLER_NAME, Question, RunReader
from orbitmq.store.reads.tag_filter import MessageFilter, RecordFilter, TagFilter
from orbitmq.store.reads.units import Unit, batch_units, file_units
from orbitmq.units import MiB

TOTAL_BYTES_MAX: Final = 128 * MiB
TOTAL_BYTES_LEAST: Final = 100

_FILLER_TAIL_BYTES: Final = 128  # a filler's properties are few and stand at the end of the record


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
        self._limits = TransferLimits(config)
        self._runs = RunReader(config, queues, log, self._limits)

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
        if not is_batch:
            question = Question(number, offset, low, high, max_count, max_bytes)
            run = self._run(question, filter)
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
        return log_offset >= self._limits.in_memory_from(self._log.visible_offset())

    def _run(self, question: Question, wanted: MessageFilter | None) -> GetResult | None:
        """Return the next messages that are wanted if all of them can be read together."""
        if wanted is None:
            return self._runs.following(question)
        if type(wanted) is TagFilter:
            return self._runs.tagged(question, wanted)
        if hasattr(wanted, "by_records"):  # isinstance of a protocol takes ten times as long
            return self._runs.filtered(question, cast(RecordFilter, wanted))
        return None

    def _units(
        self, number: int, is_batch: bool, result: GetResult, max_count: int
    ) -> Iterator[Unit]:
        """Yield the units to look at: of one file, or as many as the settings say while nothing is found."""
        unit_bytes = BATCH_UNIT_BYTES if is_batch else UNIT_BYTES
        scan_bytes = max(self._config.filter_bytes_max, max_count * unit_bytes)
        offset, count = result.next_offset, -(-scan_bytes // unit_bytes)
        if is_batch:
            return batch_units(self._batch_queues, number, offset, count)
        return file_units(
            self._queues,
            number,
            offset,
            count,
            files=self._config.cq_files_per_read,
            is_found=lambda: bool(result.records),
        )

    def _read_units(
        self,
        number: int,
        units: Iterator[Unit],
        result: GetResult,
        max_count: int,
        max_bytes: int,
        wanted: MessageFilter | None,
    ) -> None:
        """Collect the wanted records of these units into the result, up to the limits."""
        records, segment_bytes = result.records, self._config.segment_bytes
        in_memory_from = self._limits.in_memory_from(self._log.visible_offset())
        read, queue_offsets, log_offsets = self._log.read, result.queue_offsets, result.log_offsets
        first, newest, skip_until = result.next_offset, 0, -1
        behind, count, total = first, 0, 0
        missed = GetStatus.NO_MATCHED_MESSAGE
        for queue_offset, messages, log_offset, size, tag_hash in units:
            if size == PADDING_SIZE:  # no record ever had this queue offset
                behind = queue_offset + 1
                continue
            if count:
                count_max, bytes_max = self._limits.of(log_offset >= in_memory_from)
                if count >= count_max or count + messages > max_count:
                    break
                if total + size > min(bytes_max, max_bytes):
                    break
            newest, behind = log_offset, queue_offset + messages
            if log_offset < skip_until:
                continue
            if not (wanted is None or self._matches(number, tag_hash, wanted)):
                missed = GetStatus.NO_MATCHED_MESSAGE
                continue
            record = read(log_offset, size)
            if record is None:
                # The segment is gone: no other unit of it can be read either.
                missed = GetStatus.MESSAGE_WAS_REMOVING
                skip_until = (log_offset // segment_bytes + 1) * segment_bytes
            elif is_filler(record) or not (wanted is None or wanted.by_record(record)):
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
    if FILLER_NAME not in bytes(record[-_FILLER_TAIL_BYTES:]):
        return False
    try:
        return decode_record(record, check_crc=False).is_filler
    except FormatError:
        return False
