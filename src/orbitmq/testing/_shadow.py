"""What a simulated disk holds for certain: kept in files of its own, so that it outlives a killed process.

The shadow directory:
  data/<id>   the bytes of a file that were synced
  journal     what happened to the names of each directory: created, renamed, removed, synced

Ids are given once and never again. A file or directory is known by its inode, not by its name, so a
rename does not mix up two files, and a directory takes along what is in it.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT_ID: Final = 0


class Entry(NamedTuple):
    """What a name in a directory stands for."""

    id: int
    inode: int
    is_directory: bool = False


Listing = dict[str, Entry]


class Change(NamedTuple):
    """One step of a directory's history: `entry` None removes the name, `old_name` is for a rename."""

    name: str
    entry: Entry | None
    old_name: str | None = None


@dataclass(slots=True)
class Directory:
    """The durable entries of one directory, the changes that are not durable yet, and the sum of both."""

    durable: Listing = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    current: Listing = field(default_factory=dict)

    def add(self, change: Change) -> None:
        self.changes.append(change)
        _apply(self.current, change)

    def sync(self) -> None:
        self.durable, self.changes = dict(self.current), []

    def listing(self, change_count: int) -> Listing:
        """Return the entries as they were after the first `change_count` changes."""
        found = dict(self.durable)
        for change in self.changes[:change_count]:
            _apply(found, change)
        return found


def _apply(listing: Listing, change: Change) -> None:
    if change.old_name is not None:
        listing.pop(change.old_name, None)
    if change.entry is None:
        listing.pop(change.name, None)
    else:
        listing[change.name] = change.entry


