"""What a lake knows about itself: the directory `_orbitmq` beside its tables.

    _orbitmq/lock                   held by one export at a time
    _orbitmq/attempts/<job>/        files of tasks, until the driver takes them
    _orbitmq/pending.json           a commit that has begun: it will be finished, by this process or the next
    _orbitmq/commits/00000001.json  a manifest: a commit that is done, what it added, what the lake holds

A commit has begun when `pending.json` is durable. Until then nothing of it is in any table; from then on
nothing of it can be lost, for all its files are whole and durable (`commit.py`).
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.errors import StateFileError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.replace import read_whole, write_durably
from orbitmq.spark.jobs.export.covered import Covered

DIRECTORY: Final = "_orbitmq"
_MANIFEST: Final = re.compile(r"\d{8}\.json")
STEP: Final = "Put the file back as it was, or export to a new directory."


class LakeFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table."""

    topic: str
    table: str
    path: str  # seen from the lake's directory
    part: str  # the attempt's file that became it, seen from there too
    day: str | None
    rows: int
    bytes: int
    first_log_offset: int
    last_log_offset: int
    first_ms: int | None
    last_ms: int | None
    dlq: bool = False
    order: list[str] = []  # the columns by which its rows are sorted; none: as the log has them


class Anchor(msgspec.Struct, frozen=True):
    """The last record that was read: whether a log is still the same can be seen by it."""

    log_offset: int
    size: int
    store_ms: int
    queue_offset: int


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One commit: what it added, and what the lake holds since."""

    number: int
    job: str
    format: str
    source: str  # log: offsets are those of one log; queues: those of a cluster's queues
    committed_ms: int
    covered: dict[str, Any]
    end_offset: int  # of the log; -1 where queues are read
    anchor: Anchor | None = None
    files: list[LakeFile]
    expired: dict[str, str] = {}  # of tables: days before this one were removed
    replaced: dict[str, list[str]] = {}  # of tables: files whose rows are in `files` now
    values: dict[str, Any] = {}  # of each topic that has a table: the fields of its bodies


class Notes:
    """The notes of one lake. Whoever changes them holds the lock."""

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root, self._disk = root, disk
        self._directory = root / DIRECTORY
        self._commits = self._directory / "commits"
        self._pending = self._directory / "pending.json"
        self.attempts = self._directory / "attempts"

    @property
    def lock(self) -> Path:
        return self._directory / "lock"

    def make(self) -> None:
        """Make the directories, durably."""
        self._disk.make_directory(self._commits)
        for path in (self._commits, self._directory, self.root, self.root.parent):
            self._disk.sync_directory(path)

    def numbers(self) -> list[int]:
        """Return the numbers of all commits that are done, in their order."""
        if not exists(self._commits):
            return []
        names = (path.name for path in self._commits.iterdir())
        return sorted(int(name[:8]) for name in names if _MANIFEST.fullmatch(name))

    def done(self, number: int) -> Manifest:
        """Return the manifest of one of them."""
        path = self._commits / f"{number:08}.json"
        return self._read(path, read_whole(self._disk, path) or b"")

    def last(self) -> Manifest | None:
        """Return the newest manifest, which tells what the lake holds."""
        found = self.numbers()
        return self.done(found[-1]) if found else None

    def pending(self) -> Manifest | None:
        """Return the commit that has begun and is not done."""
        text = read_whole(self._disk, self._pending)  # another process may be about to rename it
        return None if text is None else self._read(self._pending, text)

    def begin(self, manifest: Manifest) -> None:
        """Make it certain that this commit will be done."""
        new = self._pending.with_suffix(".tmp")
        write_durably(self._disk, new, msgspec.json.encode(manifest))
        self._disk.rename(new, self._pending)
        self._disk.sync_directory(self._directory)

    def end(self, manifest: Manifest) -> None:
        """Note that this commit is done."""
        self._disk.rename(self._pending, self._commits / f"{manifest.number:08}.json")
        self._disk.sync_directory(self._commits)
        self._disk.sync_directory(self._directory)

    def _read(self, path: Path, text: bytes) -> Manifest:
        try:
            return msgspec.json.decode(text, type=Manifest)
        except msgspec.MsgspecError as error:
            raise StateFileError(path, f"is no manifest ({error})", STEP) from error


def covered_by(manifest: Manifest, lake: object) -> Covered:
    """Return what a lake holds after a commit. StateFileError: the manifest does not say it."""
    try:
        return Covered.from_json(manifest.covered)
    except (KeyError, TypeError, ValueError) as error:
        what = f"the manifest {manifest.number} does not say what the lake holds"
        raise StateFileError(str(lake), what, "Export to a new directory.") from error
