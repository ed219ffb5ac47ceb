"""The key index of a store: key -> log offsets, in files of fixed size that are filled one after another.

Invariants:
  files are in order of their names; all but the last are full, or their span was over (indexFileRollInterval)
  entries are in log order, over all files
  end_log_offset is the record of the newest entry; a record at or before it is never inserted again

(The Java store inserts the very last indexed record a second time when it is dispatched again.
Here a record is inserted whole or not at all, so there is no reason to.)
"""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.clock import Clock
from orbitmq.errors import FormatError, StoreError, io_error
from orbitmq.files.disk import Disk, is_missing
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.index_file import (
    FIRST_ITEM,
    HEADER_BYTES,
    IndexHeader,
    decode_header,
    key_hash,
)
from orbitmq.format.kernels import Kernels
from orbitmq.format.segment_name import index_file_name, is_index_file_name
from orbitmq.format.snapshot import IndexState
from orbitmq.store.index.maps import IndexMaps
from orbitmq.store.index.open import OpenIndex
from orbitmq.units import SECOND_MS

log = logging.getLogger(__name__)

CREATE_TRIES: Final = 3
NOTHING: Final = -1

Items = npt.NDArray[np.void]  # of columns.ITEM


@dataclass(slots=True)
class FullIndex:
    """An index file that takes no more entries."""

    name: str
    path: str
    header: IndexHeader

    @property
    def next_item(self) -> int:
        return self.header.next_item


