"""Adopt the consume queues of a store that somebody else wrote, or whose queues cannot be trusted.

The log is dispatched from its start with `ConsumeQueues.apply(..., verify=True)`. Units gather in memory
as always; instead of being written blindly, each piece is compared with what the file holds, and only
what is missing or wrong is written. `finish` then looks at what no record stands behind:

  units behind the last record of a queue           cut
  units before its first live record                kept if they point before the log, else padding
  queues without any live record                    kept if they point before the log (a topic whose
                                                    records expired keeps its numbering), else cut
"""

import os
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import OnProblem, QueueFiles, raise_problem
from orbitmq.format import batch_unit
from orbitmq.format.cq_ext_unit import ADDRESS_MAX, ExtUnit, ext_address
from orbitmq.format.cq_unit import PADDING, PADDING_SIZE, UNIT_BYTES, UNIT_DTYPE
from orbitmq.store.queues.batch_queue import BatchQueue, BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues, last_address
from orbitmq.store.queues.load import load_queue
from orbitmq.store.queues.trim import cut_behind_end, cut_queue, end_before, first_unit
from orbitmq.store.queues.unit_files import list_bases
from orbitmq.store.verify.stored_units import FilePart, Flags, QueueName, StoredUnits


@dataclass(slots=True)
class QueueDifference:
    """How a queue's files differed from the log; everything named here was put right."""

    topic: str
    queue_id: int
    missing: int = 0  # units that were not there
    wrong: int = 0  # units that said something else
    beyond: int = 0  # units behind the last record

    def count(self, differs: Flags, missing: Flags) -> None:
        """Count units that differ; `missing` are those of them that were not there."""
        self.missing += int(missing.sum())
        self.wrong += int(differs.sum() - missing.sum())

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.beyond)


@dataclass(slots=True)
class QueueVerifyReport:
    """What an adoption found; no differences means that the files were as the log says."""

    differences: list[QueueDifference] = field(default_factory=list)
    # Removed: their length is not that of a file.
    bad_files: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        return sum(difference.missing for difference in self.differences)

    @property
    def wrong(self) -> int:
        return sum(difference.wrong for difference in self.differences)

    @property
    def beyond(self) -> int:
        return sum(difference.beyond for difference in self.differences)


