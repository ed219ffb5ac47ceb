"""How far each queue has come at some place of the log, from the log alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Mark, Rows, ScanOptions
from orbitmq.format.kernels import Kernels, QueueTable
from orbitmq.store.dispatch import Chunk
from orbitmq.store.log_view import LogView
from orbitmq.store.replay import LogStop, ReplayState, replay

Queue = tuple[bytes, int]
"""Topic and queue id."""


class QueueCounts:
    """The next queue offset of every queue behind the records that were added. Not thread-safe.

    `advance` reads the log only as far as it is asked to, and never twice: healthy logs never ask.
    """

    def __init__(
        self, log: LogView, start: int, kernels: Kernels, known: Mapping[Queue, int]
    ) -> None:
        self._log = log
        self._kernels = kernels
        self._at = start
        self._table = kernels.queue_table()
        self._names: list[Queue] = []
        self._next = np.zeros(64, dtype=np.int64)
        for (topic, queue_id), next_offset in known.items():
            self.set_next(topic, queue_id, next_offset)

    def advance(self, end: int) -> None:
        """Count the records up to `end`; those behind a bad place must have been skipped to before."""
        if end <= self._at:
            return
        options = ScanOptions()
        for chunk in replay(self._log, self._at, end, kernels=self._kernels, options=options):
            self.add(chunk)
        self._at = end

    def skip_to(self, log_offset: int) -> None:
        """Go on behind a bad place."""
        self._at = max(self._at, log_offset)

    def add(self, chunk: Chunk) -> None:
        rows = chunk.rows[chunk.rows["marks"] & Mark.NO_UNIT == 0]
        numbers = resolve_all(self._table, self._names, chunk.buffer, rows)
        self._grow()
        # Of several rows of one queue the last one counts: a topic that was deleted and made again
        # starts over, and its queues have what was written last.
        self._next[numbers] = rows["queue_offset"] + rows["batch_count"]

    def set_next(self, topic: bytes, queue_id: int, next_offset: int) -> None:
        number = self._table.add(topic, queue_id)
        if number == len(self._names):
            self._names.append((topic, queue_id))
            self._grow()
        self._next[number] = next_offset

    def next_offset(self, topic: bytes, queue_id: int) -> int | None:
        """Return the queue offset that comes next, None for a queue that was never seen."""
        number = self._table.find(topic, queue_id)
        return int(self._next[number]) if number >= 0 else None

    def _grow(self) -> None:
        if len(self._names) > len(self._next):
            grown = np.zeros(2 * len(self._names), dtype=np.int64)
            grown[: len(self._next)] = self._next
            self._next = grown


def resolve_all(
    table: QueueTable, names: list[Queue], buffer: Bytes, rows: Rows
) -> npt.NDArray[np.int32]:
    """Return the queue number of each row; queues that are new get a number and a name."""
    numbers = table.resolve(buffer, rows)
    unknown = rows[numbers < 0]
    if not len(unknown):
        return numbers
    for at, length, queue_id in unknown[["topic_at", "topic_length", "queue_id"]].tolist():
        queue = (buffer[at : at + length].tobytes(), queue_id)
        if table.add(*queue) == len(names):
            names.append(queue)
    return table.resolve(buffer, rows)


def first_offsets(log: LogView, start: int, kernels: Kernels) -> dict[Queue, int]:
    """Return the first queue offset of each queue from `start` on, past any bad place."""
    found: dict[Queue, int] = {}
    table, names = kernels.queue_table(), list[Queue]()
    for chunk in _all_chunks(log, start, kernels):
        rows = chunk.rows[chunk.rows["marks"] & Mark.NO_UNIT == 0]
        numbers = resolve_all(table, names, chunk.buffer, rows)
        first_numbers, first_rows = np.unique(numbers, return_index=True)
        for number, row in zip(first_numbers.tolist(), first_rows.tolist(), strict=True):
            found.setdefault(names[number], int(rows["queue_offset"][row]))
    return found


def _all_chunks(log: LogView, start: int, kernels: Kernels) -> Iterator[Chunk]:
    options = replace(ScanOptions(), check_crc=True)
    at: int | None = start
    while at is not None and at < log.max_offset:
        state = ReplayState(at)
        yield from replay(log, at, kernels=kernels, options=options, state=state)
        if state.stop is not LogStop.BAD:
            return
        at = next_record(log, state.at + 1, kernels)


def next_record(log: LogView, start: int, kernels: Kernels) -> int | None:
    """Return the first offset from `start` on of a record that names its place and passes its CRC."""
    if not log.segments or start >= log.max_offset:
        return None
    for segment in log.segments[log.index_of(start) :]:
        first = max(0, start - segment.base_offset)
        found = kernels.find_record(
            segment.data, first, segment.data_end(), segment.base_offset, check_crc=True
        )
        if found >= 0:
            return segment.base_offset + found
    return None
