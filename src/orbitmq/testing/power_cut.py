"""A disk that can lose power: only what was synced is sure to be there afterwards.

    disk = PowerCutDisk(root, shadow=tmp_path / "shadow")
    ... a store works on `root` through this disk, in this process or in one that is killed ...
    power_cut(root, tmp_path / "shadow", tmp_path / "after", seed=7)

`after` is then one of the many states that a real disk could be in:
  bytes      all that were synced; of the rest, a chosen subset of 4 KiB pages, some torn at 512 bytes
  names      as of the last sync of their directory, plus a chosen number of the changes since, in order
  lengths    of a file that grew since its last sync: the old or the new one; never synced: 0 or the new one

Directories are independent of each other, and a file's bytes of its name, as POSIX allows. Real file
systems promise more; a store that survives this survives them. `survival` chooses the kind of disk
instead of the seed: a disk that forgot everything, or kept names and lost bytes.
"""

import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from orbitmq.files.disk import Disk, FilePath
from orbitmq.testing._shadow import ROOT_ID, Entry, Shadow
from orbitmq.testing.forwarding_disk import ForwardingDisk
from orbitmq.units import PAGE_BYTES

SECTOR_BYTES: Final = 512

Image = dict[str, bytes | None]
"""What a disk holds, by path, directories before what is in them; None: a directory."""


class Survival(NamedTuple):
    """How likely it is that something survives without having been synced."""

    pages: float = 0.0  # bytes, page by page
    tears: float = 0.0  # a page is cut into sectors that survive one by one
    names: float = 0.0  # changes of a directory: 0 none, 1 all, else a random number of them

    @classmethod
    def by_chance(cls, chance: random.Random) -> "Survival":
        # The extremes are the interesting disks: nothing unsynced arrived, or all of it.
        return cls(
            chance.choice((0.0, 0.1, 0.5, 0.9, 1.0)),
            chance.choice((0.0, 0.1, 0.5)),
            chance.choice((0.0, 0.5, 1.0)),
        )


NOTHING: Final = Survival()
NAMES_ONLY: Final = Survival(names=1)
BYTES_ONLY: Final = Survival(pages=1)
EVERYTHING: Final = Survival(pages=1, names=1)


class PowerCutDisk(ForwardingDisk):
    """Records what is durable below `root`. Any thread may use it.

    Bytes that are there at the beginning are durable, unless the shadow knows better: a second
    process that goes on with the same shadow inherits what the first one had not synced. Nothing is
    really synced (`real_sync`): a killed process does not lose the page cache.
    """

    def __init__(
        self,
        root: Path,
        *,
        shadow: Path,
        disk: Disk | None = None,
        real_sync: bool = False,
        can_exchange: bool = False,
    ) -> None:
        super().__init__(disk)
        root.mkdir(parents=True, exist_ok=True)
        self._root = root.resolve()
        self._real_sync = real_sync
        self.can_exchange = can_exchange
        self._lock = threading.RLock()  # guards the shadow
        self._shadow = Shadow(self._root, shadow)
        self.sync_count = 0

    def power_cut(self, target: Path, seed: int = 0, survival: Survival | None = None) -> Path:
        """Write to `target` what the disk could hold if power failed now."""
        with self._lock:
            return write_image(self.image(seed, survival), target)

    def image(self, seed: int = 0, survival: Survival | None = None) -> Image:
        """Return what the disk could hold if power failed now."""
        with self._lock:
            return _image(self._shadow, seed, survival)

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> int:
        inside = self._inside(path) if create else None
        with self._lock:
            is_new = inside is not None and not inside.exists()
            fd = super().open(path, create=create, writable=writable)
            if is_new and inside is not None:
                self._shadow.note_created(inside)
            return fd

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        if self._real_sync:
            super().sync_data(path, fd, position, length)
        inside = self._inside(path)
        with self._lock:
            self.sync_count += 1
            if inside is not None:
                self._shadow.make_data_durable(inside, fd, position, length)

    def sync_directory(self, path: FilePath) -> None:
        if self._real_sync:
            super().sync_directory(path)
        else:
            _require_directory(self.inner, path)
        inside = self._inside(path)
        with self._lock:
            self.sync_count += 1
            if inside is not None:
                self._shadow.make_names_durable(inside)

    def sync_file_system(self, path: FilePath) -> None:
        if self._real_sync:
            super().sync_file_system(path)
        with self._lock:
            self.sync_count += 1
            self._shadow.make_all_durable()

    def rename(self, source: FilePath, target: FilePath) -> None:
        old, new = self._inside(source), self._inside(target)
        with self._lock:
            super().rename(source, target)
            if old is not None and new is not None:
                self._shadow.note_renamed(old, new)

    def exchange(self, first: FilePath, second: FilePath) -> bool:
        if not self.can_exchange:
            return False
        one, other = self._inside(first), self._inside(second)
        with self._lock:
            done = self.inner.exchange(first, second)
            if done and one is not None and other is not None:
                self._shadow.note_exchanged(one, other)
            return done

    def remove(self, path: FilePath) -> None:
        self._remove(path, super().remove)

    def remove_directory(self, path: FilePath) -> None:
        self._remove(path, super().remove_directory)

    def _remove(self, path: FilePath, remove: Callable[[FilePath], None]) -> None:
        inside = self._inside(path)
        with self._lock:
            remove(path)
            if inside is not None:
                self._shadow.note_removed(inside)

    def make_directory(self, path: FilePath) -> None:
        inside = self._inside(path)
        with self._lock:
            missing = []
            if inside is not None:
                missing = [part for part in (inside, *inside.parents) if not part.exists()]
            super().make_directory(path)
            for part in reversed(missing):
                self._shadow.note_created(part)

    def _inside(self, path: FilePath) -> Path | None:
        """Return the path as the shadow knows it, None when it is not below the root."""
        parent = Path(path).absolute()
        resolved = parent if parent.is_relative_to(self._root) else parent.resolve()
        return resolved if resolved.is_relative_to(self._root) else None


