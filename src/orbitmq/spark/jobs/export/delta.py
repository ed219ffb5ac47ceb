"""Delta tables, without a JVM: files that tasks wrote become part of a table by delta-rs.

Two application transactions go with each commit: `orbitmq.commit` is its number, by which one that is done
again is left out; `orbitmq.log_offset` is how far the log is in the table.
"""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.schema import VariantType
from deltalake.transaction import AddAction, RemoveAction

from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import VALUE, LakeRows
from orbitmq.spark.jobs.export.names import name_of
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import only_by_engine
from orbitmq.spark.jobs.export.parts import has_variant
from orbitmq.spark.remote.address import Address

COMMIT: Final = "orbitmq.commit"
LOG_OFFSET: Final = "orbitmq.log_offset"
DAY: Final = "day"
_HIDING: Final = frozenset({"deletionVectors", "columnMapping"})
"""What other engines may turn on; then a file alone does not tell its rows."""


class DeltaTables:
    """The Delta tables below a directory."""

    def __init__(self, root: Path | Address, rows: LakeRows) -> None:
        self._root, self._rows = root, rows
        self._options = storage_options(root)

    def commit(self, table: str, files: Sequence[LakeFile], manifest: Manifest) -> None:
        """Add files in one commit of the table."""
        schema = _schema(self._rows.schema(files[0].topic, dlq=files[0].dlq))
        opened = self._opened(table, schema)
        if _has(opened, manifest):
            return
        opened.create_write_transaction(
            [_action(file) for file in files],
            "append",
            schema,
            partition_by=[DAY],
            commit_properties=CommitProperties(app_transactions=_transactions(manifest)),
        )

    def expire(self, table: str, before: str) -> None:
        """Remove days from the table; their files stay as long as older versions may be read."""
        opened = self._table(table)
        opened.delete(f"{DAY} < '{before}'")
        opened.vacuum(dry_run=False)

    def replace(
        self, table: str, files: Sequence[LakeFile], old: Sequence[str], manifest: Manifest
    ) -> None:
        """Put files in the place of others, in one commit of the table that changes no row."""
        opened = self._table(table)
        if _has(opened, manifest):
            return
        paths = {name: uri.rpartition(f"/{table}/")[2] for name, uri in self._uris(opened).items()}
        if not set(old) <= paths.keys():
            return  # another engine has rewritten them since; its files hold the rows
        removed = [_removal(paths[name]) for name in old]
        opened.create_write_transaction(
            [*(_action(file, is_new=False) for file in files), *removed],
            "append",
            opened.schema(),
            partition_by=[DAY],
            commit_properties=CommitProperties(app_transactions=_transactions(manifest)),
        )
        opened.vacuum(dry_run=False)

    def files(self, table: str, commit: int) -> list[str]:
        """Return the files of the table after this commit, compacted or not."""
        place = self._root / table
        if not DeltaTable.is_deltatable(str(place), storage_options=self._options):
            return []
        opened = self._table(table)
        while (opened.transaction_version(COMMIT) or 0) > commit:
            opened.load_as_version(opened.version() - 1)
        features = set(opened.protocol().reader_features or ()) & _HIDING
        if features:
            raise only_by_engine(place, f"uses {', '.join(sorted(features))}")
        return list(self._uris(opened))

    def sync(self, disk: Disk) -> None:
        """Make the tables' own logs durable."""
        assert isinstance(self._root, Path)
        disk.sync_file_system(self._root)

    def _uris(self, opened: DeltaTable) -> dict[str, str]:
        """Return the files of a table: their names, and what delta-rs calls them."""
        return {name_of(self._root, unquote(uri)): uri for uri in opened.file_uris()}

    def _opened(self, table: str, schema: Schema) -> DeltaTable:
        place, options = str(self._root / table), self._options
        if DeltaTable.is_deltatable(place, storage_options=options):
            return self._table(table)
        return DeltaTable.create(place, schema, partition_by=[DAY], storage_options=options)

    def _table(self, table: str) -> DeltaTable:
        return DeltaTable(str(self._root / table), storage_options=self._options)


def _schema(columns: pa.Schema) -> Schema:
    """Return the columns of a table as Delta knows them, with the day that stands in paths."""
    made = Schema.from_arrow(columns.append(pa.field(DAY, pa.date32())))
    if not has_variant(columns):
        return made
    return Schema(
        [Field(VALUE, VariantType()) if one.name == VALUE else one for one in made.fields]
    )


def storage_options(root: Path | Address) -> dict[str, str] | None:
    """Return how delta-rs reaches a lake; keys it finds by the same variables as we do."""
    if not isinstance(root, Address):
        return None
    given = {"AWS_REGION": root.region, "aws_conditional_put": "etag"}
    if root.endpoint:
        given["AWS_ENDPOINT_URL"] = root.endpoint
        given["AWS_ALLOW_HTTP"] = str(root.endpoint.startswith("http://")).lower()
    return given


def _has(opened: DeltaTable, manifest: Manifest) -> bool:
    return (opened.transaction_version(COMMIT) or 0) >= manifest.number


def _transactions(manifest: Manifest) -> list[Transaction]:
    made = [Transaction(COMMIT, manifest.number)]
    if manifest.end_offset >= 0:
        made.append(Transaction(LOG_OFFSET, manifest.end_offset))
    return made


def _removal(path: str) -> RemoveAction:
    return RemoveAction(path, False, time.time_ns() // 1_000_000)


def _action(file: LakeFile, *, is_new: bool = True) -> AddAction:
    return AddAction(
        path=file.path.removeprefix(f"{file.table}/"),
        size=file.bytes,
        partition_values={DAY: file.day},
        modification_time=time.time_ns() // 1_000_000,
        data_change=is_new,
        stats=json.dumps(_stats(file)),
    )


def _stats(file: LakeFile) -> dict[str, Any]:
    """Return what lets a reader pass over a file."""
    lows: dict[str, Any] = {"log_offset": file.first_log_offset}
    highs: dict[str, Any] = {"log_offset": file.last_log_offset}
    if file.first_ms is not None and file.last_ms is not None:
        lows["store_time"], highs["store_time"] = _time(file.first_ms), _time(file.last_ms)
    return {"numRecords": file.rows, "minValues": lows, "maxValues": highs}


def _time(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