class IndexFiles:
    """All index files. Any thread may query; only one at a time inserts."""

    def __init__(
        self,
        layout: StoreLayout,
        files: FileCache,
        disk: Disk,
        kernels: Kernels,
        clock: Clock,
        *,
        enabled: bool = True,
        roll_ms: int = 0,
        files_max: int = 0,
    ) -> None:
        self.layout = layout
        self.enabled = enabled  # messageIndexEnable
        self.files_max = files_max  # maxIndexFileNum; 0: no limit
        self.roll_ms = roll_ms  # indexFileRollInterval; 0: files are filled
        self.failed = False  # a new file could not be created; keys wait in memory
        self.files = files
        self.kernels = kernels
        self._clock = clock
        self._maps = IndexMaps(disk)
        self.lock = threading.RLock()  # guards everything below
        self.full: list[FullIndex] = []
        self.current: OpenIndex | None = None
        self.full_ms = 0  # end of the newest file that is full and synced (checkpoint index_ms)
        self._end = NOTHING
        self._waiting: Items | None = None
        self._unsynced_full: list[FullIndex] = []
        self._current_unsynced = False

    def use(self, kernels: Kernels) -> None:
        """Insert and search with other kernels from now on."""
        with self.lock:
            self.kernels = kernels

    @property
    def end_log_offset(self) -> int:
        """The log offset of the newest record whose keys are in the index, -1 if there is none."""
        return self._end

    @property
    def names(self) -> list[str]:
        """The names of all files, oldest first."""
        with self.lock:
            return [file.name for file in self._all()]

    def headers(self) -> list[tuple[str, IndexHeader]]:
        """Return name and header of every file, oldest first."""
        with self.lock:
            return [(file.name, file.header) for file in self._all()]

    def _all(self) -> list[FullIndex | OpenIndex]:
        return [*self.full, *([self.current] if self.current is not None else [])]

    # --- inserting ---

    def insert(self, items: Items, *, unseen: bool = False) -> None:
        """Insert the keys of the next records, in log order; records seen before are left out.

        `unseen`: the caller knows that none of them is entered, though a part of the first record's
        keys may be.
        When a new file cannot be created the rest waits in memory, `failed` is set and the error is
        raised; the next call goes on where this one ended.
        """
        if not self.enabled:
            return
        with self.lock:
            fresh = self._with_waiting(items if unseen else self._unseen(items))
            if len(fresh):
                self._end = int(fresh["log_offset"][-1])
                self._insert_all(fresh)

    def _unseen(self, items: Items) -> Items:
        if not len(items) or items["log_offset"][0] > self._end:
            return items
        return items[items["log_offset"] > self._end]

    def _with_waiting(self, items: Items) -> Items:
        if self._waiting is None:
            return items
        joined: Items = np.concatenate([self._waiting, items])
        self._waiting = None
        return joined

    def _insert_all(self, items: Items) -> None:
        done = 0
        try:
            while done < len(items):
                file = self._open_for_insert(int(items["store_ms"][done]))
                done += file.insert(self.kernels, items[: self._span_end(file, items, done)], done)
                self._current_unsynced = True
        except StoreError:
            self._waiting = items[done:].copy()
            raise

    def _open_for_insert(self, store_ms: int) -> OpenIndex:
        """Return the file for an entry of this time, after rolling if the last one is full or too old."""
        current = self.current
        if current is not None and (current.is_full or store_ms >= self._end_ms(current)):
            self._seal()
        if self.current is None:
            self.current = self._create()
            self._delete_oldest()
        return self.current

    def _end_ms(self, file: OpenIndex) -> float:
        """Return from which store time on entries go to another file; the log's times: a rebuild agrees."""
        if not self.roll_ms or file.next_item <= FIRST_ITEM:
            return math.inf
        return file.header.begin_ms + self.roll_ms

    def _span_end(self, file: OpenIndex, items: Items, first: int) -> int:
        """Return up to which item the entries from `first` on belong to this file, if there is room."""
        if not self.roll_ms:
            return len(items)
        end_ms = self._end_ms(file)
        if math.isinf(end_ms):
            end_ms = int(items["store_ms"][first]) + self.roll_ms
        return first + int(np.searchsorted(items["store_ms"][first:], end_ms))

    def _delete_oldest(self) -> None:
        while self.files_max and len(self._all()) > self.files_max:
            oldest = self.full.pop(0)
            self.remove(oldest.path)
            log.info("index file %s: deleted, the newest %d are kept", oldest.name, self.files_max)

    def _seal(self) -> None:
        """Close the full file: its bytes go to the operating system now, to the disk at the next flush."""
        sealed = self.current
        assert sealed is not None
        sealed.write()
        done = FullIndex(sealed.name, sealed.path, sealed.header)
        self.full.append(done)
        self._unsynced_full.append(done)
        self.current = None

    def _create(self) -> OpenIndex:
        header = self.full[-1].header.following() if self.full else IndexHeader()
        name = self._new_name()
        created = OpenIndex(name, self.path(name), self.layout, self.files, self._maps)
        created.start(header)
        for attempt in range(1, CREATE_TRIES + 1):
            try:
                self.files.write(
                    created.path, 0, header.encode(), file_bytes=self.layout.index_file_bytes
                )
            except StoreError:
                log.exception("index file %s: try %d to create it failed", name, attempt)
                if attempt == CREATE_TRIES:
                    self.failed = True
                    raise
                self._clock.sleep(1 * SECOND_MS)
            else:
                break
        self.failed = False
        return created

    def _new_name(self) -> str:
        name = index_file_name(self._clock.now_ms())
        # Two in one millisecond, or a clock that was set back: the order of names is the order of files.
        if self.full and name <= self.full[-1].name:
            return f"{int(self.full[-1].name) + 1:017d}"
        return name

    def path(self, name: str) -> str:
        return f"{self.layout.index_directory}/{name}"

    # --- looking up ---

    def query(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return log offsets of records with this key, newest first.

        Keys with the same hash are found too, of other topics as well.
        """
        wanted = key_hash(topic, key)
        with self.lock:
            files = self._all()
        found: list[int] = []
        for file in reversed(files):
            header = file.header
            if _overlaps(header, begin_ms, end_ms):
                room = max_count - len(found)
                found += self._chain(file, header, wanted, begin_ms, end_ms, room)
            if header.begin_ms < begin_ms or len(found) >= max_count:
                break
        return found

    def _chain(
        self,
        file: FullIndex | OpenIndex,
        header: IndexHeader,
        wanted: int,
        begin_ms: int,
        end_ms: int,
        room: int,
    ) -> list[int]:
        if header.next_item <= FIRST_ITEM:
            return []
        try:
            if isinstance(file, OpenIndex):
                with self.lock:
                    return file.chain(wanted, begin_ms, end_ms, room)
            data = self._maps.get(file.path)
        except StoreError as error:
            if is_missing(error):
                return []  # the cleaner was faster
            raise
        slots = self.layout.index_slots
        return self.kernels.index_chain(data, slots, wanted, begin_ms, end_ms, room)

    # --- durability ---

    def flush(self) -> None:
        """Write and sync everything, the file that is being filled too."""
        with self.lock:
            current = self.current
            if current is not None:
                current.write()
            unsynced, self._current_unsynced = self._current_unsynced, False
        if unsynced and current is not None:
            try:
                self.files.sync([current.path])
            except StoreError:
                self._current_unsynced = True
                raise
        self.flush_full()

    def flush_full(self) -> int:
        """Sync files that became full since the last call; return `full_ms`."""
        with self.lock:
            waiting = list(self._unsynced_full)
        if waiting:
            self.files.sync([file.path for file in waiting])
            with self.lock:
                self._unsynced_full = [f for f in self._unsynced_full if f not in waiting]
                self.full_ms = max(self.full_ms, waiting[-1].header.end_ms)
        return self.full_ms

    def states(self) -> list[IndexState]:
        """Return all files for a snapshot."""
        with self.lock:
            return [
                IndexState(file.name, file.next_item, file.header.end_log_offset)
                for file in self._all()
            ]

    # --- deleting ---

    def delete_before(self, log_min: int) -> int:
        """Delete files whose newest record is gone, never the last file; return how many."""
        deleted = 0
        with self.lock:
            while len(self._all()) > 1 and self.full[0].header.end_log_offset < log_min:
                self.remove(self.full.pop(0).path)
                deleted += 1
        return deleted

    def remove(self, path: str) -> None:
        """Delete one file; who is reading it now still can."""
        self._maps.forget(path)
        self.files.remove(path, missing_ok=True)

    def close(self) -> None:
        """Let go of all maps."""
        self._maps.clear()

    # --- for loading, cutting and adopting (index_load, index_verify) ---

    def reset(self, full: Sequence[FullIndex] = (), current: OpenIndex | None = None) -> None:
        """Take these files as the whole index. Those that are full count as synced."""
        with self.lock:
            self._maps.clear()
            self.full, self.current = list(full), current
            self._unsynced_full, self._waiting = [], None
            used = [file for file in self._all() if file.next_item > FIRST_ITEM]
            self._end = used[-1].header.end_log_offset if used else NOTHING
            self.full_ms = self.full[-1].header.end_ms if self.full else 0
            self._current_unsynced = False

    def adopt(self, full: Sequence[FullIndex], current: OpenIndex | None) -> None:
        """Do the same for files of which some were just repaired: they still have to be synced."""
        with self.lock:
            self.reset(full, current)
            self._unsynced_full, self.full_ms = list(self.full), 0
            self._current_unsynced = current is not None

    def list_files(self) -> list[tuple[str, str, int]]:
        """Return (name, path, length) of the files in the index directory, oldest first.

        Other names are none of ours and are left alone, as RocketMQ does.
        """
        directory = Path(self.layout.index_directory)
        try:
            found = [(path.name, str(path), path.stat().st_size) for path in directory.iterdir()]
        except FileNotFoundError:
            return []
        except OSError as cause:
            raise io_error(directory, "list", cause) from cause
        for name, path, _ in found:
            if not is_index_file_name(name):
                log.warning("%s: not the name of an index file; ignored", path)
        return sorted(entry for entry in found if is_index_file_name(entry[0]))

    def read_header(self, path: str) -> IndexHeader | None:
        """Return the header of a file, None if it cannot be one."""
        try:
            return decode_header(self.files.read(path, 0, HEADER_BYTES))
        except FormatError:
            return None

    def open_file(self, name: str) -> OpenIndex:
        """Return an empty handle on a file."""
        return OpenIndex(name, self.path(name), self.layout, self.files, self._maps)


StoreMsOf = Callable[[int], int | None]
"""Log offset of a record -> its store time, None if it is not in the log."""


def _overlaps(header: IndexHeader, begin_ms: int, end_ms: int) -> bool:
    return (
        (begin_ms < header.begin_ms and end_ms > header.end_ms)
        or header.begin_ms <= begin_ms <= header.end_ms
        or header.begin_ms <= end_ms <= header.end_ms
    )
