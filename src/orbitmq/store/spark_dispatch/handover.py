"""Dispatch by somebody else: what a store and the Spark job that dispatches for it tell each other.

In `<root>/orbitmq.dispatch/`:

terms     | the store, once per opening  | epoch, and the settings that decide which bytes are right (JSON)
shown     | the store, all the time      | how far the log may be read (`format/handover.py`)
done      | the job, after each batch    | how far queues and index are, on disk
lock      | whoever may write queues and index now: the job during a batch, the store while it opens
job.lock  | the job, as long as it runs: there is one

Both locks are of the kind that belongs to an open file (flock): they go with the process that had them.
No terms: this store dispatches itself. A new epoch: what the job has in memory is void.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import FormatError, StateFileError, StoreError, StoreLockedError, io_error
from orbitmq.files.disk import Disk, exists, is_missing
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.format.handover import (
    DispatchedOffset,
    ReadableOffset,
    decode_dispatched_offset,
    decode_readable_offset,
)
from orbitmq.units import SECOND_MS

DIRECTORY: Final = "orbitmq.dispatch"
WRITING_WAIT_MS: Final = 60 * SECOND_MS
"""So long somebody may wait for the other one's batch or recovery."""

_TRY_MS: Final = 10
_READS: Final = 5


@dataclass(frozen=True, slots=True)
class DispatchSettings:
    """What the job must know of the store. `settings` are RocketMQ's keys."""

    epoch: int
    settings: Mapping[str, str]


class Handover:
    """The files of one store. Any thread may read; who writes which is in the table above."""

    def __init__(self, root: Path, disk: Disk | None = None, clock: Clock | None = None) -> None:
        self.directory = root / DIRECTORY
        self.root = root
        self._disk = disk or Disk()
        self._clock: Clock = clock or SystemClock()
        self._shown_fd: int | None = None

    # --- terms ---

    def settings(self) -> DispatchSettings | None:
        """Return the terms, None if the store dispatches itself."""
        path = self.directory / "terms"
        data = read_whole(self._disk, path)
        if data is None:
            return None
        try:
            found = json.loads(data)
            settings = {str(key): str(value) for key, value in found["settings"].items()}
            return DispatchSettings(int(found["epoch"]), settings)
        except (ValueError, KeyError, TypeError, AttributeError) as cause:
            step = "Start the broker again: it writes the file anew."
            raise StateFileError(path, f"cannot be understood ({cause})", step) from cause

    def save_settings(self, terms: DispatchSettings) -> None:
        text = json.dumps({"epoch": terms.epoch, "settings": dict(terms.settings)}, indent=1)
        replace_file(self._disk, self.directory / "terms", text.encode())

    def new_epoch(self) -> int:
        """Return a number that no opening of this store had before."""
        try:
            known = self.settings()
        except StateFileError:
            known = None
        # By the clock too: terms go away when a store dispatches itself for a while.
        return max(self._clock.now_ms(), known.epoch + 1 if known is not None else 0)

    def withdraw(self) -> None:
        """Take the terms back: from now on the store dispatches itself."""
        self.close()
        for name in ("terms", "shown", "done"):
            try:
                self._disk.remove(self.directory / name)
            except StoreError as error:
                if not is_missing(error):
                    raise
        if exists(self.directory):
            self._disk.sync_directory(self.directory)

    # --- how far the log may be read ---

    def readable_offset(self) -> ReadableOffset | None:
        """Return what the store shows, None if it was never said."""
        path = self.directory / "shown"
        for _ in range(_READS):
            data = read_whole(self._disk, path)
            if data is None:
                return None
            try:
                return decode_readable_offset(data)
            except FormatError as error:  # just being written
                problem = error
                self._clock.sleep(1)
        raise StateFileError(path, str(problem), "Start the broker again: it writes the file anew.")

    def publish(self, shown: ReadableOffset, *, durable: bool = False) -> None:
        """Say how far the log may be read. In place: this happens many times a second."""
        path = self.directory / "shown"
        if self._shown_fd is None:
            replace_file(self._disk, path, shown.encode())
            self._shown_fd = self._disk.open(path)
            return
        self._disk.write_at(path, self._shown_fd, 0, shown.encode())
        if durable:
            self._disk.sync_data(path, self._shown_fd)

    def close(self) -> None:
        """Let go of the file that is written in place."""
        fd, self._shown_fd = self._shown_fd, None
        if fd is not None:
            self._disk.close(self.directory / "shown", fd)

    # --- how far dispatch is ---

    @property
    def done_path(self) -> Path:
        return self.directory / "done"

    def dispatched_offset(self) -> DispatchedOffset | None:
        """Return how far the job is, None if nobody said so in a way that can be read."""
        data = read_whole(self._disk, self.done_path)
        if data is None:
            return None
        try:
            return decode_dispatched_offset(data)
        except FormatError:
            return None

    def save_dispatched_offset(self, done: DispatchedOffset) -> None:
        """Say how far queues and index are. Only when their bytes are on disk."""
        replace_file(self._disk, self.done_path, done.encode())

    # --- locks ---

    def writing(self, wait_ms: float = WRITING_WAIT_MS) -> AbstractContextManager[None]:
        """Be the only one who writes queues and index. StoreLockedError: the other one did not end."""
        who = "the Spark job that dispatches for this store, or its broker,"
        return self._locked("lock", wait_ms, f"{who} has its queues in hand")

    def only_job(self) -> AbstractContextManager[None]:
        """Be the only job of this store."""
        what = "another `orbitmq spark dispatch` works for this store"
        return self._locked("job.lock", 0, what)

    @contextmanager
    def _locked(self, name: str, wait_ms: float, what: str) -> Iterator[None]:
        path = self.directory / name
        self._disk.make_directory(self.directory)
        fd = self._disk.open(path, create=True)
        try:
            deadline = self._clock.monotonic_ms() + wait_ms
            while not _try_lock(path, fd):
                if self._clock.monotonic_ms() >= deadline:
                    raise StoreLockedError(path, what, "Stop it, or wait until it is ready.")
                self._clock.sleep(_TRY_MS)
            yield
        finally:
            self._disk.close(path, fd)


def dispatch_words(root: Path | str, *, live: bool) -> list[str]:
    """Return the command that dispatches what waits; for a store that is closed it ends by itself."""
    return ["spark", "dispatch", str(root), *(() if live else ("--once",))]


@contextmanager
def taken_over(root: Path, disk: Disk) -> Iterator[None]:
    """Change queues and index of a store that is not open; a job that dispatches for it ends.

    A broker that is to leave dispatch to a job again says so anew when it starts.
    """
    handover = Handover(root, disk)
    if not exists(handover.directory / "terms"):
        yield
        return
    with handover.writing():
        handover.withdraw()
        yield


def _try_lock(path: Path, fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as cause:
        raise io_error(path, "lock", cause) from cause
    return True


def stamp(path: Path) -> tuple[int, int]:
    """Return what changes whenever a file is replaced; (0, 0) if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116  (asked hundreds of times a second)
    except FileNotFoundError:
        return 0, 0
    except OSError as cause:
        raise io_error(path, "look at", cause) from cause
    return found.st_ino, found.st_mtime_ns
