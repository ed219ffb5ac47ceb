"""Adopt the consume queues of a store that somebody else wrote, or whose queues cannot be trusted.

The log is dispatched from its start with `ConsumeQueues.apply(..., verify=True)`. Units gather in memory
as always; instead of being written blindly, each piece is compared with what the file holds, and only
what is missing or wrong is written. `finish` then looks at what no record vouches for:

  units behind the last record of a queue           cut
  units before its first live record                kept if they point before the log, else padding
  queues without any live record                    kept if they point before the log (a topic whose
                                                    records expired keeps its numbering), else cut
"""

import errno
import os
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import io_error
from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import OnProblem, QueueFiles, raise_problem
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING, PADDING_SIZE, UNIT_BYTES, UNIT_DTYPE
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues, last_address
from orbitmq.store.queues.load import load_queue
from orbitmq.store.queues.trim import cut_files, cut_queue, end_before, first_unit, list_bases

_READ_BYTES: Final = 50_000 * UNIT_BYTES


@dataclass(slots=True)
class QueueDifference:
    """How a queue's files differed from the log; everything named here was put right."""

    topic: str
    queue_id: int
    missing: int = 0  # units that were not there
    wrong: int = 0  # units that said something else
    beyond: int = 0  # units behind the last record

    def __bool__(self) -> bool:
        return bool(self.missing or self.wrong or self.beyond)


@dataclass(slots=True)
class QueueVerifyReport:
    """What an adoption found; no differences means that the files were as the log says."""

    differences: list[QueueDifference] = field(default_factory=list)
    bad_files: list[str] = field(
        default_factory=list
    )  # removed: their length is not that of a file

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
        self._first: dict[int, int] = {}  # queue offset of the first live record
        self._times: dict[int, list[int]] = defaultdict(list)  # store times of pending units
        self._found: dict[int, QueueDifference] = {}
        self._bad_files: list[str] = []
        self._addresses: dict[int, int] = {}  # of the last ext unit that a unit leads to

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
            queues.set_verifier(self._compare, self._first_seen)

    def note_times(self, number: int, store_ms: npt.NDArray[np.int64]) -> None:
        """Remember the store times of units that were just applied; ext units hold them."""
        self._times[number] += store_ms.tolist()

    def finish(self, log_min: int) -> QueueVerifyReport:
        """Compare what is still pending, then settle what no record vouches for."""
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

    def _difference(self, number: int) -> QueueDifference:
        found = self._found.get(number)
        if found is None:
            found = self._found[number] = QueueDifference(*self._queues.names.name(number))
        return found

    # --- while dispatching ---

    def _compare(self, number: int, first: int, data: bytearray) -> bytearray | None:
        """Return the units to write in place of what the files hold, None if they agree."""
        old = self._read_old(number, first, len(data))
        if old == data:
            self._forget_times(number, len(data) // UNIT_BYTES)
            return None
        was = np.frombuffer(old, UNIT_DTYPE)
        new = np.frombuffer(data, UNIT_DTYPE).copy()
        differs = was != new
        if self._ext is not None:
            self._resolve_ext(number, was, new, differs)
        if not differs.any():
            return None
        missing = differs & (was["size"] == 0) & (was["log_offset"] == 0)
        difference = self._difference(number)
        difference.missing += int(missing.sum())
        difference.wrong += int((differs & ~missing).sum())
        return bytearray(new.tobytes())

    def _read_old(self, number: int, first: int, length: int) -> bytes:
        """Return what the files hold there, zeros where there is no file."""
        queues, parts = self._queues, []
        file_units = queues.file_units
        while length:
            part = min(length, (file_units - first % file_units) * UNIT_BYTES)
            parts.append(queues.read_file(number, first, part).ljust(part, b"\0"))
            first += part // UNIT_BYTES
            length -= part
        return b"".join(parts)

    def _resolve_ext(
        self,
        number: int,
        was: npt.NDArray[np.void],
        new: npt.NDArray[np.void],
        differs: npt.NDArray[np.bool_],
    ) -> None:
        """Let units stand whose ext unit says the same; give new ones an ext unit of their own."""
        assert self._ext is not None
        times = self._times[number]
        for index in np.flatnonzero(differs).tolist():
            tag_hash = int(new["tag_hash"][index])
            same_record = all(
                was[name][index] == new[name][index] for name in ("log_offset", "size")
            )
            address = int(was["tag_hash"][index])
            if same_record and address <= ADDRESS_MAX:
                unit = self._ext.get(number, address)
                if unit is not None and unit.tag_hash == tag_hash:
                    new["tag_hash"][index] = address
                    differs[index] = False
                    continue
            if index < len(times):
                new["tag_hash"][index] = self._ext.put(number, tag_hash, times[index])
        self._forget_times(number, len(new))
        self._note_addresses(number, new["tag_hash"])

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

    def _forget_times(self, number: int, count: int) -> None:
        if self._ext is not None:
            del self._times[number][:count]

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
        missing = ~kept & (units["size"] == 0)
        difference = self._difference(number)
        difference.missing += int(missing.sum())
        difference.wrong += int((~kept & ~missing).sum())
        units[~kept] = np.frombuffer(PADDING, UNIT_DTYPE)[0]
        self._queues.write_units(number, file_first, units.tobytes())

    def _cut_beyond(self, number: int, bases: list[int]) -> None:
        queues = self._queues
        end = queues.next_offset(number)
        files_end = (max(bases, default=0) + queues.layout.cq_file_bytes) // UNIT_BYTES
        beyond = self._count_beyond(number, end, files_end)
        if beyond:
            self._difference(number).beyond += beyond
            cut_files(queues, number, end, files_end)
        elif end < files_end:
            later = range(-(-end // queues.file_units), files_end // queues.file_units)
            size = queues.layout.cq_file_bytes
            queues.forget_files(queues.path(number, index * size) for index in reversed(later))

    def _count_beyond(self, number: int, end: int, files_end: int) -> int:
        queues, count = self._queues, 0
        while end < files_end:
            path, position = queues.place(number, end)
            count += _units_behind(path, position)
            end = (end // queues.file_units + 1) * queues.file_units
        return count

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


def _units_behind(path: str, position: int) -> int:
    """Count the units that are not zero from `position` to the end of a file; holes are not read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    except OSError as cause:
        raise io_error(path, "open", cause) from cause
    try:
        return _count_units(fd, position)
    except OSError as cause:
        raise io_error(path, "read", cause) from cause
    finally:
        os.close(fd)


def _count_units(fd: int, position: int) -> int:
    length, count = os.fstat(fd).st_size, 0
    while position < length:
        position, end = _next_data(fd, position, length)
        data = os.pread(fd, min(end - position, _READ_BYTES), position)
        whole = len(data) // UNIT_BYTES * UNIT_BYTES
        if not whole:
            break
        if data.strip(b"\0"):
            units = np.frombuffer(data, np.uint8, whole).reshape(-1, UNIT_BYTES)
            count += int(units.any(axis=1).sum())
        position += whole
    return count


def _next_data(fd: int, position: int, length: int) -> tuple[int, int]:
    """Return the next range of whole units that may hold data; holes of the file are skipped."""
    try:
        data_at = os.lseek(fd, position, os.SEEK_DATA)
        hole_at = os.lseek(fd, data_at, os.SEEK_HOLE)
    except OSError as cause:
        # No data from here on; a file system that cannot tell has to be read.
        return (length, length) if cause.errno == errno.ENXIO else (position, length)
    start = max(position, data_at // UNIT_BYTES * UNIT_BYTES)
    return start, min(-(-hole_at // UNIT_BYTES) * UNIT_BYTES, length)
