"""The queues of BatchCQ topics: one 46-byte unit per record, which may be a batch of messages.

A unit's number is not a queue offset: units stand one after another in log order, and an offset is found
by halving over their base offsets. There are few such topics, so each queue is an object of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem, QueueFiles, raise_problem
from orbitmq.files.positioned import FileCache
from orbitmq.format.batch_unit import UNIT_BYTES, UNIT_DTYPE, BatchUnit, decode_units
from orbitmq.format.snapshot import QueueState
from orbitmq.store.queues.load import FILES_BACK
from orbitmq.store.queues.names import BATCH, QueueNames
from orbitmq.store.queues.unit_files import UnitFiles
from orbitmq.units import PAGE_BYTES, KiB

PENDING_BYTES: Final = 4 * KiB
NO_OFFSET: Final = -1

Units = npt.NDArray[np.void]  # of UNIT_DTYPE


@dataclass(slots=True)
class BatchQueue:
    """One queue. `first`, `written`, `flushed` and `end` count units from the start of file 0."""

    first: int = 0  # first unit of the first file
    end: int = 0
    written: int = 0
    flushed: int = 0
    pending: bytearray = field(default_factory=bytearray)  # units [written, end)
    min_offset: int = NO_OFFSET  # queue offset; NO_OFFSET: no unit yet
    next_offset: int = 0
    last_log: int = NO_OFFSET  # where the last unit's record starts


class Verifier(Protocol):
    """What compares units with the files while a store is adopted (`verify/adopt_batch_queues.py`)."""

    def first_seen(self, number: int, unit: BatchUnit) -> BatchQueue:
        """Return the queue that takes this unit; find its place if it is the queue's first."""

    def differs(self, number: int, queue: BatchQueue) -> bool:
        """Tell whether the pending units have to be written."""


