"""A lake as a commit sees it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.tables import Tables
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.remote.address import Address


class LakeNotes(Protocol):
    """What a lake knows about itself (`notes.py`). Whoever changes it has the lake to himself."""

    def numbers(self) -> list[int]:
        """Return the numbers of all commits that are done, in their order."""

    def done(self, number: int) -> Manifest:
        """Return the manifest of one of them."""

    def last(self) -> Manifest | None:
        """Return the newest manifest, which tells what the lake holds."""

    def pending(self) -> Manifest | None:
        """Return the commit that has begun and is not done."""

    def begin(self, manifest: Manifest) -> None:
        """Make it certain that this commit will be done."""

    def end(self, manifest: Manifest) -> None:
        """Note that this commit is done."""


class Lake(Protocol):
    """The files of a lake."""

    @property
    def root(self) -> Path | Address: ...

    @property
    def catalog(self) -> str:
        """The URL of the database of Iceberg tables at a distance."""

    @property
    def notes(self) -> LakeNotes: ...

    def alone(self) -> AbstractContextManager[None]:
        """Have the lake, which is made if it is not there, to oneself. StoreLockedError: another has it."""

    def attempt_files(self, job: str) -> AttemptFiles:
        """Return where tasks write."""

    def part_length(self, path: str) -> int:
        """Return how many bytes a task's file has, -1 if it is not there."""

    def below(self, path: str) -> str:
        """Return the name of a task's file, seen from the lake."""

    def settle(self, files: Sequence[LakeFile]) -> None:
        """Make the names of tasks' files durable, before a commit begins that counts on them."""

    def give_names(self, files: Sequence[LakeFile]) -> None:
        """Give tasks' files their names in the tables; those that have them are left alone."""

    def tables(self, format_: Format, rows: LakeRows) -> Tables:
        """Return the tables."""

    def sync(self, tables: Tables) -> None:
        """Make durable what the libraries of a format have written."""

    def has_table(self, name: str) -> bool:
        """Tell whether a table is there."""

    def has_file(self, name: str) -> bool:
        """Tell whether a file of a table is there."""

    def remove_attempts(self) -> None:
        """Remove what attempts left that failed, were killed or were not needed."""


def lake_at(root: Path | Address, disk: Disk | None = None, catalog: str = "") -> Lake:
    """Return the lake at this place; nothing is made yet."""
    if isinstance(root, Address):
        from orbitmq.spark.jobs.export.lakes.remote import RemoteLake

        return RemoteLake(root, catalog)
    from orbitmq.spark.jobs.export.lakes.here import LakeHere

    return LakeHere(root, disk or Disk())
