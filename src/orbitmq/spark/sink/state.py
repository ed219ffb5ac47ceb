"""What a write has sent, in files beside the rows that wait: whoever goes on after a kill knows where.

    <staging>/attempts/.part-<write>-<batch>-...   rows, as requests, of one attempt of a task (`staged`)
    <staging>/<write>.json                         the last batch: which files it has, whether it is sent
    <staging>/<write>.lock                         held by the process that sends

A write is a streaming query (its id, from the checkpoint) or a batch write (option `writeId`, or an id of its
own). Its batches follow each other; that of a batch write is number 0. The first file list that is written
down is the batch: what tasks made of the same rows later is not looked at. So it does not matter whether
they would have made the same.
"""

import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from orbitmq.errors import JobFailedError, StateFileError, StoreError, StoreLockedError
from orbitmq.files.disk import Disk
from orbitmq.files.lock import StoreLock
from orbitmq.files.replace import make_durable_directory, read_whole, replace_file
from orbitmq.spark.jobs.rebuild.attempt_files import DIRECTORY, PREFIX
from orbitmq.spark.targets import Ends
from orbitmq.wire.bodies.message_queue import MessageQueue

LOCK_SECONDS: Final = 60.0
"""What a killed driver left behind ends in less, and a commit that is nearly done may end well."""
_PAUSE_SECONDS: Final = 0.1
STAGE: Final = "rows"
_BATCH: Final = re.compile(rf"(\d+)-{STAGE}.*")
"""The part of a file's name behind that of its write."""


class SinkState(msgspec.Struct):
    """The last batch of a write, as it is known."""

    batch: int
    files: list[str]
    client_id: str = ""
    """Who sends it, or did so last."""
    ends: list[tuple[str, str, int, int]] = []
    """From where on the targets may hold messages of it: topic, broker, queue id, queue offset."""
    messages: int = 0
    done: bool = False

    def noted_ends(self) -> Ends:
        return {MessageQueue(topic, broker, q): offset for topic, broker, q, offset in self.ends}

    def note_ends(self, ends: Ends) -> None:
        self.ends = [(q.topic, q.broker_name, q.queue_id, n) for q, n in sorted(ends.items())]


@dataclass(frozen=True, slots=True)
class Staging:
    """The files of one write. Not thread-safe."""

    root: Path
    write: str
    disk: Disk

    @property
    def attempts(self) -> Path:
        return self.root / DIRECTORY

    @property
    def _path(self) -> Path:
        return self.root / f"{self.write}.json"

    @property
    def _lock(self) -> Path:
        return self.root / f"{self.write}.lock"

    def make(self) -> None:
        """Make the directory for rows; tasks make none."""
        make_durable_directory(self.disk, self.attempts)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one who sends. JobFailedError: somebody else is, and stays so."""
        lock = StoreLock(self.disk, self._lock)
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                lock.acquire()
                break
            except StoreLockedError as error:
                if time.monotonic() > deadline:
                    what = f"another process is sending the rows of write {self.write}"
                    raise JobFailedError(what, f"End it first; it holds {self._lock}.") from error
            time.sleep(_PAUSE_SECONDS)
        try:
            yield
        finally:
            lock.release()

    def load(self) -> SinkState | None:
        data = read_whole(self.disk, self._path)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=SinkState)
        except msgspec.MsgspecError as cause:
            step = "Look what was sent, then move it away: the write starts anew."
            raise StateFileError(self._path, f"is no state of a write ({cause})", step) from cause

    def save(self, state: SinkState) -> None:
        """Write the state; durable when this returns."""
        replace_file(self.disk, self._path, msgspec.json.encode(state))

    def is_known(self, batch: int) -> bool:
        """Return whether it was written down what this batch is: rows for it are of no use then."""
        with suppress(StateFileError):  # whoever sends will say it
            state = self.load()
            return state is not None and state.batch >= batch
        return False

    def remove_rows(self, batch: int, keep: frozenset[str] = frozenset()) -> None:
        """Remove rows that wait, of batches up to this one; attempts that failed left theirs too."""
        for path in self.attempts.glob(f"{PREFIX}{self.write}-*"):
            named = _BATCH.fullmatch(path.name.removeprefix(f"{PREFIX}{self.write}-"))
            if named is not None and int(named[1]) <= batch and str(path) not in keep:
                with suppress(StoreError):  # gone already
                    self.disk.remove(path)

    def remove(self) -> None:
        """Remove what says that this write was sent: nobody can repeat it."""
        for path in (self._path, self._lock):
            with suppress(StoreError):
                self.disk.remove(path)

    def remove_root(self) -> None:
        """Remove the directory, which is this write's own."""
        shutil.rmtree(self.root, ignore_errors=True)
