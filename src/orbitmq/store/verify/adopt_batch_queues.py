"""Adopt the batch queues of a store: as `verify/adopt_queues.py`, for the other family of queues."""

import numpy as np

from orbitmq.files.listing import OnProblem, raise_problem
from orbitmq.format.batch_unit import UNIT_BYTES, UNIT_DTYPE, BatchUnit
from orbitmq.store.queues.batch_queue import BatchQueue, BatchQueues
from orbitmq.store.verify.adopt_queues import QueueDifference


class BatchVerifier:
    """One adoption: `begin`, dispatch the whole log, `finish`. Not thread-safe."""

    def __init__(self, queues: BatchQueues) -> None:
        self._queues = queues
        self._found: dict[int, QueueDifference] = {}  # queues with a live record
        self._disk_end: dict[int, int] = {}

    def begin(self, *, on_problem: OnProblem = raise_problem) -> None:
        """Take what the files show, to compare it with."""
        self._queues.reset()
        self._queues.load_files(on_problem=on_problem)
        for number in self._queues.numbers():
            self._disk_end[number] = self._queues.queue(number).end
        self._queues.verifier = self

    def first_seen(self, number: int, unit: BatchUnit) -> BatchQueue:
        """Return the queue that takes this unit; find its place if it is the queue's first.

        Units before the first live one belong to expired records, and stay.
        """
        queue = self._queues.queue(number)
        if number in self._found:
            return queue
        self._found[number] = QueueDifference(*self._queues.names.name(number))
        start = self._queues.first_unit(number, unit.log_offset)
        return self._queues.set_queue(number, BatchQueue(queue.first, start, start, start))

    def differs(self, number: int, queue: BatchQueue) -> bool:
        """Compare pending units with the files."""
        old = np.frombuffer(self._read_old(number, queue), UNIT_DTYPE)
        differs = old != np.frombuffer(bytes(queue.pending), UNIT_DTYPE)
        missing = differs & (old["size"] == 0)
        self._found[number].missing += int(missing.sum())
        self._found[number].wrong += int((differs & ~missing).sum())
        return bool(differs.any())

    def _read_old(self, number: int, queue: BatchQueue) -> bytes:
        parts, first, left = [], queue.written, len(queue.pending)
        file_units = self._queues.file_units
        while left:
            length = min(left, (file_units - first % file_units) * UNIT_BYTES)
            parts.append(self._queues.read_file(number, first, length).ljust(length, b"\0"))
            first, left = first + length // UNIT_BYTES, left - length
        return b"".join(parts)

    def finish(self, log_min: int) -> list[QueueDifference]:
        """Compare the rest and cut what no record vouches for; return how the queues differed."""
        queues = self._queues
        queues.write_out()
        queues.verifier = None
        for number in queues.numbers():
            if number not in self._found:
                self._found[number] = QueueDifference(*queues.names.name(number))
                self._keep_expired(number, log_min)
            end = queues.queue(number).end
            self._found[number].beyond += max(self._disk_end.get(number, 0) - end, 0)
            queues.cut_files(number, end)
        return [difference for difference in self._found.values() if difference]

    def _keep_expired(self, number: int, log_min: int) -> None:
        """Keep the numbering of a queue whose records all expired; forget one that leads nowhere."""
        end = self._queues.first_unit(number, log_min)
        if end == self._queues.queue(number).first:
            self._queues.set_queue(number, BatchQueue())
            return
        self._queues.set_end(number, end)
        queue = self._queues.queue(number)
        queue.min_offset = queue.next_offset