class Shadow:
    """The durable state of the tree below `root`. Not thread-safe: the disk has a lock.

    A frozen one is for looking at: it takes notes, but leaves the shadow's files alone.
    """

    def __init__(self, root: Path, shadow: Path, *, frozen: bool = False) -> None:
        self.root = root
        self._frozen = frozen
        self._journal, self._data = shadow / "journal", shadow / "data"
        self.directories: dict[int, Directory] = {ROOT_ID: Directory()}
        self._next_id = ROOT_ID + 1
        if self._journal.exists():
            self._load()
            # Who was killed between a rename and its note left a file that only its inode tells: look
            # before the old name gets a new file.
            self.discover_all()
            return
        self._data.mkdir(parents=True)
        self.make_all_durable()

    # --- what happens ---

    def note_created(self, path: Path) -> None:
        """A file or directory was made; its name is not durable yet."""
        entry = Entry(self._next_id, path.stat().st_ino, path.is_dir())
        self._next_id += 1
        self._note(path.parent, Change(path.name, entry))

    def note_removed(self, path: Path) -> None:
        self._note(path.parent, Change(path.name, None))

    def note_renamed(self, source: Path, target: Path) -> None:
        entry = self._entry(source)
        if entry is None:
            self.note_created(target)
        elif source.parent == target.parent:
            self._note(target.parent, Change(target.name, entry, source.name))
        else:
            self._note(target.parent, Change(target.name, entry))
            self.note_removed(source)

    def note_exchanged(self, first: Path, second: Path) -> None:
        """Two names of different directories changed what they stand for; each directory knows its half."""
        assert first.parent != second.parent
        one, other = self._entry(first), self._entry(second)
        self._note(first.parent, Change(first.name, other))
        self._note(second.parent, Change(second.name, one))

    def make_names_durable(self, directory: Path) -> None:
        """The directory was synced: its entries of this moment survive."""
        self._discover(directory)
        self._note(directory, None)

    def make_data_durable(self, path: Path, fd: int, position: int, length: int) -> None:
        """A range of a file was synced (length 0: all of it): these bytes survive, and the file's length."""
        status = os.fstat(fd)
        if status.st_nlink == 0:
            return  # deleted meanwhile
        entry = self._find(path, status.st_ino)
        if entry is None:
            return
        file_length = status.st_size
        end = position + length if length else file_length
        data = os.pread(fd, max(0, min(end, file_length) - position), position)
        with self._open_data(entry.id) as copy:
            os.ftruncate(copy.fileno(), file_length)
            os.pwrite(copy.fileno(), data, position)

    def make_all_durable(self) -> None:
        """The whole file system was synced."""
        self.discover_all()
        for directory in list(self._live_directories(self.root)):
            for path in directory.iterdir():
                if not path.is_dir():
                    self._copy_whole(path)
            self.make_names_durable(directory)

    # --- what is known ---

    def durable_bytes(self, file_id: int) -> bytes | None:
        """Return the bytes that survive, None when the file was never synced."""
        try:
            return (self._data / str(file_id)).read_bytes()
        except FileNotFoundError:
            return None

    def live_paths(self) -> dict[int, Path]:
        """Map each file that has a name now to its path."""
        found: dict[int, Path] = {}
        self._add_live_paths(ROOT_ID, self.root, found)
        return found

    def _add_live_paths(self, number: int, directory: Path, found: dict[int, Path]) -> None:
        for name, entry in self.directories[number].current.items():
            if entry.is_directory:
                self._add_live_paths(entry.id, directory / name, found)
            elif (directory / name).exists():
                found[entry.id] = directory / name

    def discover_all(self) -> None:
        """Note what happened behind the disk's back: somebody was killed, or used no `Disk`."""
        for directory in self._live_directories(self.root):
            self._discover(directory)

    def _live_directories(self, directory: Path) -> Iterator[Path]:
        """Yield a directory and all below it, as they are now; each before what is in it."""
        yield directory
        for path in sorted(directory.iterdir()):
            if path.is_dir():
                yield from self._live_directories(path)

    def _discover(self, directory: Path) -> None:
        known = dict(self._current(directory))
        live = {path.name: path for path in sorted(directory.iterdir())}
        vanished = {known[name][1:]: name for name in sorted(known.keys() - live.keys())}
        for path in live.values():
            entry, inode = known.get(path.name), path.stat().st_ino
            if entry is not None and entry.inode == inode:
                continue
            now = (inode, path.is_dir())
            if now in vanished:
                self.note_renamed(directory / vanished.pop(now), path)
            else:
                self.note_created(path)
        for name in vanished.values():
            self.note_removed(directory / name)

    def _current(self, directory: Path) -> Listing:
        return self.directories[self._id_of(directory)].current

    def _entry(self, path: Path) -> Entry | None:
        return self._current(path.parent).get(path.name)

    def _id_of(self, directory: Path) -> int:
        """Return the id of a directory that is there; those that nobody told of are noted now."""
        number, path = ROOT_ID, self.root
        for part in directory.relative_to(self.root).parts:
            path /= part
            entry = self.directories[number].current.get(part)
            if entry is None or not entry.is_directory:
                self.note_created(path)
                entry = self.directories[number].current[part]
            number = entry.id
        return number

    def _find(self, path: Path, inode: int) -> Entry | None:
        if not _is_at(path, inode):
            return self._entry_of(inode)  # it was renamed after it was opened
        entry = self._entry(path)
        if entry is None or entry.inode != inode:
            # Somebody else made it, perhaps with the inode of a file that somebody else removed.
            self._discover(path.parent)
            entry = self._entry(path)
        return entry

    def _entry_of(self, inode: int) -> Entry | None:
        """Return the file with this inode that has a name now: inodes of removed files are used again."""
        return self._entry_below(ROOT_ID, inode)

    def _entry_below(self, number: int, inode: int) -> Entry | None:
        for entry in self.directories[number].current.values():
            if entry.is_directory:
                found = self._entry_below(entry.id, inode)
            else:
                found = entry if entry.inode == inode else None
            if found is not None:
                return found
        return None

    def _copy_whole(self, path: Path) -> None:
        try:
            fd = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return
        try:
            self.make_data_durable(path, fd, 0, 0)
        finally:
            os.close(fd)

    # --- the shadow's own files ---

    def _note(self, directory: Path, change: Change | None) -> None:
        """Note a change of a directory, or (None) that it was synced."""
        number = self._id_of(directory)
        self._apply(number, change)
        if not self._frozen:
            with self._journal.open("a", encoding="utf-8") as journal:
                # In front of it: a line that a killed process left half written ends here.
                journal.write("\n" + json.dumps((number, change)))

    def _apply(self, number: int, change: Change | None) -> None:
        if change is None:
            self.directories[number].sync()
            return
        self.directories[number].add(change)
        if change.entry is not None and change.entry.is_directory:
            self.directories.setdefault(change.entry.id, Directory())

    def _load(self) -> None:
        ids = [int(path.name) for path in self._data.iterdir()]
        for line in self._journal.read_text(encoding="utf-8").splitlines():
            noted = _parse(line)
            if noted is not None:
                self._apply(*noted)
                entry = noted[1] and noted[1].entry
                ids += [entry.id] if entry else []
        self._next_id = max(ids, default=ROOT_ID) + 1

    def _open_data(self, file_id: int) -> Any:
        path = self._data / str(file_id)
        return path.open("r+b" if path.exists() else "w+b")


def _parse(line: str) -> tuple[int, Change | None] | None:
    """Return what a line of the journal says; None: it is empty, or half of one."""
    try:
        number, change = json.loads(line)
    except ValueError:
        return None
    if change is None:
        return number, None
    name, entry, old_name = change
    return number, Change(name, None if entry is None else Entry(*entry), old_name)


def _is_at(path: Path, inode: int) -> bool:
    try:
        return path.stat().st_ino == inode
    except FileNotFoundError:
        return False
