"""Few files of a lake instead of many small ones, and rows sorted so that a search reads less.

A commit as the others are (`export/commit.py`): new files are written whole, pending.json names them and
those that they stand for, and each table exchanges them in a step of its own. Killed at any moment, either
nothing has happened or whoever comes next does the rest. No row changes.
"""

import os
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.errors import ConfigError
from orbitmq.files.disk import Disk
from orbitmq.spark.jobs.compact.options import CompactOptions
from orbitmq.spark.jobs.compact.plan import Group, planned
from orbitmq.spark.jobs.compact.rewrite import Rewrite
from orbitmq.spark.jobs.export.care import alone, newest, opened
from orbitmq.spark.jobs.export.commit import begin, finish, gathered
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.lakes.lake import Lake
from orbitmq.spark.jobs.export.names import name_of
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.parts import Part
from orbitmq.spark.jobs.query.lake import read_lake
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.remote.address import Address

THREADS: Final = max(1, min(4, os.cpu_count() or 1))
"""Groups that are rewritten side by side; each needs memory for what it sorts."""
OnBytes = Callable[[int, int, int], None]
"""Bytes that are done, of how many, and rows."""


@dataclass(slots=True)
class TableReport:
    """What became of a table."""

    days: int = 0
    removed: int = 0  # files
    added: int = 0
    rows: int = 0
    removed_bytes: int = 0
    added_bytes: int = 0


@dataclass(slots=True)
class CompactReport:
    """What was done, or would be: of a dry run nothing is known of new files and of rows."""

    lake: Path | Address
    format: str
    commit: int
    dry_run: bool
    cluster_by: tuple[str, ...]
    tables: dict[str, TableReport] = field(default_factory=dict)


def compact(
    lake: str | Path,
    *,
    catalog: str | None = None,
    disk: Disk | None = None,
    on_bytes: OnBytes | None = None,
    **given: Any,
) -> CompactReport:
    """Make few files of many small ones, day by day; return by table what was done.

    `topics` (all), `cluster_by` (columns: all files of a day become ones whose rows are sorted by them,
    `keys` by the first of each message), `target_bytes` of a file (128 MiB), `exclusive` (needed for
    directories of Parquet files, which nobody may read meanwhile), `dry_run`; `catalog` is the database of
    Iceberg tables at s3://.

    ConfigError: an argument that cannot work.
    """
    options = CompactOptions.of(**given)
    place = opened(lake, catalog, disk)
    _require_steps(newest(place), options)
    if options.dry_run:
        return _Compaction(place, newest(place), options, on_bytes).looked()
    with alone(place) as last:
        return _Compaction(place, last, options, on_bytes).run()


def _require_steps(last: Manifest, options: CompactOptions) -> None:
    unknown = sorted(set(options.topics) - last.values.keys())
    if unknown:
        raise ConfigError("topic", unknown[0], "the lake has no table of this topic")
    if last.format == Format.PARQUET and not (options.exclusive or options.dry_run):
        rule = (
            "a directory of files cannot be changed in one step: say --exclusive when nobody reads"
            " it meanwhile, or make a lake in Delta or Iceberg"
        )
        raise ConfigError("format", last.format, rule)


class _Compaction:
    """One run. Not thread-safe."""

    def __init__(
        self, lake: Lake, last: Manifest, options: CompactOptions, on_bytes: OnBytes | None
    ) -> None:
        self._lake, self._last, self._options = lake, last, options
        self._on_bytes, self._rows = on_bytes, LakeRows(last.values)
        self._report = CompactReport(
            lake.root, last.format, last.number, options.dry_run, options.cluster_by
        )

    def looked(self) -> CompactReport:
        """Return what would be rewritten."""
        self._plan()
        return self._report

    def run(self) -> CompactReport:
        groups = self._plan()
        if not groups:
            return self._report
        job = uuid.uuid4().hex[:12]
        try:
            parts = self._rewritten(groups, job)
            manifest = self._manifest(groups, parts, job)
            begin(self._lake, manifest)
            finish(self._lake, manifest)
        finally:
            if self._lake.notes.pending() is None:
                self._lake.remove_attempts()
        self._report.commit = manifest.number
        for file in manifest.files:
            table = self._report.tables[file.table]
            table.added, table.rows = table.added + 1, table.rows + file.rows
            table.added_bytes += file.bytes
        return self._report

    def _plan(self) -> list[Group]:
        found = read_lake(self._lake.root, self._lake.catalog)
        groups = planned(found.files, self._options)
        for table in sorted({group.table for group in groups}):
            mine = [group for group in groups if group.table == table]
            self._report.tables[table] = TableReport(
                days=len({group.place.day for group in mine}),
                removed=sum(len(group.parts) for group in mine),
                removed_bytes=sum(group.bytes for group in mine),
            )
        return groups

    def _rewritten(self, groups: Sequence[Group], job: str) -> list[Part]:
        total, done, rows = sum(group.bytes for group in groups), 0, 0
        made: list[Part] = []
        with ThreadPoolExecutor(THREADS, thread_name_prefix="orbitmq-compact") as threads:
            files = self._lake.attempt_files(job)
            running = {threads.submit(self._one(group, files).run): group for group in groups}
            try:
                for future in as_completed(running):
                    parts = future.result()
                    made += parts
                    done, rows = done + running[future].bytes, rows + sum(one.rows for one in parts)
                    if self._on_bytes is not None:
                        self._on_bytes(done, total, rows)
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise
        return made

    def _one(self, group: Group, files: AttemptFiles) -> Rewrite:
        schema = self._rows.schema(group.place.topic, dlq=group.place.dlq)
        return Rewrite(self._lake.root, group, schema, files, self._options.cluster_by)

    def _manifest(self, groups: Sequence[Group], parts: list[Part], job: str) -> Manifest:
        number = self._last.number + 1
        files = gathered(1, [TaskFacts(0, parts=parts)], self._lake, number, job)
        return msgspec.structs.replace(
            self._last,
            number=number,
            job=job,
            committed_ms=time.time_ns() // 1_000_000,
            files=[self._ordered(file) for file in files],
            expired={},
            replaced=self._replaced(groups),
        )

    def _ordered(self, file: LakeFile) -> LakeFile:
        return msgspec.structs.replace(file, order=list(self._options.cluster_by))

    def _replaced(self, groups: Sequence[Group]) -> dict[str, list[str]]:
        made: dict[str, list[str]] = {}
        for group in groups:
            names = [name_of(self._lake.root, part.path) for part in group.parts]
            made.setdefault(group.table, []).extend(names)
        return made