class BatchQueues(UnitFiles):
    """All batch queues. Any thread may read; only one at a time dispatches."""

    def __init__(self, layout: StoreLayout, files: FileCache, names: QueueNames) -> None:
        super().__init__(layout, files, names, QueueKind.BATCH, UNIT_BYTES)
        self._queues: dict[int, BatchQueue] = {}  # guarded by the lock
        self.verifier: Verifier | None = None  # while a store is adopted

    def add(self, topic: str, queue_id: int) -> int:
        """Return the number of this queue, a new one if it was not known."""
        number = self.names.add(topic, queue_id, BATCH)
        self.queue(number)
        return number

    def find(self, topic: str, queue_id: int) -> int:
        """Return the number of this queue, or -1."""
        number = self.names.find(topic, queue_id)
        return number if number in self._queues else -1

    def numbers(self) -> list[int]:
        return list(self._queues)

    def queue(self, number: int) -> BatchQueue:
        """Return the state of a queue."""
        with self.lock:
            return self._queues.setdefault(number, BatchQueue())

    def set_queue(self, number: int, queue: BatchQueue) -> BatchQueue:
        """Put another state in the place of a queue's."""
        with self.lock:
            self._queues[number] = queue
        return queue

    # --- dispatch ---

    def put(self, number: int, unit: BatchUnit) -> None:
        """Take the unit of the next record; one that was handed over before changes nothing."""
        with self.lock:
            queue = self.queue(number)
            if self.verifier is not None:
                queue = self.verifier.first_seen(number, unit)
            if unit.log_offset <= queue.last_log:
                return
            queue.pending += unit.encode()
            queue.end += 1
            queue.last_log = unit.log_offset
            queue.next_offset = unit.end_offset
            if queue.min_offset == NO_OFFSET:
                queue.min_offset = unit.base_offset

    # --- reading ---

    def min_offset(self, number: int) -> int:
        """Return the first live queue offset, -1 when there never was a unit."""
        return self.queue(number).min_offset

    def next_offset(self, number: int) -> int:
        """Return the queue offset behind the last message."""
        return self.queue(number).next_offset

    def end_log_offset(self, number: int) -> int:
        """Return where the last record *starts*: so RocketMQ's max physic offset of this family."""
        return self.queue(number).last_log

    def unit_range(self, number: int) -> tuple[int, int]:
        """Return the numbers of the first unit that is kept and of the next one."""
        queue = self.queue(number)
        return queue.first, queue.end

    def read_units(self, number: int, queue_offset: int, count: int) -> list[BatchUnit]:
        """Return units from the one that holds this queue offset on, to the end of one file at most."""
        with self.lock:
            queue = self.queue(number)
            if not max(queue.min_offset, 0) <= queue_offset < queue.next_offset:
                return []
            start = self.unit_at(number, queue_offset)
            return decode_units(self.read_raw(number, start, count).tobytes())

    def unit_at(self, number: int, queue_offset: int) -> int:
        """Return the number of the last unit whose base is not past this queue offset."""
        low, high = self.unit_range(number)
        while high - low > 1:
            middle = (low + high) // 2
            unit = self.read_raw(number, middle, 1)
            if len(unit) and unit["base_offset"][0] > queue_offset:
                high = middle
            else:
                low = middle
        return low

    def read_raw(self, number: int, first: int, count: int) -> Units:
        """Return up to `count` units by their own numbers, to the end of one file at most."""
        file_end = (first // self.file_units + 1) * self.file_units
        with self.lock:
            queue = self.queue(number)
            last = min(first + count, queue.end, file_end)
            skip = max(first - queue.written, 0) * UNIT_BYTES
            tail = bytes(queue.pending[skip : max(last - queue.written, 0) * UNIT_BYTES])
            wanted = (min(last, queue.written) - first) * UNIT_BYTES
        head = self.read_file(number, first, wanted) if wanted > 0 else b""
        data = head + tail if len(head) == max(wanted, 0) else head
        return np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)

    # --- writing ---

    def spill(self) -> None:
        """Write what has become too much to hold."""
        for number, queue in list(self._queues.items()):
            if len(queue.pending) >= PENDING_BYTES:
                self._write_queue(number, queue)

    def write_out(self) -> None:
        """Hand everything pending to the operating system."""
        for number, queue in list(self._queues.items()):
            self._write_queue(number, queue)

    def _write_queue(self, number: int, queue: BatchQueue) -> None:
        with self.lock:
            if queue.pending:
                if self.verifier is None or self.verifier.differs(number, queue):
                    self.write_units(number, queue.written, queue.pending)
                queue.written += len(queue.pending) // UNIT_BYTES
                queue.pending = bytearray()

    def sync(self) -> None:
        """Make everything durable that was written out."""
        with self.lock:
            written = {number: queue.written for number, queue in self._queues.items()}
        super().sync()
        for number, count in written.items():
            self._queues[number].flushed = min(count, self._queues[number].written)

    def flush(self, least_pages: int) -> int:
        """Flush everything if some queue has so many pages more than are flushed; return how many have."""
        due = [queue for queue in list(self._queues.values()) if _pages(queue) >= least_pages]
        if due:
            self.write_out()
            self.sync()
        return len(due)

    # --- load and cut ---

    def reset(self) -> None:
        """Forget all queues and whatever is pending."""
        with self.lock:
            self._queues.clear()

    def delete_topic(self, topic: str, disk: Disk) -> None:
        """Remove all batch queues of a topic with their files. A queue that comes again starts at 0."""
        for number in [no for no in self.numbers() if self.names.name(no)[0] == topic]:
            with self.lock:
                self.set_queue(number, BatchQueue())
                self.cut_files(number, 0)
            if Path(self.directory(number)).is_dir():
                disk.remove_directory(self.directory(number))

    def states(self) -> list[QueueState]:
        """Return all queues for a snapshot."""
        with self.lock:
            return [
                QueueState(
                    BATCH,
                    *self.names.name(number),
                    queue.min_offset,
                    queue.next_offset,
                    queue.last_log,
                    # Here the last field is the number of units: it cannot be told from the offsets.
                    queue.end,
                )
                for number, queue in self._queues.items()
            ]

    def load_states(self, states: Iterable[QueueState]) -> None:
        """Take the batch queues of a snapshot as they are."""
        for state in states:
            if state.kind != BATCH:
                continue
            number = self.add(state.topic, state.queue_id)
            queue = self.queue(number)
            bases = self.bases(number)
            queue.first = bases[0] // UNIT_BYTES if bases else 0
            queue.end = queue.written = queue.flushed = state.ext_end
            queue.min_offset, queue.next_offset = state.min_offset, state.next_offset
            queue.last_log = state.end_log_offset

    def check_states(self) -> list[str]:
        """Look whether the last unit of each queue is in its file; return what is wrong."""
        problems = []
        for number, queue in list(self._queues.items()):
            if queue.end == queue.first:
                continue
            unit = self.read_raw(number, queue.end - 1, 1)
            if not len(unit) or unit["log_offset"][0] != queue.last_log:
                path = self.place(number, queue.end - 1)[0]
                problems.append(f"{path}: the queue's last unit is not there")
        return problems

    def load_files(self, *, on_problem: OnProblem = raise_problem) -> None:
        """Take all batch queues as their files show them, by the rule of simple queues."""
        for files in self.layout.list_queues(QueueKind.BATCH, on_problem=on_problem):
            number = self.add(files.topic, files.queue_id)
            with self.lock:
                self._load_queue(number, files)

    def _load_queue(self, number: int, files: QueueFiles) -> None:
        queue = self.set_queue(number, BatchQueue())
        if not files.file_count:
            return
        queue.first = files.first_base // UNIT_BYTES
        files_end = files.last_base // UNIT_BYTES + self.file_units
        file_back = files.last_base // UNIT_BYTES - FILES_BACK * self.file_units
        queue.end = queue.written = queue.flushed = files_end
        end = max(queue.first, file_back)
        while end < files_end:
            units = self.read_raw(number, end, self.file_units)
            good = _valid_count(units)
            end += good
            if good < self.file_units:
                break
        self.set_end(number, end)

    def set_end(self, number: int, end: int) -> None:
        """Set a queue whose units all lie in its files."""
        queue = self.queue(number)
        queue.end = queue.written = queue.flushed = end
        queue.pending = bytearray()
        queue.min_offset, queue.next_offset, queue.last_log = NO_OFFSET, 0, NO_OFFSET
        if end > queue.first:
            head, tail = (
                self.read_raw(number, queue.first, 1)[0],
                self.read_raw(number, end - 1, 1)[0],
            )
            queue.min_offset = int(head["base_offset"])
            queue.next_offset = int(tail["base_offset"]) + int(tail["message_count"])
            queue.last_log = int(tail["log_offset"])

    def correct_min(self, log_min: int) -> None:
        """Move min offsets to the first unit whose record is still in the log."""
        for number, queue in list(self._queues.items()):
            if queue.end == queue.first or log_min <= 0:
                continue
            with self.lock:
                first = self.first_unit(number, log_min)
                unit = self.read_raw(number, first, 1)
                base = int(unit["base_offset"][0]) if len(unit) else queue.next_offset
                queue.min_offset = max(queue.min_offset, base)

    def delete_before(self, log_min: int) -> int:
        """Delete whole files of units before `log_min`, never a queue's last one; return how many."""
        self.correct_min(log_min)
        deleted = 0
        for number, queue in list(self._queues.items()):
            self._write_queue(number, queue)  # else the last file could be one that is wholly dead
            for base in self.bases(number)[:-1]:
                last = self.read_raw(number, base // UNIT_BYTES + self.file_units - 1, 1)
                if len(last) and last["log_offset"][0] >= log_min:
                    break
                with self.lock:
                    queue.first = base // UNIT_BYTES + self.file_units
                    self.forget_files([self.path(number, base)])
                deleted += 1
        return deleted

    def first_unit(self, number: int, log_offset: int) -> int:
        """Return the number of the first unit at or behind a log offset."""
        low, high = self.unit_range(number)
        while low < high:
            middle = (low + high) // 2
            unit = self.read_raw(number, middle, 1)
            if len(unit) and unit["log_offset"][0] >= log_offset:
                high = middle
            else:
                low = middle + 1
        return low


def _pages(queue: BatchQueue) -> int:
    return (queue.end * UNIT_BYTES) // PAGE_BYTES - (queue.flushed * UNIT_BYTES) // PAGE_BYTES


def _valid_count(units: Units) -> int:
    placed = (units["log_offset"] >= 0) & (units["size"] > 0)
    valid = placed & (units["base_offset"] >= 0) & (units["message_count"] > 0)
    return len(units) if valid.all() else int(valid.argmin())
