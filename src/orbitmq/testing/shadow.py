"""What a simulated disk holds for certain: kept in files of its own, so that it outlives a killed process.

The shadow directory:
  data/<id>            the bytes of a file that were synced; ids are given once and never again
  names/<hash>.json    the durable entries of one directory, and which log goes on from there
  names/<hash>.<n>.log what happened in that directory since: created, renamed, removed, not synced yet

A file is known by its inode, not by its name, so a rename does not mix up two files.
"""

import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any, NamedTuple

DIRECTORY_ID = -1


class Entry(NamedTuple):
    """What a name in a directory stands for."""

    file_id: int  # DIRECTORY_ID: a directory
    inode: int


Listing = dict[str, Entry]


class Change(NamedTuple):
    """One step of a directory's history: `entry` None removes the name, `old_name` is for a rename."""

    name: str
    entry: Entry | None
    old_name: str | None = None


@dataclass(slots=True)
class Directory:
    """The durable entries of one directory, the changes that are not durable yet, and the sum of both."""

    generation: int = 0
    durable: Listing = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    current: Listing = field(init=False)

    def __post_init__(self) -> None:
        self.current = self.listing(len(self.changes))

    def add(self, change: Change) -> None:
        self.changes.append(change)
        _apply(self.current, change)

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
        self._names, self._data = shadow / "names", shadow / "data"
        self.directories: dict[str, Directory] = {}
        if self._names.is_dir():
            self._load()
            return
        self._names.mkdir(parents=True)
        self._data.mkdir()
        self._next_id = 0
        for path in sorted(root.rglob("*")):
            self.note_created(path)
        self.make_all_durable()

    # --- what happens ---

    def note_created(self, path: Path) -> None:
        """A file or directory was made; its name is not durable yet."""
        name = str(path.relative_to(self.root))
        inode = path.stat().st_ino
        if path.is_dir():
            self._begin_directory(name)
            entry = Entry(DIRECTORY_ID, inode)
        else:
            entry = Entry(self._next_id, inode)
            self._next_id += 1
        self._note(path.parent, Change(path.name, entry))

    def note_removed(self, path: Path) -> None:
        self._note(path.parent, Change(path.name, None))

    def note_renamed(self, source: Path, target: Path) -> None:
        entry = self._current(source.parent).get(source.name)
        if entry is None:
            self.note_created(target)
        elif source.parent == target.parent:
            self._note(target.parent, Change(target.name, entry, source.name))
        else:
            self._note(target.parent, Change(target.name, entry))
            self.note_removed(source)

    def make_names_durable(self, directory: Path) -> None:
        """The directory was synced: its entries of this moment survive."""
        self._discover(directory)
        name = str(directory.relative_to(self.root))
        known = self.directories[name]
        synced = Directory(known.generation + 1, dict(known.current))
        self.directories[name] = synced
        self._save(name, synced)
        self._log_path(name, known.generation).unlink(missing_ok=True)

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
        with self._open_data(entry.file_id) as copy:
            os.ftruncate(copy.fileno(), file_length)
            os.pwrite(copy.fileno(), data, position)

    def make_all_durable(self) -> None:
        """The whole file system was synced."""
        for name in sorted(self.directories):
            directory = self.root / name
            if directory.is_dir():
                self._discover(directory)
        for name in sorted(self.directories):
            directory = self.root / name
            if not directory.is_dir():
                continue
            for file_name, entry in self._current(directory).items():
                if entry.file_id != DIRECTORY_ID:
                    self._copy_whole(directory / file_name)
            self.make_names_durable(directory)

    # --- what is known ---

    def durable_bytes(self, file_id: int) -> bytes | None:
        """Return the bytes that survive, None when the file was never synced."""
        try:
            return (self._data / str(file_id)).read_bytes()
        except FileNotFoundError:
            return None

    def discover_all(self) -> None:
        """Note what happened behind the disk's back: somebody was killed, or used no `Disk`."""
        for name in sorted(self.directories):
            if (self.root / name).is_dir():
                self._discover(self.root / name)

    def _discover(self, directory: Path) -> None:
        known = dict(self._current(directory))
        live = {path.name: path for path in sorted(directory.iterdir())}
        vanished = {known[name].inode: name for name in sorted(known.keys() - live.keys())}
        for path in live.values():
            entry, inode = known.get(path.name), path.stat().st_ino
            if entry is not None and entry.inode == inode:
                continue
            if inode in vanished:
                self.note_renamed(directory / vanished.pop(inode), path)
            else:
                self.note_created(path)
                if path.is_dir():
                    self._discover(path)
        for name in vanished.values():
            self.note_removed(directory / name)

    def _begin_directory(self, name: str) -> None:
        old = self.directories.get(name)
        if old is not None:  # it was removed and made again
            self.directories[name] = Directory(old.generation + 1)
            self._save(name, self.directories[name])
        else:
            self.directories[name] = Directory()

    def _current(self, directory: Path) -> Listing:
        known = self.directories.setdefault(str(directory.relative_to(self.root)), Directory())
        return known.current

    def _find(self, path: Path, inode: int) -> Entry | None:
        entry = self._current(path.parent).get(path.name)
        if entry is None or entry.inode != inode:
            entry = self._entry_of(inode)
        if entry is None and path.parent.is_dir():
            self._discover(path.parent)
            entry = self._entry_of(inode)
        return entry

    def _entry_of(self, inode: int) -> Entry | None:
        for directory in self.directories.values():
            for entry in directory.current.values():
                if entry.inode == inode:
                    return entry
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

    def _note(self, directory: Path, change: Change) -> None:
        name = str(directory.relative_to(self.root))
        known = self.directories.setdefault(name, Directory())
        known.add(change)
        if self._frozen:
            return
        with self._log_path(name, known.generation).open("a", encoding="utf-8") as log:
            log.write(json.dumps([name, *change]) + "\n")

    def _save(self, name: str, directory: Directory) -> None:
        if self._frozen:
            return
        path = self._base_path(name)
        state = {"name": name, "generation": directory.generation, "durable": directory.durable}
        new = path.with_suffix(".tmp")
        new.write_text(json.dumps(state), encoding="utf-8")
        new.replace(path)

    def _load(self) -> None:
        for path in self._names.glob("*.json"):
            state = json.loads(path.read_text(encoding="utf-8"))
            durable = {name: Entry(*entry) for name, entry in state["durable"].items()}
            self.directories[state["name"]] = Directory(state["generation"], durable)
        for path in self._names.glob("*.log"):
            self._load_log(path)
        ids = [int(path.name) for path in self._data.iterdir()]
        for directory in self.directories.values():
            entries = [*directory.durable.values(), *(change.entry for change in directory.changes)]
            ids += [entry.file_id for entry in entries if entry is not None]
        self._next_id = max(ids, default=-1) + 1

    def _load_log(self, path: Path) -> None:
        generation = int(path.name.split(".")[1])
        for line in path.read_text(encoding="utf-8").splitlines():
            change = _parse_change(line)
            if change is None:
                return  # the process was killed while it wrote this line
            name, step = change
            directory = self.directories.setdefault(name, Directory())
            if directory.generation == generation:
                directory.add(step)

    def _open_data(self, file_id: int) -> Any:
        path = self._data / str(file_id)
        return path.open("r+b" if path.exists() else "w+b")

    def _base_path(self, name: str) -> Path:
        return self._names / f"{_hash(name)}.json"

    def _log_path(self, name: str, generation: int) -> Path:
        return self._names / f"{_hash(name)}.{generation}.log"


def _hash(name: str) -> str:
    return hashlib.sha256(str(PurePath(name)).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def _parse_change(line: str) -> tuple[str, Change] | None:
    try:
        directory, name, entry, old_name = json.loads(line)
    except ValueError:
        return None
    return directory, Change(name, None if entry is None else Entry(*entry), old_name)
