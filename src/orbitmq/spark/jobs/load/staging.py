"""Where a load makes its store, and how that becomes the store, in one step.

.NAME.orbitmq-load/      beside the target NAME, so that a rename can move it
  lock                     held by the load
  attempts/                files of tasks
  store/                   the store in the making; renamed to NAME when all of it is durable

A load that failed or was interrupted removes this directory. One that was killed leaves it, and no store:
the next load to the same target removes it first. It may be deleted by hand as well.
"""

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.errors import ConfigError, StoreIOError, StoreLockedError, io_error
from orbitmq.files.disk import Disk, exists
from orbitmq.files.lock import StoreLock
from orbitmq.spark.jobs.rebuild.attempt_files import DIRECTORY
from orbitmq.spark.remote.address import is_remote

SUFFIX: Final = ".orbitmq-load"
_MOUNTED: Final = (errno.EXDEV, errno.EBUSY)


def require_new(target: Path) -> None:
    """Raise ConfigError unless a store can be made at this path: nothing, or an empty directory, is there."""
    if is_remote(target):
        rule = "a store is made in a directory; copy it to s3:// afterwards"
        raise ConfigError("to", str(target).replace(":/", "://", 1), rule)
    if not exists(target):
        return
    if not target.is_dir():
        raise ConfigError("--to", str(target), "is a file, not a directory")
    if any(target.iterdir()):
        rule = "is not empty; a bulk load makes a new store: give a directory that is empty or not there"
        raise ConfigError("--to", str(target), rule)


@dataclass(frozen=True, slots=True)
class Staging:
    """The directory of one load."""

    target: Path  # absolute
    disk: Disk

    @property
    def root(self) -> Path:
        return self.target.parent / f".{self.target.name}{SUFFIX}"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def attempts(self) -> Path:
        return self.root / DIRECTORY

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have the directory to oneself, empty; nothing of it is left at the end."""
        self.disk.make_directory(self.root)
        try:
            lock = StoreLock(self.disk, self.root / "lock").acquire()
        except StoreLockedError as error:
            step = "Wait for it, or give another directory."
            raise StoreLockedError(self.root, "another load to this target runs", step) from error
        try:
            for left in (self.attempts, self.store):
                _remove(left)
            self.disk.make_directory(self.attempts)
            self.disk.make_directory(self.store)
            yield
        finally:
            try:
                self._discard()
            finally:
                lock.release()

    def commit(self) -> None:
        """Make the whole, durable store the target."""
        require_new(self.target)
        self.disk.sync_directory(self.store)
        try:
            self.disk.rename(self.store, self.target)
        except StoreIOError as error:
            if error.errno in _MOUNTED:
                rule = "is a file system of its own; give a directory in it"
                raise ConfigError("--to", str(self.target), rule) from error
            raise
        self.disk.sync_directory(self.target.parent)

    def _discard(self) -> None:
        # Under another name first: a path that leads nowhere takes no new files of a task that still runs.
        dead = self.root.with_name(f"{self.root.name}.dead")
        _remove(dead)
        self.disk.rename(self.root, dead)
        _remove(dead)


def _remove(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return
    except OSError as cause:
        raise io_error(path, "remove", cause) from cause
