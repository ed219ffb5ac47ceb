"""How the files of tasks become part of a lake, so that a kill at any moment leaves no gap and no double.

  1  `gathered`  tasks have written all that was asked for: files of theirs, whole and durable
  2  `begin`     pending.json names them all: from here on the commit will be done, whoever does it
  3  `finish`    files get their names, one by one; then each table takes its files, in one step of its own
  4              pending.json becomes the manifest

Each step of `finish` can be done again: a file that has its name is left alone, a table knows the number of
its last commit. So whoever finds pending.json does `finish`, and nothing is read again. Before step 2 nothing
has happened, and the files of the attempt are removed.
"""

from collections.abc import Sequence
from itertools import groupby

from orbitmq.errors import JobFailedError
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.lakes.lake import Lake
from orbitmq.spark.jobs.export.names import day_text, file_path, table_name
from orbitmq.spark.jobs.export.notes import LakeFile, Manifest
from orbitmq.spark.jobs.export.options import Format
from orbitmq.spark.jobs.export.parts import Part


def gathered(
    tasks: int, facts: Sequence[TaskFacts], lake: Lake, commit: int, job: str
) -> list[LakeFile]:
    """Return the files of all tasks, with the names that they will have.

    JobFailedError: they are not what tasks were asked for; nothing has been changed then.
    """
    if sorted(one.number for one in facts) != list(range(tasks)):
        what = f"{len(facts)} results came from {tasks} tasks"
        raise JobFailedError(what, "The lake is as before; run the export again.")
    parts = sorted((part for one in facts for part in one.parts), key=_order)
    for part in parts:
        _require_whole(part, lake)
    return [_named(part, lake, commit, number, job) for number, part in enumerate(parts)]


def _order(part: Part) -> tuple[str, int, int]:
    place = part.place
    day = -1 if place.day is None else place.day
    return table_name(place.topic, dlq=place.dlq), day, part.first_log_offset


def _require_whole(part: Part, lake: Lake) -> None:
    length = lake.part_length(part.path)
    if length != part.bytes:
        what = f"{part.path} has {length} bytes instead of {part.bytes}"
        step = "All machines must see the same directory. The lake is as before."
        raise JobFailedError(what, step)


def _named(part: Part, lake: Lake, commit: int, number: int, job: str) -> LakeFile:
    place = part.place
    table, day = table_name(place.topic, dlq=place.dlq), day_text(place.day)
    return LakeFile(
        topic=place.topic,
        table=table,
        path=file_path(table, day, commit, number, job),
        part=lake.below(part.path),
        day=day,
        rows=part.rows,
        bytes=part.bytes,
        first_log_offset=part.first_log_offset,
        last_log_offset=part.last_log_offset,
        first_ms=part.first_ms,
        last_ms=part.last_ms,
        dlq=place.dlq,
    )


def begin(lake: Lake, manifest: Manifest) -> None:
    """Make it certain that the commit will be done."""
    lake.settle(manifest.files)
    lake.notes.begin(manifest)


def finish(lake: Lake, manifest: Manifest) -> None:
    """Do what is left of a commit that has begun."""
    tables = lake.tables(Format(manifest.format), LakeRows(manifest.values))
    lake.give_names(manifest.files)
    for table, files in groupby(manifest.files, key=lambda file: file.table):
        old = manifest.replaced.get(table)
        if old is None:
            tables.commit(table, list(files), manifest)
        else:
            tables.replace(table, list(files), old, manifest)
    for table, day in manifest.expired.items():
        tables.expire(table, day)
    lake.sync(tables)
    lake.notes.end(manifest)
