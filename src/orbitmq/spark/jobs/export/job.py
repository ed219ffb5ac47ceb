"""Topics of a log, or of a cluster, into a lake, on Spark.

  look    the driver: what is new since the last commit, cut into tasks (`log_source`, `cluster_source`)
  write   a task for some splits each: rows straight from mapped bytes into Parquet files by topic and day
          (`log_task`, `cluster_task`), files of that attempt
  commit  the driver: all are there, once; they become part of the tables, the manifest comes last (`commit`)

The driver holds the lake's lock from the first to the last step. The source is only read.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from orbitmq.errors import ConfigError, PipelineError
from orbitmq.files.disk import Disk
from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.export.commit import begin, finish, gathered
from orbitmq.spark.jobs.export.covered import Covered
from orbitmq.spark.jobs.export.facts import TaskFacts
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.lakes.lake import lake_at
from orbitmq.spark.jobs.export.log_source import LogSource, require_store
from orbitmq.spark.jobs.export.notes import Manifest, covered_by
from orbitmq.spark.jobs.export.options import ExportOptions
from orbitmq.spark.jobs.export.report import ExportReport
from orbitmq.spark.jobs.export.sample import joined_fields
from orbitmq.spark.jobs.export.source import Round, Source
from orbitmq.spark.jobs.export.values import chosen
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import JobProgress
from orbitmq.spark.remote.address import is_remote
from orbitmq.spark.remote.names import store_names
from orbitmq.spark.shared_paths import absolute_settings, absolute_text

_SOURCES: Final = {"log": "a log", "queues": "queues"}
FOLLOW_SECONDS: Final = 5.0
"""How often a follower looks at its source; a round that takes longer is followed by the next at once."""


def export(
    spark: Spark,
    to: str | Path,
    *,
    store: str | Path = "",
    namesrv: str = "",
    settings: Mapping[str, str] | None = None,
    progress: JobProgress | None = None,
    disk: Disk | None = None,
    **given: Any,
) -> ExportReport:
    """Bring what is new in a store's log, or in a cluster, into a lake; return what was done.

    `to` is the lake's directory, `store` the store's, or either is s3://bucket/prefix; or `namesrv` names a
    cluster. Further arguments:
    `format` ("parquet", "delta", "iceberg"), `topics` (all), `since` (a time as "now-1d") or `from_offset`:
    where topics start, also to fill in what lies before; without, new ones start with the oldest message and
    the others go on. `body` ("binary"; "json" adds a column `value` by `schema`, a file or a table of fields
    by topic, or else as the messages tell; "variant" adds one for JSON of any kind), `bad_records` ("fail",
    "skip"), `catalog` (of Iceberg tables at s3://: the URL of a database), `dry_run`.

    ConfigError: an argument that cannot work. PipelineError: the source is another one than before.
    """
    options = ExportOptions.of(to, **given)
    source = From.of(store, namesrv, settings)
    with nullcontext(progress) if progress is not None else JobProgress(spark) as shown:
        return ExportJobs(spark, source, options, shown, disk).once()


@dataclass(frozen=True, slots=True)
class From:
    """What to export: a store directory, or the topics of a cluster."""

    store: str  # a directory, or s3://bucket/prefix
    namesrv: str
    settings: Mapping[str, str]

    @classmethod
    def of(
        cls, store: str | Path, namesrv: str, settings: Mapping[str, str] | None = None
    ) -> "From":
        """Return it, if it can be. ConfigError, NotAStoreError: it cannot."""
        if bool(str(store)) == bool(namesrv):
            rule = "give a store directory or the name servers of a cluster (namesrv), one of them"
            raise ConfigError("from", str(store), rule)
        path = absolute_text(str(store))
        made = cls(path, namesrv, absolute_settings(settings))
        if path:
            require_store(path, made.settings)
        return made

    def require_grows(self) -> None:
        """Raise ConfigError for a store that nobody writes to."""
        if is_remote(self.store):
            rule = "follows a directory or a cluster; what lies at s3:// does not grow"
            raise ConfigError("follow", self.store.partition("?")[0], rule)


class ExportJobs:
    """Exports from one source to one lake: once, or whenever there is something new. Not thread-safe."""

    def __init__(
        self,
        spark: Spark,
        given: From,
        options: ExportOptions,
        progress: JobProgress,
        disk: Disk | None = None,
    ) -> None:
        self._spark, self._given, self._options = spark, given, options
        self._progress, self._disk = progress, disk or Disk()

    def once(self) -> ExportReport:
        """Bring what is new."""
        with self._job(follows=False) as job:
            return job.run()

    def follow(
        self,
        stop: threading.Event,
        show: Callable[[ExportReport], None],
        seconds: float = FOLLOW_SECONDS,
    ) -> ExportReport:
        """Bring what is new, again and again, until `stop` is set; return what the last round did."""
        self._given.require_grows()
        with self._job(follows=True) as job:
            while True:
                looked = time.monotonic()
                report = job.run()
                show(report)
                if stop.wait(max(0.0, looked + seconds - time.monotonic())):
                    return report

    @contextmanager
    def _job(self, *, follows: bool) -> Iterator["_ExportJob"]:
        with self._source() as source:
            given = self._spark, source, self._options, self._progress, self._disk
            job = _ExportJob(*given, follows=follows)
            with job.alone():
                yield job

    @contextmanager
    def _source(self) -> Iterator[Source]:
        given, options = self._given, self._options
        if not given.store:
            from orbitmq.spark.jobs.export.cluster_source import ClusterSource

            with closing(ClusterSource(given.namesrv, options)) as cluster:
                yield cluster
            return
        with store_names(given.store, given.settings) as names:
            cores = context_of(self._spark).defaultParallelism
            yield LogSource(names, given.settings, options, cores)


class _ExportJob:
    """Rounds of an export. Not thread-safe."""

    def __init__(
        self,
        spark: Spark,
        source: Source,
        options: ExportOptions,
        progress: JobProgress,
        disk: Disk,
        *,
        follows: bool = False,
    ) -> None:
        self._context = context_of(spark)
        self._source, self._options, self._progress = source, options, progress
        self._follows = follows
        self._lake = lake_at(options.to, disk, options.catalog)
        self._notes = self._lake.notes

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Have the lake to oneself; a dry run does not touch it."""
        if self._options.dry_run:
            yield
            return
        with self._lake.alone():
            yield

    def run(self) -> ExportReport:
        """Finish what another run began, then bring what is new."""
        report = ExportReport(
            dry_run=self._options.dry_run,
            to=self._options.to,
            format=self._options.format.value,
            commit=0,
        )
        last = self._last(report)
        try:
            with clear_errors("export"):
                self._bring_new(last, report)
        except (Exception, KeyboardInterrupt):
            if not self._options.dry_run and self._notes.pending() is None:
                self._lake.remove_attempts()
            raise
        return report

    def _last(self, report: ExportReport) -> Manifest | None:
        """Return the newest commit, after finishing one that has begun."""
        pending = self._notes.pending()
        if pending is not None and not self._options.dry_run:
            self._require_fits(pending)
            finish(self._lake, pending)
            report.finished = len(pending.files)
            report.add(pending.files)
        last = pending or self._notes.last()
        if last is not None:
            self._require_fits(last)
            report.commit = last.number
        if not self._options.dry_run:
            self._lake.remove_attempts()
        return last

    def _require_fits(self, last: Manifest) -> None:
        """Refuse to mix formats or sources in one lake."""
        if last.format != self._options.format:
            rule = f"the tables in {self._options.to} are {last.format}"
            raise ConfigError("format", self._options.format.value, rule)
        if last.source != self._source.kind:
            counted = _SOURCES.get(last.source, last.source)
            what = f"{self._options.to} holds messages by the offsets of {counted}"
            step = "A store and a cluster count differently: export to another directory."
            raise PipelineError(what, step)

    def _bring_new(self, last: Manifest | None, report: ExportReport) -> None:
        held = Covered() if last is None else covered_by(last, self._options.to)
        with report.timed("look"):
            found = self._source.look(held, last.anchor if last else None)
        report.read_bytes, report.end_offset = found.bytes, found.end_offset
        job, commit = uuid.uuid4().hex[:12], report.commit + 1
        with report.timed("fields"):
            rows = self._lake_rows(found, last)
        with report.timed("write"):
            facts = self._run_tasks(found, rows, job)
        report.add_facts(facts)
        if self._options.dry_run:
            return
        self._require_topics(held, facts)
        if found.covered != held:
            with report.timed("commit"):
                self._commit(found, facts, rows, last, job, commit, report)
        self._lake.remove_attempts()

    def _lake_rows(self, found: Round, last: Manifest | None) -> LakeRows:
        """Return which columns each table has: those that it was made with, or those asked for now."""
        held, options = last.values if last else {}, self._options
        if not options.decode or options.schema is not None or not found.tasks:
            return LakeRows(chosen(held, options.schema or {}))
        files = AttemptFiles("", "", "sample")
        counter = self._progress.stage("sample", found.bytes)
        work = self._source.sample(found, frozenset(held), files, counter)
        return LakeRows(held | joined_fields(self._run(found.tasks, work)))

    def _run(self, tasks: Sequence[Any], work: Any) -> list[Any]:
        if not tasks:
            return []
        spread = self._context.parallelize(tasks, len(tasks))
        found: list[Any] = spread.mapPartitionsWithIndex(work).collect()
        return found

    def _run_tasks(self, found: Round, rows: LakeRows, job: str) -> list[TaskFacts]:
        if not found.tasks:
            return []
        dry_run = self._options.dry_run
        files = AttemptFiles("", "", "") if dry_run else self._lake.attempt_files(job)
        counter = self._progress.stage("export", found.bytes)
        return self._run(found.tasks, self._source.work(found, rows, files, counter))

    def _require_topics(self, held: Covered, facts: Sequence[TaskFacts]) -> None:
        """A topic that is nowhere was misspelled; it must not count as exported."""
        starts_late = self._options.since_ms is not None or self._options.from_offset is not None
        if self._follows or starts_late or self._source.kind != "log":
            return  # it may come, or lie before; and a cluster knows its topics
        known = {key[0] for key in held.spans} | {topic for one in facts for topic in one.rows}
        for topic in self._options.topics:
            if topic not in known:
                raise ConfigError("topic", topic, "there is no message of it")

    def _commit(
        self,
        found: Round,
        facts: Sequence[TaskFacts],
        rows: LakeRows,
        last: Manifest | None,
        job: str,
        number: int,
        report: ExportReport,
    ) -> None:
        files = gathered(len(found.tasks), facts, self._lake, number, job)
        anchors = [one.anchor for one in facts if one.anchor is not None]
        anchor = max(anchors, key=lambda one: one.log_offset, default=None)
        if last is not None and last.anchor is not None and anchor is not None:
            anchor = max(anchor, last.anchor, key=lambda one: one.log_offset)
        manifest = Manifest(
            number=number,
            job=job,
            format=self._options.format.value,
            source=self._source.kind,
            committed_ms=time.time_ns() // 1_000_000,
            covered=found.covered.to_json(),
            end_offset=found.end_offset,
            anchor=anchor or (last.anchor if last else None),
            files=files,
            values=(last.values if last else {})
            | {one.topic: rows.fields(one.topic) for one in files},
        )
        if self._progress.interrupted:
            raise KeyboardInterrupt
        begin(self._lake, manifest)
        finish(self._lake, manifest)
        report.commit = number
        report.add(files)
