"""Files that tasks write, so that a task may run twice, half, or at the same time on two machines.

An attempt of a task writes only files of its own, `.part-<job>-<stage><task>-<attempt>-<number>`, and
names them in its result. Spark takes the result of one attempt of each task; the driver uses the files
that those results name, after it has looked whether together they are all that was asked for, and gives
them their real names. The directory goes with everything else that is in it, at the end of the job or at
the beginning of the next: files of attempts that failed, were killed, or were not needed.

Tasks make no directories: once this one is gone, an attempt that still runs cannot leave anything behind.
"""

import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pyspark import TaskContext

from orbitmq.errors import JobFailedError
from orbitmq.files.disk import Disk
from orbitmq.files.positioned import SYNC_ONE_BY_ONE_MAX
from orbitmq.spark.shared_paths import require_seen

PREFIX: Final = ".part-"
DIRECTORY: Final = "attempts"


@dataclass(slots=True)
class AttemptFiles:
    """Names for the files of one attempt. Travels to tasks; there, one attempt uses it."""

    directory: str
    job: str
    stage: str
    _count: int = 0

    def new_path(self) -> str:
        """Return the path of a file that nobody has."""
        context = TaskContext.get()
        # The number of an attempt starts anew when Spark runs a whole stage again; its id never does.
        task = context.partitionId() if context else "driver"
        attempt = context.taskAttemptId() if context else uuid.uuid4().hex[:12]
        number, self._count = self._count, self._count + 1
        return f"{self.directory}/{PREFIX}{self.job}-{self.stage}{task}-{attempt}-{number}"

    def require_seen(self) -> None:
        """Raise StoreError in a task whose machine does not have the directory."""
        require_seen(self.directory)


class Finished(NamedTuple):
    """A file that a task has written whole and made durable."""

    target: int  # what it was asked for
    path: str
    length: int
    units: int  # units or entries in it, padding included


class Wanted(NamedTuple):
    """A file that a job needs."""

    path: Path
    length: int
    units: int


def settle(wanted: Mapping[int, Wanted], finished: Iterable[Finished], disk: Disk) -> None:
    """Give the files of the successful attempts their names, durably.

    JobFailedError: they are not exactly what was asked for; nothing has been renamed then.
    """
    found = list(finished)
    _require_all(wanted, found)
    directories = {wanted[file.target].path.parent for file in found}
    for directory in directories:
        disk.make_directory(directory)
    for file in found:
        disk.rename(file.path, wanted[file.target].path)
    _sync_directories(directories, disk)


def _require_all(wanted: Mapping[int, Wanted], found: list[Finished]) -> None:
    targets = [file.target for file in found]
    missing = wanted.keys() - set(targets)
    if missing or len(set(targets)) != len(targets) or set(targets) - wanted.keys():
        what = f"tasks gave {len(targets)} files where {len(wanted)} were asked for"
        raise JobFailedError(what, "The store is as before; run the job again.")
    for file in found:
        expected = wanted[file.target]
        length = _length(file.path)
        if (length, file.units) != (expected.length, expected.units):
            what = (
                f"{file.path} has {length} bytes and {file.units} units "
                f"instead of {expected.length} and {expected.units}"
            )
            step = "All machines must see the same directory. The store is as before."
            raise JobFailedError(what, step)


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116  (tens of thousands of them)
    except FileNotFoundError:
        return -1


def _sync_directories(directories: set[Path], disk: Disk) -> None:
    above = {parent for path in directories for parent in (path, path.parent, path.parent.parent)}
    if len(above) > SYNC_ONE_BY_ONE_MAX:
        disk.sync_file_system(next(iter(above)))
        return
    for directory in sorted(above):
        disk.sync_directory(directory)
