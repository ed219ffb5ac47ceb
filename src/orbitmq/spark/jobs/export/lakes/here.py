"""A lake in a directory that all machines see."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from orbitmq.errors import JobFailedError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.lock import StoreLock
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import LakeFile, Notes
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.tables import Tables, tables_of
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles


class LakeHere:
    """The files below a directory (`lake.Lake`)."""

    catalog = ""  # beside the tables

    def __init__(self, root: Path, disk: Disk) -> None:
        self.root, self._disk = root, disk
        self.notes = Notes(root, disk)

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.notes.make()
        with StoreLock(self._disk, self.notes.lock):
            yield

    def attempt_files(self, job: str) -> AttemptFiles:
        files = AttemptFiles(str(self.notes.attempts / job), job, "export")
        self._disk.make_directory(files.directory)
        return files

    def part_length(self, path: str) -> int:
        try:
            return os.stat(path).st_size  # noqa: PTH116  (thousands of them)
        except FileNotFoundError:
            return -1

    def below(self, path: str) -> str:
        return str(Path(path).relative_to(self.root))

    def settle(self, files: Sequence[LakeFile]) -> None:
        # Tasks have synced their files; that these have names is durable only now.
        disk = self._disk
        for directory in {(self.root / file.part).parent for file in files}:
            disk.sync_directory(directory)
            disk.sync_directory(directory.parent)
            disk.sync_directory(directory.parent.parent)

    def give_names(self, files: Sequence[LakeFile]) -> None:
        root, disk = self.root, self._disk
        directories = {(root / file.path).parent for file in files}
        for directory in sorted(directories):
            disk.make_directory(directory)
        for file in files:
            part, path = root / file.part, root / file.path
            if exists(part):
                disk.rename(part, path)
            elif not exists(path):
                raise part_is_gone(str(part))
        above = {above for one in directories for above in (one, *one.parents[:2])}
        for directory in sorted(above):
            disk.sync_directory(directory)

    def tables(self, format_: Format, rows: LakeRows) -> Tables:
        return tables_of(format_, self.root, rows)

    def sync(self, tables: Tables) -> None:
        tables.sync(self._disk)

    def has_table(self, name: str) -> bool:
        return (self.root / name).is_dir()

    def has_file(self, name: str) -> bool:
        return exists(self.root / name)

    def remove_attempts(self) -> None:
        shutil.rmtree(self.notes.attempts, ignore_errors=True)


def part_is_gone(part: str) -> JobFailedError:
    """Return the error for a commit that cannot be finished."""
    what = f"{part} is gone, which an export had written before it ended early"
    return JobFailedError(what, "Put the lake's files back, or export to a new directory.")