class QueueVerifier:
    """One adoption: `begin`, dispatch the whole log, `finish`. Not thread-safe."""

    def __init__(self, queues: ConsumeQueues, ext: ExtQueues | None = None) -> None:
        self._queues = queues
        self._ext = ext
        self._stored = StoredUnits(
            queues.layout, queues.files, self._get_ext if ext is not None else None
        )
        self._first: dict[int, int] = {}  # queue offset of the first live record
        self._times: dict[int, list[int]] = defaultdict(list)  # store times of pending units
        self._found: dict[int, QueueDifference] = {}
        self._bad_files: list[str] = []
        self._addresses: dict[int, int] = {}  # of the last ext unit that a unit leads to
        self._ext_ends: dict[int, int] = {}  # what lies behind was entered here

    def begin(self, *, on_problem: OnProblem = raise_problem) -> None:
        """Forget what is known of the queues and start to compare."""
        queues = self._queues
        with queues.lock:
            queues.reset()
            if self._ext is not None:
                self._ext.reset()
            for files in queues.layout.list_queues(QueueKind.SIMPLE, on_problem=on_problem):
                number = queues.add(files.topic, files.queue_id)
                self._remove_bad_files(number)
                if self._ext is not None:
                    self._ext.load_queue(number)
                    self._ext_ends[number] = self._ext.end(number)
            queues.set_verifier(self._compare, self._first_seen)

    def note_times(self, number: int, store_ms: npt.NDArray[np.int64]) -> None:
        """Remember the store times of units that were just applied; ext units hold them."""
        self._times[number] += store_ms.tolist()

    def finish(self, log_min: int) -> QueueVerifyReport:
        """Compare what is still pending, then settle what no record stands behind."""
        queues = self._queues
        queues.write_out(thorough=True)
        with queues.lock:
            queues.set_verifier(None, None)
            for number in queues.numbers():
                if number in self._first:
                    self._finish_live(number, log_min)
                else:
                    self._finish_dead(number, log_min)
                if self._ext is not None:
                    self._end_ext(self._ext, number)
        if self._ext is not None:
            self._ext.cut_behind_ends()
        found = [difference for difference in self._found.values() if difference]
        return QueueVerifyReport(found, self._bad_files)

    def _remove_bad_files(self, number: int) -> None:
        queues = self._queues
        for base in list_bases(queues.directory(number)):
            path = queues.path(number, base)
            length = os.stat(path).st_size  # noqa: PTH116
            aligned = base % queues.layout.cq_file_bytes == 0
            if length != queues.layout.cq_file_bytes or not aligned:
                self._bad_files.append(path)
                queues.forget_files([path])

    def _first_seen(self, number: int, first: int) -> None:
        self._queues.state.set(number, low=first, high=first, end_log=0)
        self._first[number] = first

    def _get_ext(self, queue: QueueName, address: int) -> ExtUnit | None:
        """Return an ext unit that the files had: no other record's, put where a lost one was."""
        assert self._ext is not None
        number = self._queues.find(*queue)
        if address >= ext_address(self._ext_ends.get(number, 0)):
            return None
        return self._ext.get(number, address)

    def _difference(self, number: int) -> QueueDifference:
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = QueueDifference(*self._queues.names.name(number))
        return found

    # --- while dispatching ---

    def _compare(self, number: int, first: int, data: bytearray) -> bytearray | None:
        """Return the units to write in place of what the files hold, None if they agree."""
        written, changed = bytearray(data), False
        for part in self._stored.compare(self._queues.names.name(number), first, bytes(data)):
            at = part.first - first
            if self._ext is not None:
                self._put_ext(self._ext, number, at, part)
            written[at * UNIT_BYTES : (at + len(part.new)) * UNIT_BYTES] = part.new.tobytes()
            if part.differs.any():
                changed = True
                self._difference(number).count(part.differs, part.differs & part.is_empty)
        if self._ext is not None:
            del self._times[number][: len(data) // UNIT_BYTES]
        return written if changed else None

    def _put_ext(self, ext: ExtQueues, number: int, at: int, part: FilePart) -> None:
        """Give units that differ an ext unit of their own; `at`: where they begin among the pending ones."""
        times, hashes = self._times[number][at:], part.new["tag_hash"]
        for index in np.flatnonzero(part.differs[: len(times)]).tolist():
            hashes[index] = ext.put(number, int(hashes[index]), times[index])
        self._note_addresses(number, hashes)

    def _note_addresses(self, number: int, tag_hashes: npt.NDArray[np.int64]) -> None:
        addresses = tag_hashes[tag_hashes <= ADDRESS_MAX].tolist()
        if addresses:
            # A unit that was entered anew has a later ext unit than those that follow it in the queue.
            last = max(addresses)
            self._addresses[number] = max(last, self._addresses.get(number, last))

    def _end_ext(self, ext: ExtQueues, number: int) -> None:
        """Let the ext units of a queue end behind the last one that a unit leads to."""
        address = self._addresses.get(number)
        if address is None:  # no live unit
            address = last_address(self._queues, number)
        ext.end_behind(number, address)

    # --- at the end ---

    def _finish_live(self, number: int, log_min: int) -> None:
        queues = self._queues
        first = self._first[number]
        file_first = first // queues.file_units * queues.file_units
        self._settle_prefix(number, file_first, first, log_min)
        bases = list_bases(queues.directory(number))
        before = [base for base in bases if base < file_first * UNIT_BYTES]
        queues.forget_files(queues.path(number, base) for base in before)
        self._cut_beyond(number, bases)

    def _settle_prefix(self, number: int, file_first: int, first: int, log_min: int) -> None:
        """Make the units before the first live record padding, unless they point before the log."""
        if first == file_first:
            return
        length = (first - file_first) * UNIT_BYTES
        old = self._queues.read_file(number, file_first, length).ljust(length, b"\0")
        units = np.frombuffer(old, UNIT_DTYPE).copy()
        expired = (units["log_offset"] >= 0) & (units["log_offset"] < log_min)
        kept = (units["size"] > 0) & (expired | (units["size"] == PADDING_SIZE))
        if kept.all():
            return
        self._difference(number).count(~kept, ~kept & (units["size"] == 0))
        units[~kept] = np.frombuffer(PADDING, UNIT_DTYPE)[0]
        self._queues.write_units(number, file_first, units.tobytes())

    def _cut_beyond(self, number: int, bases: list[int]) -> None:
        beyond = cut_behind_end(self._queues, number, bases)
        if beyond:
            self._difference(number).beyond += beyond

    def _finish_dead(self, number: int, log_min: int) -> None:
        queues = self._queues
        bases = list_bases(queues.directory(number))
        if not bases:
            return
        topic, queue_id = queues.names.name(number)
        files = QueueFiles(topic, queue_id, bases[0], bases[-1], len(bases))
        load_queue(queues, number, files)
        low, high = queues.min_offset(number), queues.next_offset(number)
        end = first_unit(queues, number, low, high, log_min)
        if end < high:
            self._difference(number).beyond += high - end
        if end_before(queues, number, end) == 0:  # not one unit of an expired record
            queues.forget_files(queues.path(number, base) for base in reversed(bases))
            queues.state.set(number, low=0, high=0, end_log=0)
            return
        cut_queue(queues, number, end)
        queues.state.min[number] = end
        self._cut_beyond(number, bases)


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

    def first_seen(self, number: int, unit: batch_unit.BatchUnit) -> BatchQueue:
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
        old = np.frombuffer(self._read_old(number, queue), batch_unit.UNIT_DTYPE)
        differs = old != np.frombuffer(bytes(queue.pending), batch_unit.UNIT_DTYPE)
        self._found[number].count(differs, differs & (old["size"] == 0))
        return bool(differs.any())

    def _read_old(self, number: int, queue: BatchQueue) -> bytes:
        parts, first, left = [], queue.written, len(queue.pending)
        file_units = self._queues.file_units
        while left:
            length = min(left, (file_units - first % file_units) * batch_unit.UNIT_BYTES)
            parts.append(self._queues.read_file(number, first, length).ljust(length, b"\0"))
            first, left = first + length // batch_unit.UNIT_BYTES, left - length
        return b"".join(parts)

    def finish(self, log_min: int) -> list[QueueDifference]:
        """Compare the rest and cut what no record stands behind; return how the queues differed."""
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
