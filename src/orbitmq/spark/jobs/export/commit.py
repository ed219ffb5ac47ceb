"""How the files of tasks become part of a lake, so that a kill at any moment leaves no gap and no double.

  1  `gathered`  tasks have written all that was asked for: files of theirs, whole and durable
  2  `begin`     pending.json names them all: from here on the commit will be done, whoever does it
  3  `finish`    files get their names, one by one; then each table takes its files, in one step of its own
  4              pending.json becomes the manifest

Each step of `finish` can be done again: a file that has its name is left alone, a table knows the number of
its last commit. So whoever finds pending.json does `finish`, and nothing is read again. Before step 2 nothing
has happened, and the files of the attempt are removed.
"""

import os
import shutil
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from orbitmq.errors import JobFailedError
from orbitmq.files.disk import Disk, exists
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.names import day_text, file_path, table_name
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest, Notes
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.parts import Part
from orbitmq.spark.jobs.export.tables import tables_of


def gathered(
    tasks: int, facts: Sequence[TaskFacts], root: Path, commit: int, job: str
) -> list[LakeFile]:
    """Return the files of all tasks, with the names that they will have.

    JobFailedError: they are not what tasks were asked for; nothing has been changed then.
    """
    if sorted(one.number for one in facts) != list(range(tasks)):
        what = f"{len(facts)} results came from {tasks} tasks"
        raise JobFailedError(what, "The lake is as before; run the export again.")
    parts = sorted((part for one in facts for part in one.parts), key=_order)
    for part in parts:
        _require_whole(part)
    return [_named(part, root, commit, number, job) for number, part in enumerate(parts)]


def _order(part: Part) -> tuple[str, int, int]:
    place = part.place
    day = -1 if place.day is None else place.day
    return table_name(place.topic, dlq=place.dlq), day, part.first_log_offset


def _require_whole(part: Part) -> None:
    try:
        length = os.stat(part.path).st_size  # noqa: PTH116  (thousands of them)
    except FileNotFoundError:
        length = -1
    if length != part.bytes:
        what = f"{part.path} has {length} bytes instead of {part.bytes}"
        step = "All machines must see the same directory. The lake is as before."
        raise JobFailedError(what, step)


def _named(part: Part, root: Path, commit: int, number: int, job: str) -> LakeFile:
    place = part.place
    table, day = table_name(place.topic, dlq=place.dlq), day_text(place.day)
    return LakeFile(
        topic=place.topic,
        table=table,
        path=file_path(table, day, commit, number, job),
        part=str(Path(part.path).relative_to(root)),
        day=day,
        rows=part.rows,
        bytes=part.bytes,
        first_log_offset=part.first_log_offset,
        last_log_offset=part.last_log_offset,
        first_ms=part.first_ms,
        last_ms=part.last_ms,
        dlq=place.dlq,
    )


def begin(notes: Notes, manifest: Manifest, disk: Disk) -> None:
    """Make it certain that the commit will be done."""
    # Tasks have synced their files; that these have names is durable only now.
    for directory in {(notes.root / file.part).parent for file in manifest.files}:
        disk.sync_directory(directory)
        disk.sync_directory(directory.parent)
        disk.sync_directory(directory.parent.parent)
    notes.begin(manifest)


def finish(notes: Notes, manifest: Manifest, disk: Disk) -> None:
    """Do what is left of a commit that has begun."""
    tables = tables_of(Format(manifest.format), notes.root, LakeRows(manifest.values))
    _give_names(notes.root, manifest.files, disk)
    for table, files in groupby(manifest.files, key=lambda file: file.table):
        tables.commit(table, list(files), manifest)
    for table, day in manifest.expired.items():
        tables.expire(table, day)
    tables.sync(disk)
    notes.end(manifest)


def _give_names(root: Path, files: Iterable[LakeFile], disk: Disk) -> None:
    directories = {(root / file.path).parent for file in files}
    for directory in sorted(directories):
        disk.make_directory(directory)
    for file in files:
        part, path = root / file.part, root / file.path
        if exists(part):
            disk.rename(part, path)
        elif not exists(path):
            what = f"{part} is gone, which an export had written before it ended early"
            raise JobFailedError(what, "Put the lake's files back, or export to a new directory.")
    for directory in sorted({above for one in directories for above in (one, *one.parents[:2])}):
        disk.sync_directory(directory)


def remove_attempts(notes: Notes) -> None:
    """Remove what attempts left that failed, were killed or were not needed."""
    shutil.rmtree(notes.attempts, ignore_errors=True)
