"""Read messages of a queue in few steps for all of them: the next ones, or those that a filter wants.

Nearly all messages are ordinary: they lie in one segment, on one side of what is taken to be in memory, and
none is padding or a filler. Where that is not so nothing is returned, and they are read unit by unit
(`read.py`), which gives the same where both can.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Ints
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES, UNIT_DTYPE
from orbitmq.message import GetStatus, Property
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.log_reader import RecordReader
from orbitmq.store.queues.unit_source import UnitSource
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.limits import TransferLimits
from orbitmq.store.reads.many_records import LEAST, matches
from orbitmq.store.reads.tag_filter import RecordFilter, TagFilter

FIRST_BLOCK: Final = 64
BLOCK: Final = 1024
"""Records are cheaper to ask about by many, but the first few may have all that is wanted."""
FILLER_NAME: Final = Property.FILLER.encode()

Mask = npt.NDArray[np.bool_]
Table = npt.NDArray[np.void]


class Question(NamedTuple):
    """What is wanted of one queue, which has messages from `low` up to, not including, `high`."""

    number: int
    offset: int
    low: int
    high: int
    max_count: int
    max_bytes: int


class RunReader:
    """Reads simple queues. Any thread may call it."""

    def __init__(
        self, config: StoreConfig, queues: UnitSource, log: RecordReader, limits: TransferLimits
    ) -> None:
        self._config, self._queues, self._log, self._limits = config, queues, log, limits

    def following(self, question: Question) -> GetResult | None:
        """Return the next messages; None: they have to be read unit by unit."""
        number, offset, low, high, max_count, max_bytes = question
        count = min(max_count, self._limits.count_max, high - offset)
        units = list(UNIT.iter_unpack(self._queues.read_units(number, offset, count)))
        if not units:
            return None
        in_memory_from = self._limits.in_memory_from(self._log.visible_offset())
        in_memory = units[0][0] >= in_memory_from
        if not in_memory and units[-1][0] >= in_memory_from:
            return None  # partly so and partly so
        count_max, bytes_max = self._limits.of(in_memory)
        units = units[:count_max]
        offsets, sizes = [unit[0] for unit in units], [unit[1] for unit in units]
        # Padding has the greatest size that there is, so it does not pass here. Of long messages few fit:
        # they are not worth a copy of all.
        if not units or sum(sizes) > min(max_bytes, bytes_max):
            return None
        end = offset + len(units)
        result = GetResult(GetStatus.FOUND, end, low, high, suggest_replica=not in_memory)
        return self._take(result, list(range(offset, end)), offsets, sizes)

    def tagged(self, question: Question, wanted: TagFilter) -> GetResult | None:
        """Return those of the next messages that have a wanted tag; None: to be read unit by unit."""
        table = self._table(question)
        mask = _by_tags(table, wanted)
        return None if mask is None else self._picked(question, table, mask)

    def filtered(self, question: Question, wanted: RecordFilter) -> GetResult | None:
        """Return those of the next messages that a filter wants; None: to be read unit by unit."""
        table = self._table(question)
        mask = self._by_records(table, wanted, question.max_count)
        return None if mask is None else self._picked(question, table, mask)

    def _table(self, question: Question) -> Table:
        """Return the units that this read looks at."""
        count = self._scanned(question)
        units = self._queues.read_units(question.number, question.offset, count)
        return np.frombuffer(units, dtype=UNIT_DTYPE, count=len(units) // UNIT_BYTES)

    def _scanned(self, question: Question) -> int:
        return max(-(-self._config.filter_bytes_max // UNIT_BYTES), question.max_count)

    def _by_records(self, table: Table, wanted: RecordFilter, enough: int) -> Mask | None:
        """Ask a filter of records, block by block until there are enough; None: it cannot be asked."""
        if len(table) < LEAST:
            return None
        at, sizes = table["log_offset"].astype(np.int64), table["size"].astype(np.int64)
        mask = np.zeros(len(table), dtype=np.bool_)
        start, end = 0, FIRST_BLOCK
        while start < len(table) and enough > 0:
            found = matches(self._log, wanted, at[start:end], sizes[start:end])
            if found is None:
                return None
            mask[start:end] = found
            enough -= int(np.count_nonzero(found))
            start, end = end, end + BLOCK
        return mask

    def _picked(self, question: Question, table: Table, mask: Mask) -> GetResult | None:
        """Return the records of the units in the mask, up to the limits."""
        at, sizes = table["log_offset"].astype(np.int64), table["size"].astype(np.int64)
        biggest = int(sizes.max())
        in_memory_from = self._limits.in_memory_from(self._log.visible_offset())
        in_memory = int(at.min()) >= in_memory_from
        if biggest == PADDING_SIZE or (not in_memory and int(at.max()) >= in_memory_from):
            return None
        count_max, bytes_max = self._limits.of(in_memory)
        count_max = max(min(count_max, question.max_count), 1)
        bytes_max = min(bytes_max, question.max_bytes)
        picked = np.flatnonzero(mask)[:count_max].tolist()
        end = picked[-1] + 1 if len(picked) == count_max else len(table)
        if sum(taken := sizes[picked].tolist()) + biggest > bytes_max:
            picked, end = _within(picked, end, sizes, bytes_max)
            taken = taken[: len(picked)]
        result = GetResult(
            GetStatus.FOUND if picked else GetStatus.NO_MATCHED_MESSAGE,
            question.offset + end,
            question.low,
            question.high,
            suggest_replica=not in_memory,
        )
        if picked:
            queue_offsets = [question.offset + one for one in picked]
            return self._take(result, queue_offsets, at[picked].tolist(), taken)
        is_file_end = result.next_offset % self._queues.file_units == 0
        if is_file_end and len(table) < self._scanned(question):
            return None  # the next file may have to be looked at too
        return result

    def _take(
        self, result: GetResult, queue_offsets: list[int], offsets: list[int], sizes: list[int]
    ) -> GetResult | None:
        """Put these records into a result; None if one of them is missing, or not an ordinary one."""
        start, total = offsets[0], sum(sizes)
        places = list(zip(offsets, sizes, strict=True))
        span = self._log.read(start, offsets[-1] + sizes[-1] - start)
        if span is None:  # not in one segment
            pieces = [self._log.read(at, size) for at, size in places]
            records = [piece for piece in pieces if piece is not None]
        elif min(offsets) >= start:
            records = [span[at - start : at - start + size] for at, size in places]
        else:
            return None
        packed = b"".join(records)
        if len(packed) != total or FILLER_NAME in packed:
            return None
        result.records, result.queue_offsets, result.log_offsets = records, queue_offsets, offsets
        result.message_count, result.total_bytes, result.packed = len(records), total, packed
        return result


def _by_tags(table: Table, wanted: TagFilter) -> Mask | None:
    """Tell which units have a wanted tag; None if some hold the address of an ext unit instead."""
    hashes = table["tag_hash"].astype(np.int64)
    if not len(hashes) or int(hashes.min()) <= ADDRESS_MAX:
        return None
    low = hashes.astype(np.int32)  # as Java: a delayed message has a time here
    mask = np.zeros(len(low), dtype=np.bool_)
    for tag_hash in wanted.hashes:
        mask |= low == tag_hash
    return mask


def _within(picked: Sequence[int], end: int, sizes: Ints, bytes_max: int) -> tuple[list[int], int]:
    """Return which picked units an answer of so many bytes has, and before which unit the read ends.

    That is the first unit, wanted or not, whose record would not fit behind what is there. The first
    record always fits.
    """
    total = 0
    for index, unit in enumerate(picked):
        total += int(sizes[unit])
        upto = picked[index + 1] + 1 if index + 1 < len(picked) else end
        too_long = np.flatnonzero(sizes[unit + 1 : upto] > bytes_max - total)
        if len(too_long):
            return list(picked[: index + 1]), unit + 1 + int(too_long[0])
    return list(picked), end
