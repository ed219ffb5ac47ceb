"""ConsumeQueueExt: tag, store time and filter bitmap of each message, beside its queue.

With `enableConsumeQueueExt` the third field of a queue unit is not the tag hash but the address of an
ext unit. Ext units are gathered in memory and written like queue units, before the queue units that
point to them.
"""

import logging
from typing import Final

import numpy as np

from orbitmq.errors import FormatError, WrongFileError
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_ext_unit import (
    ADDRESS_MAX,
    END_MARK,
    HEAD_BYTES,
    ExtUnit,
    decode_ext_unit,
    ext_address,
    ext_offset,
    fits,
)
from orbitmq.format.cq_unit import UNIT_DTYPE
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.queues.unit_files import UnitFiles
from orbitmq.units import KiB

log = logging.getLogger(__name__)

PENDING_BYTES: Final = 64 * KiB

_UNITS_BACK: Final = 512
_USUAL_BYTES: Final = 64  # a unit with the default bitmap has 34


class ExtQueues(UnitFiles):
    """The ext files of all queues. Any thread may read; only one at a time dispatches."""

    def __init__(self, layout: StoreLayout, files: FileCache, names: QueueNames) -> None:
        super().__init__(layout, files, names, QueueKind.EXT, unit_bytes=1)
        # Guarded by the lock.
        self._end: dict[int, int] = {}  # by queue number: byte offset over all its ext files
        self._pending: dict[int, bytearray] = {}  # the last bytes before `_end`
        self._pending_bytes = 0

    def put(self, number: int, tag_hash: int, store_ms: int, bitmap: bytes = b"") -> int:
        """Add an ext unit; return what the queue unit is to hold: its address.

        A unit that cannot be kept is no loss: the queue unit then holds the plain tag hash.
        """
        try:
            unit = ExtUnit(tag_hash, store_ms, bitmap).encode()
        except FormatError as error:
            log.warning("ext unit of queue %s/%d left out: %s", *self.names.name(number), error)
            return tag_hash
        if not fits(0, len(unit), self.file_bytes):
            return tag_hash
        with self.lock:
            end = self._end.get(number, 0)
            position = end % self.file_bytes
            if not fits(position, len(unit), self.file_bytes):
                end = self._hold(number, END_MARK.ljust(self.file_bytes - position, b"\0"))
            self._hold(number, unit)
        return ext_address(end)

    def get(self, number: int, address: int) -> ExtUnit | None:
        """Return the unit at an address, None if it cannot be read (a filter then lets it pass)."""
        try:
            offset = ext_offset(address)
            data = self._read(number, offset, _USUAL_BYTES)
            if len(data) >= HEAD_BYTES:
                size = int.from_bytes(data[:2], "big", signed=True)
                if size > len(data):
                    data = self._read(number, offset, size)
            return decode_ext_unit(data)
        except FormatError:
            return None

    def end(self, number: int) -> int:
        """Return where the next ext unit of a queue goes, 0 if it has none."""
        return self._end.get(number, 0)

    def ends(self) -> dict[int, int]:
        """Return the ends of all queues that have ext units; for a snapshot."""
        with self.lock:
            return dict(self._end)

    def _hold(self, number: int, data: bytes) -> int:
        held = self._pending.setdefault(number, bytearray())
        held += data
        self._pending_bytes += len(data)
        self._end[number] = end = self._end.get(number, 0) + len(data)
        return end

    def _read(self, number: int, offset: int, length: int) -> bytes:
        """Return up to `length` bytes, to the end of one file at most."""
        with self.lock:
            end, held = self._end.get(number, 0), self._pending.get(number, b"")
            length = min(length, self.file_bytes - offset % self.file_bytes, end - offset)
            if length <= 0:
                return b""
            written = end - len(held)
            if offset >= written:
                return bytes(held[offset - written : offset - written + length])
            # A unit is never half written: the part in the file is all of it.
            length = min(length, written - offset)
        return self.read_file(number, offset, length)

    # --- files ---

    def spill(self) -> None:
        """Write if much is pending. Call it before queue units are written."""
        if self._pending_bytes >= PENDING_BYTES:
            self.write_out()

    def write_out(self) -> None:
        """Hand everything pending to the operating system."""
        with self.lock:
            for number in list(self._pending):
                held = self._pending[number]
                self.write_units(number, self._end[number] - len(held), held)
                del self._pending[number]
                self._pending_bytes -= len(held)

    # --- load and cut ---

    def reset(self) -> None:
        """Forget all ends and whatever is pending."""
        with self.lock:
            self._end.clear()
            self._pending.clear()
            self._pending_bytes = 0

    def delete_queue(self, number: int) -> None:
        """Remove all ext files of a queue."""
        with self.lock:
            self._pending_bytes -= len(self._pending.pop(number, b""))
            self._end.pop(number, None)
            self.cut_files(number, 0)

    def load_end(self, number: int, end: int) -> None:
        """Take a queue's end from a snapshot."""
        with self.lock:
            self._end[number] = end

    def has_files(self, number: int) -> bool:
        return bool(self.bases(number))

    def load_queue(self, number: int) -> None:
        """Find a queue's end in its files: behind the last unit of the last file."""
        bases = self.bases(number)
        if not bases:
            self._end.pop(number, None)
            return
        data = self.read_file(number, bases[-1], self.file_bytes)
        with self.lock:
            self._end[number] = bases[-1] + _scan_end(data)

    def end_behind(self, number: int, address: int | None) -> None:
        """Let a queue end behind the unit at this address, None: before its first one.

        Its files are cut by `cut_behind_ends`.
        """
        with self.lock:
            self.write_out()
            if address is None:
                self._end.pop(number, None)
                return
            unit = self.get(number, address)
            self._end[number] = ext_offset(address) + (unit.size if unit is not None else 0)

    def cut_behind_ends(self) -> None:
        """Cut what the files hold behind the end of each queue: no queue unit leads there.

        After a crash those are units of records that did not survive. Left there, they would come to light
        when the files are loaded, as a Java broker does at every start.
        """
        with self.lock:
            self.write_out()
            for files in self.layout.list_queues(QueueKind.EXT, on_problem=_ignore):
                if files.file_count:
                    number = self.names.find(files.topic, files.queue_id)
                    directory = f"{self._root}/{files.topic}/{files.queue_id}"
                    self.cut_directory(directory, self.end(number))

    def delete_before(self, number: int, address: int) -> None:
        """Delete files whose units all lie before this address; never the last file."""
        offset = ext_offset(address)
        for base in self.bases(number)[:-1]:
            if base + self.file_bytes > offset:
                break
            self.forget_files([self.path(number, base)])


