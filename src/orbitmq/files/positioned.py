"""Positioned reads and writes on many files, with a bounded number of them open.

Invariants of the cache:
  a descriptor is closed only when nobody uses it: `users` counts, the last one closes what was dropped
  an open file is in the table, or dropped and still in use
  what was written to a file since its last sync is remembered until a sync succeeds
  a name that was made or removed is remembered until its directory was synced after it, whoever did that
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from orbitmq.errors import StoreError, WrongFileError, io_error
from orbitmq.files.disk import Disk, FilePath, exists, is_missing
from orbitmq.files.listing import SIZE_STEP

SYNC_ONE_BY_ONE_MAX: Final = 64
"""Up to here each file is synced alone; for more, one sync of the file system is cheaper."""


class _OpenFile:
    """One descriptor and who uses it. Guarded by the cache's lock."""

    __slots__ = ("dirty", "dropped", "fd", "sized", "users")

    def __init__(self, fd: int, *, sized: bool) -> None:
        self.fd = fd
        self.sized = sized  # its length was compared with what it has to be
        self.users = 1
        self.dirty = False
        self.dropped = False


class FileCache:
    """Open files of a store, least recently used first out. Any thread may use it."""

    def __init__(self, disk: Disk, max_open: int = 512, *, writable: bool = True) -> None:
        self._disk = disk
        self._max_open = max_open
        self._writable = writable
        self._lock = threading.Lock()  # guards everything below
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        # Files that were closed between a write and the sync of it. Their errors can no longer be
        # seen through a descriptor, but the file system as a whole still reports them.
        self._closed_dirty: set[str] = set()
        self._new_directories: set[str] = set()
        # Held while directories are synced: who finds nothing to sync must not overtake who is at it.
        self._syncing_names = threading.Lock()

    def read(self, path: FilePath, position: int, length: int) -> bytes:
        """Return up to `length` bytes; fewer only at the end of the file."""
        key = path if type(path) is str else str(path)
        file = self._acquire(key, None)
        try:
            return self._disk.read_at(key, file.fd, position, length)
        finally:
            self._release(key, file)

    def write(
        self,
        path: FilePath,
        position: int,
        data: bytes | bytearray | memoryview,
        *,
        file_bytes: int | None = None,
    ) -> None:
        """Write all of `data`. With `file_bytes` a missing file is created: sparse, of exactly that size."""
        key = path if type(path) is str else str(path)
        file = self._acquire(key, file_bytes)
        try:
            self._disk.write_at(key, file.fd, position, data)
        finally:
            # After the write, so that a sync that runs meanwhile does not clear the mark; a failed
            # write may have left some bytes too.
            file.dirty = True
            self._release(key, file)

    def truncate_zero(self, path: FilePath, position: int) -> None:
        """Zero a file from `position` to its end; its length stays the same at every moment."""
        key = str(path)
        file = self._acquire(key, None)
        try:
            length = self._disk.length(key, file.fd)
            self._disk.zero(key, file.fd, position, length - position)
        finally:
            file.dirty = True
            self._release(key, file)

    def sync(self, paths: Iterable[FilePath]) -> None:
        """Make what was written to these files durable, and the names of files created since."""
        keys = {str(path) for path in paths}
        with self._lock:
            lost_sight = not self._closed_dirty.isdisjoint(keys)
        if lost_sight or len(keys) > SYNC_ONE_BY_ONE_MAX:
            self._sync_file_systems(keys)
        else:
            for key in keys:
                self._sync_one(key)
        self.sync_directories()

    def sync_directories(self) -> None:
        """Make the names of new and removed files durable."""
        with self._syncing_names:
            with self._lock:
                directories = sorted(self._new_directories)
            for directory in directories:
                self._sync_directory(directory)

    def remove(self, path: FilePath, *, missing_ok: bool = False) -> None:
        """Delete a file; who is reading it now still can."""
        key = str(path)
        self.forget(key)
        try:
            self._disk.remove(key)
        except StoreError as error:
            if not (missing_ok and is_missing(error)):
                raise
        with self._lock:
            self._closed_dirty.discard(key)
        self._note_changed({os.path.dirname(key)})  # noqa: PTH120

    def forget(self, path: FilePath) -> None:
        """Close a file as soon as nobody uses it."""
        key = str(path)
        with self._lock:
            file = self._open.pop(key, None)
            idle = file is not None and self._drop(key, file)
        if file is not None and idle:
            self._disk.close(key, file.fd)

    def close(self) -> None:
        """Close all files. What was not synced is with the operating system, not yet on the disk."""
        with self._lock:
            files = list(self._open.items())
            self._open.clear()
            idle = [(key, file) for key, file in files if self._drop(key, file)]
        for key, file in idle:
            self._disk.close(key, file.fd)

    @property
    def open_count(self) -> int:
        return len(self._open)

    def __enter__(self) -> "FileCache":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- descriptors ---

    def _acquire(self, key: str, file_bytes: int | None) -> _OpenFile:
        with self._lock:
            file = self._open.get(key)
            if file is not None:
                file.users += 1
                self._open.move_to_end(key)
        if file is None:
            opened = self._open_or_create(key, file_bytes)
            return self._add(key, _OpenFile(opened, sized=file_bytes is not None))
        if file_bytes is not None and not file.sized:
            self._check_open(key, file, file_bytes)
        return file

    def _check_open(self, key: str, file: _OpenFile, file_bytes: int) -> None:
        """Somebody read it before: then nobody has looked at its length yet."""
        try:
            self._check_length(key, file.fd, file_bytes)
        except StoreError:
            self._release(key, file)
            raise
        file.sized = True

    def _release(self, key: str, file: _OpenFile) -> None:
        with self._lock:
            file.users -= 1
            last = file.dropped and file.users == 0
            if last and file.dirty:
                self._closed_dirty.add(key)
        if last:
            self._disk.close(key, file.fd)

    def _add(self, key: str, opened: _OpenFile) -> _OpenFile:
        with self._lock:
            file = self._open.get(key)
            if file is None:  # the normal case; else another thread opened it at the same time
                file = self._open[key] = opened
            else:
                file.users += 1
            evicted = self._evict()
        if file is not opened:
            self._disk.close(key, opened.fd)
        for old_key, old in evicted:
            self._disk.close(old_key, old.fd)
        return file

    def _evict(self) -> list[tuple[str, _OpenFile]]:
        """Drop the least recently used files above the limit; return those to close now."""
        idle = []
        while len(self._open) > self._max_open:
            key, file = self._open.popitem(last=False)
            if self._drop(key, file):
                idle.append((key, file))
        return idle

    def _drop(self, key: str, file: _OpenFile) -> bool:
        """Mark a file that left the table; return whether nobody uses it, so that it is to be closed."""
        file.dropped = True
        if file.users == 0 and file.dirty:
            self._closed_dirty.add(key)
        return file.users == 0

    def _open_or_create(self, key: str, file_bytes: int | None) -> int:
        try:
            fd = self._disk.open(key, writable=self._writable)
        except StoreError as error:
            if file_bytes is None or not is_missing(error):
                raise
            return self._create(key, file_bytes)
        if file_bytes is not None:
            try:
                self._check_length(key, fd, file_bytes)
            except StoreError:
                self._disk.close(key, fd)
                raise
        return fd

    def _create(self, key: str, file_bytes: int) -> int:
        directory = Path(key).parent
        there, changed = directory, {str(directory)}
        while not exists(there):
            there = there.parent
            changed.add(str(there))
        # Noted before, for whoever finds a directory of ours and puts a file into it, and noted again
        # after: a sync in between has not seen the new names.
        self._note_changed(changed)
        try:
            if there != directory:
                self._disk.make_directory(directory)
            fd = self._disk.open(key, create=True)
        finally:
            self._note_changed(changed)
        try:
            self._disk.truncate(key, fd, file_bytes)
        except StoreError:
            self._disk.close(key, fd)
            raise
        return fd

    def _note_changed(self, directories: set[str]) -> None:
        with self._lock:
            self._new_directories |= directories

    def _check_length(self, key: str, fd: int, file_bytes: int) -> None:
        found = self._disk.length(key, fd)
        if found == file_bytes:
            return
        if found:
            raise WrongFileError(key, f"has {found} bytes instead of {file_bytes}", SIZE_STEP)
        # Somebody died between creating and sizing it.
        self._disk.truncate(key, fd, file_bytes)

    # --- durability ---

    def _sync_one(self, key: str) -> None:
        try:
            file = self._acquire(key, None)
        except StoreError as error:
            if is_missing(error):
                return  # the cleaner was faster
            raise
        try:
            # Cleared before the sync: a write that comes during it must stay marked.
            file.dirty = False
            try:
                self._disk.sync_data(key, file.fd)
            except StoreError:
                file.dirty = True
                raise
        finally:
            self._release(key, file)

    def _sync_directory(self, directory: str) -> None:
        with self._lock:
            self._new_directories.discard(directory)
        try:
            self._disk.sync_directory(directory)
        except StoreError as error:
            if is_missing(error):
                return  # removed in the meantime, and so were its files
            self._note_changed({directory})
            raise

    def _sync_file_systems(self, keys: set[str]) -> None:
        with self._syncing_names:
            self._sync_whole(keys)

    def _sync_whole(self, keys: set[str]) -> None:
        with self._lock:
            files = [(key, self._open.get(key)) for key in keys]
            closed = self._closed_dirty & keys
            new_directories = set(self._new_directories)
            self._closed_dirty -= closed
            self._new_directories -= new_directories
            dirty = [file for _, file in files if file is not None and file.dirty]
            for file in dirty:
                file.dirty = False
        try:
            for directory in _one_per_device(keys | new_directories):
                self._disk.sync_file_system(directory)
        except StoreError:
            with self._lock:
                self._closed_dirty |= closed
                self._new_directories |= new_directories
                for file in dirty:
                    file.dirty = True
            raise


def _one_per_device(keys: Iterable[str]) -> list[str]:
    """Return one directory of each file system that these files lie on."""
    directories = {os.path.dirname(key) for key in keys}  # noqa: PTH120  (80 000 keys)
    by_device: dict[int, str] = {}
    for directory in directories:
        try:
            by_device.setdefault(os.stat(directory).st_dev, directory)  # noqa: PTH116
        except FileNotFoundError:
            continue
        except OSError as cause:
            raise io_error(directory, "look at", cause) from cause
    return list(by_device.values())