def power_cut(
    root: Path, shadow: Path, target: Path, seed: int, survival: Survival | None = None
) -> Path:
    """Write to `target` one state that the disk could hold after a power cut now; return it.

    Whoever worked on `root` must have stopped. Equal seeds give equal states.
    """
    return write_image(_image(Shadow(root.resolve(), shadow, frozen=True), seed, survival), target)


def write_image(image: Image, target: Path) -> Path:
    """Write what a disk holds to a new directory; return it."""
    target.mkdir(parents=True)
    for name, content in image.items():
        path = target / name
        if content is None:
            path.mkdir()
        else:
            path.write_bytes(content)
    return target


def _image(shadow: Shadow, seed: int, survival: Survival | None) -> Image:
    shadow.discover_all()
    chance = random.Random(seed)
    return _PowerCut(shadow, chance, survival or Survival.by_chance(chance)).image()


class _PowerCut:
    """The choices of one power cut."""

    def __init__(self, shadow: Shadow, chance: random.Random, survival: Survival) -> None:
        self._shadow = shadow
        self._chance = chance
        self._survival = survival
        self._live_paths = shadow.live_paths()

    def image(self) -> Image:
        image: Image = {}
        self._add_directory(ROOT_ID, "", image)
        return image

    def _add_directory(self, number: int, prefix: str, image: Image) -> None:
        directory = self._shadow.directories[number]
        survived = self._how_many(len(directory.changes))
        for name, entry in sorted(directory.listing(survived).items()):
            path = prefix + name
            if entry.is_directory:
                image[path] = None
                self._add_directory(entry.id, f"{path}/", image)
            else:
                image[path] = self._content(entry)

    def _how_many(self, count: int) -> int:
        odds = self._survival.names
        return round(odds * count) if odds in (0, 1) else self._chance.randint(0, count)

    def _content(self, entry: Entry) -> bytes:
        synced = self._shadow.durable_bytes(entry.id)
        live_path = self._live_paths.get(entry.id)
        durable = synced or b""
        if live_path is None:
            return durable
        live = live_path.read_bytes()
        if live == synced:
            return live
        length = len(live) if self._survives() else len(durable)
        return self._mix(durable, live, length)

    def _mix(self, durable: bytes, live: bytes, length: int) -> bytes:
        result = bytearray(durable[:length].ljust(length, b"\0"))
        live = live[:length].ljust(length, b"\0")
        for page in range(0, length, PAGE_BYTES):
            page_end = min(page + PAGE_BYTES, length)
            if result[page:page_end] == live[page:page_end]:
                continue
            if self._chance.random() < self._survival.tears:
                self._tear(result, live, page, page_end)
            elif self._survives():
                result[page:page_end] = live[page:page_end]
        return bytes(result)

    def _tear(self, result: bytearray, live: bytes, start: int, end: int) -> None:
        for sector in range(start, end, SECTOR_BYTES):
            if self._survives():
                sector_end = min(sector + SECTOR_BYTES, end)
                result[sector:sector_end] = live[sector:sector_end]

    def _survives(self) -> bool:
        return self._chance.random() < self._survival.pages


def _require_directory(disk: Disk, path: FilePath) -> None:
    """Fail as a real sync would if there is no such directory."""
    fd = disk.open(path, writable=False)
    disk.close(path, fd)
