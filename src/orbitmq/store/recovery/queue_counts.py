"""How far each queue has come at some place of the log, from the log alone."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.format.columns import Bytes, Mark, Rows, ScanOptions
from orbitmq.format.kernels import Kernels, QueueTable
from orbitmq.log_read import Chunk, LogStop, LogView, ReadState, find_record, replay

Queue = tuple[bytes, int]
"""Topic and queue id."""

UNSEEN: Final = -1


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
        self._next = np.full(64, UNSEEN, dtype=np.int64)
        self._doubtful = self._next.copy()  # behind each queue's last record, whatever its number
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
        """Count the records of a chunk.

        A number that does not continue its queue counts only when the next record of that queue goes
        on from it. No checksum covers a header: one wrong number must not make all that follow look
        like stale bytes. (A topic that was deleted and made again does start over.)
        """
        rows = chunk.rows[chunk.rows["marks"] & Mark.NO_UNIT == 0]
        if not len(rows):
            return
        numbers = resolve_all(self._table, self._names, chunk.buffer, rows)
        self._grow()
        order = np.argsort(numbers, kind="stable")
        numbers, rows = numbers[order], rows[order]
        ends = rows["queue_offset"] + rows["batch_count"]
        first = np.ones(len(rows), dtype=bool)
        first[1:] = numbers[1:] != numbers[:-1]
        expected = np.concatenate(([0], ends[:-1]))
        starts = numbers[first]
        expected[first] = self._doubtful[starts]
        follows = rows["queue_offset"] == expected
        follows[first] |= rows["queue_offset"][first] == self._next[starts]
        # A queue's very first number is believed at once only if it is what queues start with, and the
        # record names its own place: else its header is damaged.
        begins = (rows["queue_offset"] == 0) & (rows["marks"] & Mark.OFFSET_WRONG == 0)
        follows[first] |= (self._next[starts] == UNSEEN) & begins[first]
        # Of several rows of one queue the last assignment stays.
        self._next[numbers[follows]] = ends[follows]
        self._doubtful[numbers] = ends

    def set_next(self, topic: bytes, queue_id: int, next_offset: int) -> None:
        number = self._table.add(topic, queue_id)
        if number == len(self._names):
            self._names.append((topic, queue_id))
            self._grow()
        self._next[number] = self._doubtful[number] = next_offset

    def next_offset(self, topic: bytes, queue_id: int) -> int | None:
        """Return the queue offset that comes next, None if that is not known for sure."""
        number = self._table.find(topic, queue_id)
        known = int(self._next[number]) if number >= 0 else UNSEEN
        return known if known != UNSEEN else None

    def likely_next(self, topic: bytes, queue_id: int) -> int | None:
        """Return the same; what a single record says will do."""
        known = self.next_offset(topic, queue_id)
        number = self._table.find(topic, queue_id)
        if known is not None or number < 0 or self._doubtful[number] == UNSEEN:
            return known
        return int(self._doubtful[number])

    def _grow(self) -> None:
        if len(self._names) > len(self._next):
            more = np.full(2 * len(self._names) - len(self._next), UNSEEN, dtype=np.int64)
            self._next = np.concatenate((self._next, more))
            self._doubtful = np.concatenate((self._doubtful, more))


def resolve_all(
    table: QueueTable, names: list[Queue], buffer: Bytes, rows: Rows
) -> npt.NDArray[np.int32]:
    """Return the queue number of each row; queues that are new get a number and a name."""
    numbers = table.resolve(buffer, rows)
    unknown = rows[numbers < 0]
    if not len(unknown):
        return numbers
    seen: set[Queue] = set()  # calls of the table are dear, and a first chunk is full of new queues
    for at, length, queue_id in unknown[["topic_at", "topic_length", "queue_id"]].tolist():
        queue = (buffer[at : at + length].tobytes(), queue_id)
        if queue not in seen:
            seen.add(queue)
            if table.add(*queue) == len(names):
                names.append(queue)
    return table.resolve(buffer, rows)


def queue_of(buffer: Bytes, row: np.void) -> Queue:
    """Return the queue that a record names."""
    at, length = int(row["topic_at"]), int(row["topic_length"])
    return buffer[at : at + length].tobytes(), int(row["queue_id"])


class GoesOn(NamedTuple):
    """With what a queue goes on behind a bad place."""

    queue_offset: int
    bad_bytes: int  # of other bad places before that record: messages may be lost there, too


def first_records(log: LogView, start: int, end: int, kernels: Kernels) -> dict[Queue, GoesOn]:
    """Return the first record of each queue from `start` to about `end`, past any bad place.

    Queues come in the order in which they go on.
    """
    found: dict[Queue, GoesOn] = {}
    table, names = kernels.queue_table(), list[Queue]()
    for chunk, bad_bytes in _all_chunks(log, start, kernels):
        if chunk.rows["log_offset"][0] >= end:
            break
        rows = chunk.rows[chunk.rows["marks"] & Mark.NO_UNIT == 0]
        numbers = resolve_all(table, names, chunk.buffer, rows)
        first_numbers, first_rows = np.unique(numbers, return_index=True)
        for row, number in sorted(zip(first_rows.tolist(), first_numbers.tolist(), strict=True)):
            found.setdefault(names[number], GoesOn(int(rows["queue_offset"][row]), bad_bytes))
    return found


def _all_chunks(log: LogView, start: int, kernels: Kernels) -> Iterator[tuple[Chunk, int]]:
    """Yield what can be read from `start` on, each chunk with the bytes that were passed over by then."""
    options = replace(ScanOptions(), check_crc=True)
    at: int | None = start
    bad_bytes = 0
    while at is not None and at < log.max_offset:
        state = ReadState(at)
        for chunk in replay(log, at, kernels=kernels, options=options, state=state):
            yield chunk, bad_bytes
        if state.stop is not LogStop.BAD:
            return
        at = next_record(log, state.at + 1, kernels)
        if at is not None:
            bad_bytes += at - state.at


def next_record(log: LogView, start: int, kernels: Kernels) -> int | None:
    """Return the first offset from `start` on of a record that names its place and passes its CRC."""
    if not log.segments or start >= log.max_offset:
        return None
    for segment in log.segments[log.index_of(start) :]:
        first = max(segment.base_offset, start)
        found = find_record(segment, first, segment.base_offset + segment.data_end(), kernels)
        if found is not None:
            return found
    return None
