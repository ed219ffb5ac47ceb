"""The index file that is being filled: slots in memory, entries gathered and written by position.

What reaches the file does so in the order entries, header, slots. A reader that comes in between may
miss the newest keys, but never follows a slot to an entry that is not there, and a Java broker that opens
the store after a crash sees from the header that the file is newer than the checkpoint and drops it.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.index_file import (
    ENTRY,
    ENTRY_BYTES,
    ENTRY_DTYPE,
    FIRST_ITEM,
    HEADER_BYTES,
    SLOT_BYTES,
    IndexHeader,
    entry_position,
)
from orbitmq.format.kernels import Kernels
from orbitmq.store.index.maps import IndexMaps
from orbitmq.units import PAGE_BYTES, MiB

BUFFER_ENTRIES: Final = 32 * 1024
"""Entries that are gathered before they are written: 640 KiB."""

_PAGE_SLOTS: Final = PAGE_BYTES // SLOT_BYTES
_READ_BYTES: Final = 4 * MiB


class OpenIndex:
    """One index file with its slots in memory. Not thread-safe; `IndexFiles` guards it."""

    def __init__(
        self, name: str, path: str, layout: StoreLayout, files: FileCache, maps: IndexMaps
    ) -> None:
        self.name = name
        self.path = path
        self.items_max = layout.index_items
        self.slots: npt.NDArray[np.int32] = np.zeros(layout.index_slots, dtype=np.int32)
        self.state: Ints = np.array(IndexHeader(), dtype=np.int64)
        self._layout = layout
        self._files = files
        self._maps = maps
        self._buffer: Bytes = np.zeros(0, dtype=np.uint8)
        self._buffer_first = FIRST_ITEM
        self._dirty = np.zeros(-(-layout.index_slots // _PAGE_SLOTS), dtype=np.bool_)
        self._header_dirty = False

    @property
    def header(self) -> IndexHeader:
        return IndexHeader._make(self.state.tolist())

    @property
    def next_item(self) -> int:
        return int(self.state[5])

    @property
    def is_full(self) -> bool:
        return self.next_item >= self.items_max

    def start(self, header: IndexHeader) -> None:
        """Begin as a new file that has this header."""
        self.state[:] = header
        self._header_dirty = True

    # --- inserting ---

    def insert(self, kernels: Kernels, items: npt.NDArray[np.void], first: int) -> int:
        """Insert items[first:] until the file is full; return how many went in."""
        done = first
        while done < len(items) and not self.is_full:
            self._make_room()
            count = kernels.index_insert(
                items,
                done,
                self.slots,
                self._buffer,
                self._buffer_first,
                self.state,
                self.items_max,
            )
            hashes = items["key_hash"][done : done + count]
            self._dirty[hashes % len(self.slots) // _PAGE_SLOTS] = True
            self._header_dirty = True
            done += count
        return done - first

    def insert_checked(self, kernels: Kernels, items: npt.NDArray[np.void]) -> npt.NDArray[np.void]:
        """Insert items whose entries are in the file already; return what they should be."""
        made = np.zeros(len(items) * ENTRY_BYTES, dtype=np.uint8)
        count = kernels.index_insert(
            items, 0, self.slots, made, self.next_item, self.state, self.items_max
        )
        assert count == len(items)
        self._buffer_first = self.next_item
        return made.view(ENTRY_DTYPE)

    def _make_room(self) -> None:
        if not len(self._buffer):
            count = min(BUFFER_ENTRIES, self.items_max)
            self._buffer = np.zeros(count * ENTRY_BYTES, dtype=np.uint8)
            self._buffer_first = self.next_item
        elif self._buffered >= len(self._buffer) // ENTRY_BYTES:
            self._write_entries()

    @property
    def _buffered(self) -> int:
        return self.next_item - self._buffer_first

    # --- reading ---

    def entry(self, number: int) -> tuple[int, int, int, int]:
        """Return key hash, log offset, seconds and previous of an entry."""
        inside = number - self._buffer_first
        if 0 <= inside < self._buffered and len(self._buffer):
            return ENTRY.unpack_from(self._buffer.data, inside * ENTRY_BYTES)
        position = entry_position(number, len(self.slots))
        data = self._maps.get(self.path)
        if position + ENTRY_BYTES > len(data):
            return (0, 0, -1, 0)  # a negative time ends any chain
        return ENTRY.unpack_from(data.data, position)

    def chain(self, key_hash: int, begin_ms: int, end_ms: int, count_max: int) -> list[int]:
        """Follow a key's chain, newest first; hash matches only."""
        found: list[int] = []
        file_begin_ms, next_item = int(self.state[0]), self.next_item
        number = int(self.slots[key_hash % len(self.slots)])
        while 0 < number < next_item and len(found) < count_max:
            entry_hash, log_offset, seconds, previous = self.entry(number)
            if seconds < 0:
                break
            store_ms = file_begin_ms + seconds * 1000
            if entry_hash == key_hash and begin_ms <= store_ms <= end_ms:
                found.append(log_offset)
            # A sound chain only goes back.
            if store_ms < begin_ms or previous >= number:
                break
            number = previous
        return found

    def read_entries(self, first: int, count: int) -> npt.NDArray[np.void]:
        """Return entries as the file holds them; fewer if it ends before."""
        position = entry_position(first, len(self.slots))
        try:
            data = self._files.read(self.path, position, count * ENTRY_BYTES)
        except StoreError as error:
            if not is_missing(error):
                raise
            data = b""
        return np.frombuffer(data, ENTRY_DTYPE, len(data) // ENTRY_BYTES)

    def read_slots(self) -> npt.NDArray[np.int32]:
        """Return the slots as the file holds them, in native byte order."""
        data = self._files.read(self.path, HEADER_BYTES, len(self.slots) * SLOT_BYTES)
        slots = np.zeros_like(self.slots)
        found = np.frombuffer(data, ">i4", len(data) // SLOT_BYTES)
        slots[: len(found)] = found
        return slots

    # --- writing ---

    def write(self) -> bool:
        """Bring the file up to date; return whether there was anything to write."""
        if not self._header_dirty and not self._dirty.any():
            return False
        self._write_entries()
        self._files.write(
            self.path, 0, self.header.encode(), file_bytes=self._layout.index_file_bytes
        )
        self._write_slots()
        self._header_dirty = False
        return True

    def _write_entries(self) -> None:
        if self._buffered and len(self._buffer):
            self.write_entries(
                self._buffer_first, self._buffer[: self._buffered * ENTRY_BYTES].data
            )
        self._buffer_first = self.next_item

    def write_entries(self, first: int, data: memoryview | bytes) -> None:
        """Write packed entries at their place."""
        position = entry_position(first, len(self.slots))
        self._files.write(self.path, position, data, file_bytes=self._layout.index_file_bytes)

    def _write_slots(self) -> None:
        """Write the changed pages of the slot table, neighbours together."""
        pages = np.flatnonzero(self._dirty)
        if not len(pages):
            return
        breaks = np.flatnonzero(np.diff(pages) > 1) + 1
        for run in np.split(pages, breaks):
            first, last = int(run[0]) * _PAGE_SLOTS, (int(run[-1]) + 1) * _PAGE_SLOTS
            data = self.slots[first:last].astype(">i4").tobytes()
            self._files.write(self.path, HEADER_BYTES + first * SLOT_BYTES, data)
        self._dirty[:] = False

    def mark_all_dirty(self) -> None:
        """Write everything with the next `write`."""
        self._dirty[:] = True
        self._header_dirty = True

    def mark_clean(self) -> None:
        """The file holds everything already."""
        self._dirty[:] = False
        self._header_dirty = False

    # --- taking over a file that is there ---

    def load(self, header: IndexHeader) -> None:
        """Go on with a file as it is."""
        self.state[:] = header
        self.slots = self.read_slots()
        self._buffer_first = self.next_item

    def load_prefix(self, header: IndexHeader) -> None:
        """Go on with the entries before `header.next_item`; what lies behind them does not count.

        Slots are made from the entries: those in the file may already lead past the end, because they
        were written after the moment that is gone back to.
        """
        self.state[:] = header
        self._buffer_first = self.next_item
        self._buffer = np.zeros(0, dtype=np.uint8)
        self.slots[:] = 0
        number = FIRST_ITEM
        while number < self.next_item:
            count = min(_READ_BYTES // ENTRY_BYTES, self.next_item - number)
            entries = self.read_entries(number, count)
            if not len(entries):
                break
            self.add_to_slots(entries, number)
            number += len(entries)
        self.state[4] = np.count_nonzero(self.slots)
        self.mark_all_dirty()

    def add_to_slots(self, entries: npt.NDArray[np.void], first: int) -> None:
        """Let the slots lead to these entries; of several in one slot, to the last."""
        places = entries["key_hash"].astype(np.int64) % len(self.slots)
        self.slots[places] = np.arange(first, first + len(entries), dtype=np.int32)
