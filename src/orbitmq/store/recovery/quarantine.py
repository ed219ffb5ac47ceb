"""Bytes that recovery or a tool takes out of a store are kept here first, and synced, before they go.

orbitmq.quarantine/
  journal.jsonl                    one line for each thing kept: when, from where, why
  <log offset>-<length>.bin        bytes of the commit log
  <time>-<what>/...                whole files and directories, under the path that they had

Nothing here is ever read by the store. Somebody who needs the space may delete the directory.
"""

import errno
import json
from pathlib import Path
from typing import Any, Final

from orbitmq.clock import Clock
from orbitmq.errors import StoreIOError
from orbitmq.files.disk import Disk
from orbitmq.units import MiB

JOURNAL_NAME: Final = "journal.jsonl"
_COPY_BYTES: Final = 4 * MiB


class Quarantine:
    """The quarantine of one store. Not thread-safe. The directory is made when something is kept."""

    def __init__(self, directory: Path, root: Path, disk: Disk, clock: Clock) -> None:
        self.directory = directory
        self._store = directory.parent
        self._root = root
        self._disk = disk
        self._clock = clock
        self.kept: list[Path] = []

    def keep_bytes(
        self, source: Path, position: int, log_offset: int, data: bytes, cause: str
    ) -> Path | None:
        """Keep bytes of a segment; return where. Zeros at the end are not kept, only zeros not at all."""
        content = data.rstrip(b"\0")
        if not content:
            return None
        target = self._free_name(f"{log_offset}-{len(content)}.bin", content)
        # Even if it is there: who wrote it may have died before the sync.
        self._write_durably(target, 0, content)
        self._journal(
            source,
            target,
            cause,
            position=position,
            log_offset=log_offset,
            length=len(data),
            kept_length=len(content),
        )
        return target

    def keep_path(self, source: Path, group: str, cause: str) -> Path:
        """Move a file or directory of the store here, below a directory for this group; return where."""
        target = self.directory / group / self._relative(source)
        if target.exists():
            target = target.with_name(f"{target.name}.{self._clock.now_ms()}")
        self._make_directory(target.parent)
        self._move(source, target)
        self._journal(source, target, cause)
        return target

    def _relative(self, source: Path) -> Path:
        try:
            return source.relative_to(self._root)
        except ValueError:  # a commit log on another disk
            return Path(source.parent.name) / source.name

    def _move(self, source: Path, target: Path) -> None:
        try:
            self._disk.rename(source, target)
        except StoreIOError as error:
            if error.errno != errno.EXDEV or source.is_dir():
                raise
            self._copy(source, target)
            self._disk.remove(source)
        self._disk.sync_directory(target.parent)
        self._disk.sync_directory(source.parent)

    def _copy(self, source: Path, target: Path) -> None:
        reading = self._disk.open(source, writable=False)
        writing = self._disk.open(target, create=True)
        position = 0
        while data := self._disk.read_at(source, reading, position, _COPY_BYTES):
            self._disk.write_at(target, writing, position, data)
            position += len(data)
        self._disk.sync_data(target, writing)
        self._disk.close(target, writing)
        self._disk.close(source, reading)

    def _free_name(self, name: str, content: bytes) -> Path:
        """Return this name, or one beside it if other bytes have it already."""
        target = self.directory / name
        number = 0
        while target.exists() and target.read_bytes() != content:
            number += 1
            target = self.directory / f"{Path(name).stem}.{number}.bin"
        return target

    def _make_directory(self, directory: Path) -> None:
        """Make a directory of the quarantine; its name and those above it are durable then."""
        self._disk.make_directory(directory)
        while directory != self._store:
            directory = directory.parent
            self._disk.sync_directory(directory)

    def _write_durably(self, target: Path, position: int, content: bytes) -> None:
        self._make_directory(self.directory)
        fd = self._disk.open(target, create=True)
        try:
            self._disk.write_at(target, fd, position, content)
            self._disk.sync_data(target, fd)
        finally:
            self._disk.close(target, fd)
        self._disk.sync_directory(self.directory)

    def _journal(self, source: Path, target: Path, cause: str, **more: Any) -> None:
        line = {
            "time_ms": self._clock.now_ms(),
            "source": str(self._relative(source)),
            "kept": str(target.relative_to(self.directory)),
            "cause": cause,
            **more,
        }
        journal = self.directory / JOURNAL_NAME
        data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
        before = journal.read_bytes() if journal.exists() else b""
        if before and not before.endswith(b"\n"):
            data = b"\n" + data  # a line that a crash tore must not spoil this one
        self._write_durably(journal, len(before), data)
        self.kept.append(target)
