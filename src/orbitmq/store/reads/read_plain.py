"""The read that nearly all pulls are: a plain queue, records that are there, all wanted or chosen by tag.

The same answer as `read.QueueReader` gives by its long way, at a third of its cost. Whatever is out of the
ordinary (padding, a removed segment, a filler, an ext unit, nothing found) is left to that way.
"""

from typing import Final

from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES
from orbitmq.message import GetStatus, Property
from orbitmq.store.log.log_reader import LogReader
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.reads.result import GetResult, ReadLimits

FILLER_NAME: Final = Property.FILLER.encode()
FILLER_TAIL_BYTES: Final = 128  # a filler's properties are few and stand at the end of the record

_BLOCK_UNITS: Final = 64
_LOW_HALF: Final = 0xFFFFFFFF


class PlainReader:
    """Reads plain queues of one store. Any thread may call it."""

    def __init__(
        self, queues: ConsumeQueues, log: LogReader, limits: ReadLimits, recent_bytes: int
    ) -> None:
        self._queues, self._log, self._limits = queues, log, limits
        self._recent_bytes = recent_bytes

    def read(
        self,
        number: int,
        offset: int,
        low: int,
        high: int,
        max_count: int,
        max_bytes: int,
        hashes: frozenset[int],
    ) -> GetResult | None:
        """Return what is found from `offset` on; None: go the long way.

        `hashes` are the tag hashes that are wanted; empty: all.
        """
        if not hashes:
            found = self._read_run(number, offset, low, high, max_count, max_bytes)
            if found is not None:
                return found
        limits, log_read = self._limits, self._log.read
        scan_units = -(-max(limits.filter_bytes, max_count * UNIT_BYTES) // UNIT_BYTES)
        end = min(offset + scan_units, high)
        log_end = self._log.visible_offset()
        in_memory_from = log_end - self._recent_bytes
        wanted = {value & _LOW_HALF for value in hashes}
        records: list[memoryview] = []
        queue_offsets: list[int] = []
        log_offsets: list[int] = []
        total = newest = 0
        at = offset
        full = False
        while at < end and not full:
            data = self._queues.read_units(number, at, min(_BLOCK_UNITS, end - at))
            if not data:
                return None
            # Where all are wanted, their records mostly lie in one segment: one look-up, then slices.
            (span_start, _, _), (last, last_size, _) = (
                UNIT.unpack_from(data),
                UNIT.unpack(data[-UNIT_BYTES:]),
            )
            span = None if wanted else log_read(span_start, last + last_size - span_start)
            for log_offset, size, tag_hash in UNIT.iter_unpack(data):
                if size == PADDING_SIZE or tag_hash <= ADDRESS_MAX:
                    return None
                count = len(records)
                if count:
                    more = total + size
                    in_memory = log_offset >= in_memory_from
                    count_max = limits.count_in_memory if in_memory else limits.count_on_disk
                    bytes_max = limits.bytes_in_memory if in_memory else limits.bytes_on_disk
                    if (
                        count >= max_count
                        or count >= count_max
                        or more > max_bytes
                        or more > bytes_max
                    ):
                        full = True
                        break
                newest = log_offset
                at += 1
                if wanted and tag_hash & _LOW_HALF not in wanted:
                    continue
                if span is not None:
                    start = log_offset - span_start
                    if start < 0:
                        return None
                    record = span[start : start + size]
                else:
                    lone = log_read(log_offset, size)
                    if lone is None:
                        return None
                    record = lone
                if FILLER_NAME in bytes(record[-FILLER_TAIL_BYTES:]) or len(record) != size:
                    return None
                records.append(record)
                queue_offsets.append(at - 1)
                log_offsets.append(log_offset)
                total += size
            if at % self._queues.file_units == 0:
                break  # a read ends with its file once it has found something
        if not records:
            return None
        return GetResult(
            GetStatus.FOUND,
            at,
            low,
            high,
            records,
            queue_offsets,
            log_offsets,
            len(records),
            total,
            log_end - newest > self._recent_bytes,
        )

    def _read_run(
        self, number: int, offset: int, low: int, high: int, max_count: int, max_bytes: int
    ) -> GetResult | None:
        """Return the next messages if all are wanted, none reaches a limit and all lie in one segment.

        The same answer again, with fewer steps for each message.
        """
        limits = self._limits
        count = min(max_count, limits.count_in_memory, high - offset)
        units = list(UNIT.iter_unpack(self._queues.read_units(number, offset, count)))
        if not units:
            return None
        offsets = [unit[0] for unit in units]
        start, total = offsets[0], sum([unit[1] for unit in units])
        # Padding has the greatest size that there is, so it does not pass here.
        if total > min(max_bytes, limits.bytes_in_memory) or min(offsets) < start:
            return None
        log_end = self._log.visible_offset()
        if start < log_end - self._recent_bytes or min([u[2] for u in units]) <= ADDRESS_MAX:
            return None
        span = self._log.read(start, offsets[-1] + units[-1][1] - start)
        if span is None:
            return None
        records = [span[at - start : at - start + size] for at, size, _ in units]
        packed = b"".join(records)
        if len(packed) != total or FILLER_NAME in packed:
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
            packed=packed,
        )
