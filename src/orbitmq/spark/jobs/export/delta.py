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
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import only_by_engine
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
        schema = self._rows.schema(files[0].topic, dlq=files[0].dlq).append(
            pa.field(DAY, pa.date32())
        )
        opened = self._opened(table, schema)
        if (opened.transaction_version(COMMIT) or 0) >= manifest.number:
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

    def compact(self, table: str) -> tuple[int, int]:
        """Rewrite small files of each day together, in one commit that changes no row."""
        opened = self._table(table)
        done = opened.optimize.compact()
        return int(done["numFilesRemoved"]), int(done["numFilesAdded"])

    def files(self, table: str, commit: int) -> list[Path]:
        """Return the files of the table after this commit, compacted or not."""
        place = self._root / table
        if not DeltaTable.is_deltatable(str(place)):
            return []
        opened = DeltaTable(str(place))
        while (opened.transaction_version(COMMIT) or 0) > commit:
            opened.load_as_version(opened.version() - 1)
        features = set(opened.protocol().reader_features or ()) & _HIDING
        if features:
            raise only_by_engine(place, f"uses {', '.join(sorted(features))}")
        return [Path(unquote(uri.removeprefix("file://"))) for uri in opened.file_uris()]

    def sync(self, disk: Disk) -> None:
        """Make the tables' own logs durable."""
        assert isinstance(self._root, Path)
        disk.sync_file_system(self._root)

    def _opened(self, table: str, schema: pa.Schema) -> DeltaTable:
        place, options = str(self._root / table), self._options
        if DeltaTable.is_deltatable(place, storage_options=options):
            return self._table(table)
        return DeltaTable.create(place, schema, partition_by=[DAY], storage_options=options)

    def _table(self, table: str) -> DeltaTable:
        return DeltaTable(str(self._root / table), storage_options=self._options)


def storage_options(root: Path | Address) -> dict[str, str] | None:
    """Return how delta-rs reaches a lake; keys it finds by the same variables as we do."""
    if not isinstance(root, Address):
        return None
    given = {"AWS_REGION": root.region, "aws_conditional_put": "etag"}
    if root.endpoint:
        given["AWS_ENDPOINT_URL"] = root.endpoint
        given["AWS_ALLOW_HTTP"] = str(root.endpoint.startswith("http://")).lower()
    return given


def _transactions(manifest: Manifest) -> list[Transaction]:
    made = [Transaction(COMMIT, manifest.number)]
    if manifest.end_offset >= 0:
        made.append(Transaction(LOG_OFFSET, manifest.end_offset))
    return made


def _action(file: LakeFile) -> AddAction:
    return AddAction(
        path=file.path.removeprefix(f"{file.table}/"),
        size=file.bytes,
        partition_values={DAY: file.day},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
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
