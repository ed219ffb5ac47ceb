"""Iceberg tables, without a JVM: files that tasks wrote become part of a table by pyiceberg.

Their catalog is a file beside them, `catalog.db` (SQLite), or, for tables at s3://, a database whose URL is
given; the namespace is `orbitmq`. The number of a commit
and how far the log is in the table stand in the snapshot's summary, and in the table's properties, which
outlive snapshots that expire.
"""

import warnings
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.expressions import LessThan
from pyiceberg.table import FileScanTask, Table, _parquet_files_to_data_files
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform

from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.names import name_of
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import only_by_engine
from orbitmq.spark.remote.address import Address

CATALOG: Final = "catalog.db"
NAMESPACE: Final = "orbitmq"
COMMIT: Final = "orbitmq.commit"
LOG_OFFSET: Final = "orbitmq.log-offset"
TRIES: Final = 5
"""Of an exchange of files, while others change the same table."""
SNAPSHOTS_KEPT: Final = timedelta(days=7)
_PROPERTIES: Final = {  # of these columns the files have no statistics
    f"write.metadata.metrics.column.{column}": "none"
    for column in ("body", "properties.key", "properties.value")
}


class IcebergTables:
    """The Iceberg tables below a directory."""

    def __init__(self, root: Path | Address, rows: LakeRows, catalog: str = "") -> None:
        self._root, self._rows, self._catalog_url = root, rows, catalog

    @cached_property
    def _catalog(self) -> SqlCatalog:
        return open_catalog(self._root, self._catalog_url)

    def commit(self, table: str, files: Sequence[LakeFile], manifest: Manifest) -> None:
        """Add files in one snapshot of the table."""
        opened = self._opened(table, self._rows.schema(files[0].topic, dlq=files[0].dlq))
        if _has(opened, manifest):
            return
        notes = {COMMIT: str(manifest.number), LOG_OFFSET: str(manifest.end_offset)}
        paths = [_url(self._root / file.path) for file in files]
        with opened.transaction() as transaction:
            transaction.set_properties(notes)
            transaction.add_files(paths, snapshot_properties=notes, check_duplicate_files=False)

    def expire(self, table: str, before: str) -> None:
        """Remove days from the table, and snapshots that are older than a week."""
        opened = self._catalog.load_table((NAMESPACE, table))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that nothing is so old any more
            opened.delete(LessThan("store_time", f"{before}T00:00:00+00:00"))
        self._forget_snapshots(opened)

    def replace(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        """Put files in the place of others, in one snapshot of the table.

        Others may change the table meanwhile: then it is tried again on top of what they did.
        """
        opened = self._catalog.load_table((NAMESPACE, table))
        if _has(opened, manifest):
            return
        # Before, for until the manifest is there a search goes by the snapshot that is the newest one now.
        self._forget_snapshots(opened)
        for tries_left in reversed(range(TRIES)):
            try:
                self._exchange(table, files, old, manifest)
            except (CommitFailedException, ValidationException):
                if not tries_left:
                    raise
            else:
                return

    def _exchange(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        opened = self._catalog.load_table((NAMESPACE, table))
        if _has(opened, manifest):
            return
        notes = {COMMIT: str(manifest.number), LOG_OFFSET: str(manifest.end_offset)}
        paths = [_url(self._root / file.path) for file in files]
        known = {name_of(self._root, task.file.file_path): task.file for task in _tasks(opened)}
        if not set(old) <= known.keys():
            return  # another engine has rewritten them since; its files hold the rows
        with opened.transaction() as transaction:
            transaction.set_properties(notes)
            with transaction.update_snapshot(snapshot_properties=notes).overwrite() as exchange:
                for name in old:
                    exchange.delete_data_file(known[name])
                made = _parquet_files_to_data_files(opened.metadata, paths, opened.io)
                for file in made:
                    exchange.append_data_file(file)

    def files(self, table: str, commit: int) -> list[str]:
        """Return the files of the table after this commit."""
        if not self._catalog.table_exists((NAMESPACE, table)):
            return []
        opened = self._catalog.load_table((NAMESPACE, table))
        snapshot = opened.current_snapshot()
        while snapshot is not None and _commit_of(snapshot) > commit:
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else opened.snapshot_by_id(parent)
        if snapshot is None:
            return []
        tasks = _tasks(opened, snapshot.snapshot_id)
        if any(task.delete_files for task in tasks):
            raise only_by_engine(self._root / table, "has deleted rows in files of their own")
        return [name_of(self._root, task.file.file_path) for task in tasks]

    def sync(self, disk: Disk) -> None:
        """Make the tables' metadata durable."""
        assert isinstance(self._root, Path)
        disk.sync_file_system(self._root)

    def _forget_snapshots(self, opened: Table) -> None:
        old = datetime.now(UTC).replace(tzinfo=None) - SNAPSHOTS_KEPT
        opened.maintenance.expire_snapshots().older_than(old).commit()

    def _opened(self, table: str, schema: pa.Schema) -> Table:
        name = (NAMESPACE, table)
        if self._catalog.table_exists(name):
            return self._catalog.load_table(name)
        with (
            self._catalog.create_table_transaction(
                name, schema, location=_url(self._root / table), properties=_PROPERTIES
            ) as creating,
            creating.update_spec() as spec,
        ):
            spec.add_field("store_time", DayTransform(), "day")
        return self._catalog.load_table(name)


def _has(opened: Table, manifest: Manifest) -> bool:
    return int(opened.properties.get(COMMIT, "0")) >= manifest.number


def _tasks(opened: Table, snapshot: int | None = None) -> list[FileScanTask]:
    return list(opened.scan(snapshot_id=snapshot).plan_files())


def _commit_of(snapshot: Snapshot) -> int:
    """Return the commit that a snapshot is of; 0: of none, as one that removed days."""
    summary = snapshot.summary
    return int(summary.additional_properties.get(COMMIT, "0")) if summary is not None else 0


def _url(place: Path | Address) -> str:
    return place.url if isinstance(place, Address) else f"file://{place}"


def open_catalog(root: Path | Address, url: str = "") -> SqlCatalog:
    """Return the catalog of a lake; made if it is not there."""
    given = {"uri": url or f"sqlite:///{root / CATALOG}", "warehouse": _url(root)}
    if isinstance(root, Address):
        given |= {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "s3.region": root.region}
        given |= {"s3.endpoint": root.endpoint} if root.endpoint else {}
    catalog = SqlCatalog("orbitmq", **given)
    catalog.create_namespace_if_not_exists(NAMESPACE)
    return catalog
