"""What makes files part of a table, by the format of the lake."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import Format


class Tables(Protocol):
    """The tables of a lake."""

    def commit(self, table: str, files: Sequence[LakeFile], manifest: Manifest) -> None:
        """Make files part of a table, which may not be there yet, in one step.

        A commit that the table has already, by its number, is left out.
        """

    def expire(self, table: str, before: str) -> None:
        """Remove the days of a table before this one (2026-11-18); those that are gone are left out."""

    def replace(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        """Put files in the place of others that hold the same rows, in one step where there is one.

        A commit that the table has already, by its number, is left out.
        """

    def files(self, table: str, commit: int) -> list[str] | None:
        """Return the files of a table after this commit, whatever came later; None: manifests tell.

        Names are seen from the lake; of a file that lies elsewhere, the whole path.
        """

    def sync(self, disk: Disk) -> None:
        """Make durable what the libraries of the format have written, which sync nothing."""


class PlainTables:
    """Directories of Parquet files: what has its name there is part of the table."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def commit(self, table: str, files: Sequence[LakeFile], manifest: Manifest) -> None:
        """Files that have their names are all that is needed."""

    def expire(self, table: str, before: str) -> None:
        """Remove the directories of these days."""
        for path in (self._root / table).glob("day=[0-9]*"):
            if path.name < f"day={before}":
                shutil.rmtree(path)

    def replace(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        """Remove what the new files, which have their names, stand for: a reader sees both meanwhile."""
        for name in old:
            (self._root / name).unlink(missing_ok=True)

    def files(self, table: str, commit: int) -> None:
        """Nobody rewrites them."""

    def sync(self, disk: Disk) -> None:
        """Names are durable already."""


def tables_of(format_: Format, root: Path, rows: LakeRows) -> Tables:
    """Return the tables of a lake."""
    match format_:
        case Format.DELTA:
            from orbitmq.spark.jobs.export.delta import DeltaTables

            return DeltaTables(root, rows)
        case Format.ICEBERG:
            from orbitmq.spark.jobs.export.iceberg import IcebergTables

            return IcebergTables(root, rows)
        case _:
            return PlainTables(root)