def _scan_end(data: bytes) -> int:
    """Return the position behind the last whole unit of an ext file."""
    position = 0
    while True:
        try:
            unit = decode_ext_unit(data, position)
        except FormatError:  # zeros, the end mark, or garbage
            return position
        position += unit.size


def _ignore(problem: WrongFileError) -> None:
    """What is no ext file is nobody's to cut."""


def trim_ext(ext: ExtQueues, queues: ConsumeQueues) -> None:
    """Delete ext files that lie wholly before the first live unit of their queue."""
    for number in ext.ends():
        low = queues.min_offset(number)
        units = np.frombuffer(queues.read_units(number, low, 1), UNIT_DTYPE)
        if len(units) and units["tag_hash"][0] <= ADDRESS_MAX:
            ext.delete_before(number, int(units["tag_hash"][0]))


def last_address(queues: ConsumeQueues, number: int) -> int | None:
    """Return the ext address in the last unit of a queue that has one."""
    end = queues.next_offset(number)
    while end > 0:
        start = max(end - _UNITS_BACK, (end - 1) // queues.file_units * queues.file_units)
        data = queues.read_raw(number, start, end - start)
        tags = np.frombuffer(data, UNIT_DTYPE)["tag_hash"]
        addresses = np.flatnonzero(tags <= ADDRESS_MAX)
        if len(addresses):
            return int(tags[addresses[-1]])
        if not len(tags):
            return None
        end = start
    return None
