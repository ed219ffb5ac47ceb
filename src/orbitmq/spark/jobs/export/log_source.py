"""A store's log as the source of an export: what is new in it, cut into tasks."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from orbitmq.client.admin.base import is_system_topic
from orbitmq.errors import ConfigError, PipelineError
from orbitmq.format.kernels import compiled
from orbitmq.log_read import (
    SPLIT_BYTES,
    LogPlan,
    LogTail,
    Split,
    cut,
    missing,
    open_segment,
    rows_at,
)
from orbitmq.spark.jobs.export.covered import Covered, Key, Span, advanced, joined
from orbitmq.spark.jobs.export.lake_rows import LakeRows
from orbitmq.spark.jobs.export.log_task import LogExport, LogReads, LogWork
from orbitmq.spark.jobs.export.notes import Anchor
from orbitmq.spark.jobs.export.options import ExportOptions
from orbitmq.spark.jobs.export.sample import LogSample
from orbitmq.spark.jobs.export.source import Round
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.remote.address import is_remote
from orbitmq.spark.remote.names import StoreNames, store_names
from orbitmq.spark.source.log_table import search_back_bytes
from orbitmq.spark.source.options import BadRecords, ReadOptions
from orbitmq.units import MiB

logger = logging.getLogger(__name__)

TASK_BYTES_MIN: Final = 16 * MiB
TASK_BYTES_MAX: Final = 512 * MiB
"""Of the log: a task makes at least one file for each topic that it meets."""
TASKS_PER_CORE: Final = 2
_OTHER_LOG: Final = "Export it to a directory of its own, or give the store that this lake is of."


class LogSource:
    """One log. Not thread-safe."""

    def __init__(
        self, names: StoreNames, settings: Mapping[str, str], options: ExportOptions, cores: int
    ) -> None:
        self._names, self._settings, self._options, self._cores = names, settings, options, cores
        self._root = names.shown
        self._tail = LogTail(names.root, names.settings)

    @property
    def kind(self) -> str:
        """What its offsets count, as a manifest says it."""
        return "log"

    def look(self, held: Covered, anchor: Anchor | None) -> Round:
        """Return what is new. PipelineError: this is another log, or what is needed was deleted."""
        plan = self._tail.relist()
        require_same_log(self._root, plan, held, anchor)
        first = self._first(plan)
        reads, covered = self._reads(held, first, plan)
        spans = joined([span for spans in (*reads.spans.values(), reads.others) for span in spans])
        for span in spans:
            self._require_there(plan, span)
        total = sum(span.end - span.start for span in spans)
        tasks = [
            LogWork(number, splits)
            for number, splits in enumerate(task_splits(plan, spans, self._cores, self._names))
        ]
        return Round(tasks, covered, total, plan.end, reads)

    def work(
        self, round_: Round, rows: LakeRows, files: AttemptFiles, counter: StageCounter
    ) -> LogExport:
        """Return what the tasks do."""
        options = ReadOptions(path=self._root, bad_records=self._options.bad_records)
        return LogExport(
            options,
            round_.reads,
            rows,
            files,
            search_back_bytes(self._settings),
            counter,
            self._options.dry_run,
        )

    def sample(
        self, round_: Round, known: frozenset[str], files: AttemptFiles, counter: StageCounter
    ) -> LogSample:
        """Return what tasks do that find the fields of bodies."""
        return LogSample(self.work(round_, LakeRows(), files, counter), known)

    def _first(self, plan: LogPlan) -> int | None:
        if self._options.since_ms is not None:
            return self._tail.offset_at(self._options.since_ms) if plan.files else 0
        first = self._options.from_offset
        if first is not None and first > plan.end:
            raise ConfigError("from-offset", first, f"the log ends at {plan.end}")
        return first

    def _reads(self, held: Covered, first: int | None, plan: LogPlan) -> tuple[LogReads, Covered]:
        named: list[Key] = [(topic,) for topic in self._options.topics]
        known = [key for key in held.spans if not is_system_topic(str(key[0]))]
        reads: dict[str, tuple[Span, ...]] = {}
        spans = dict(held.spans)
        for key in named or known:
            before = held.spans.get(key)
            if before is None and not is_system_topic(str(key[0])):
                before = held.others
            found, spans[key] = advanced(before, first, plan.start, plan.end)
            reads[str(key[0])] = tuple(found)
        if named:
            return LogReads(reads), Covered(spans, held.others)
        found, others = advanced(held.others, first, plan.start, plan.end)
        return LogReads(reads, tuple(found)), Covered(spans, others)

    # --- is it all there? ---

    def _require_there(self, plan: LogPlan, span: Span) -> None:
        for gap in missing(plan, *span):
            what = f"{self._root}: the log from {gap.start} to {gap.end} is not there"
            if self._options.bad_records is BadRecords.FAIL:
                step = "Export with bad-records=skip to go on without it."
                raise PipelineError(f"{what}: it was deleted before it was exported", step)
            logger.warning("%s; going on without it", what)


def require_same_log(root: Path | str, plan: LogPlan, held: Covered, anchor: Anchor | None) -> None:
    """Raise PipelineError where a lake is of another log than this one."""
    ends = [span.end for span in (*held.spans.values(), held.others) if span is not None]
    if ends and max(ends) > plan.end:
        what = (
            f"{root}: the log ends at {plan.end}, but this lake holds it up to"
            f" {max(ends)}: it is another store, or it lost its end in a crash"
        )
        raise PipelineError(what, _OTHER_LOG)
    if anchor is not None and not _is_there(plan, anchor):
        what = f"{root}: the record at log offset {anchor.log_offset} is not the one"
        raise PipelineError(f"{what} that this lake holds: it is another store", _OTHER_LOG)


def task_splits(
    plan: LogPlan, spans: Sequence[Span], cores: int, names: StoreNames | None = None
) -> list[tuple[Split, ...]]:
    """Cut stretches of a log into tasks, a few for each core. `names`: of a store that may be far away."""
    total = sum(span.end - span.start for span in spans)
    each = total // (TASKS_PER_CORE * max(cores, 1))
    task_bytes = min(max(each, TASK_BYTES_MIN), TASK_BYTES_MAX)
    is_remote = names is not None and names.is_remote
    split_bytes = min(task_bytes, SPLIT_BYTES) if is_remote else task_bytes  # held in memory
    groups: list[list[Split]] = []
    room = 0
    for span in spans:
        for split in cut(plan, split_bytes, span.start, span.end):
            if room <= 0:
                groups.append([])
                room = task_bytes
            groups[-1].append(split if names is None else names.split(split))
            room -= split.end - split.start
    return [tuple(splits) for splits in groups]


def _is_there(plan: LogPlan, anchor: Anchor) -> bool:
    """Return whether the log has this record, or has it no more."""
    for file in plan.files:
        if file.base_offset <= anchor.log_offset < file.base_offset + file.length:
            segment = open_segment(file.path, file.base_offset)
            rows = rows_at(segment, anchor.log_offset, kernels=compiled())
            names = ("log_offset", "size", "store_ms", "queue_offset")
            return bool(len(rows)) and Anchor(*(int(rows[name][0]) for name in names)) == anchor
    return True


def require_store(root: str, settings: Mapping[str, str] | None) -> None:
    """Raise NotAStoreError where there is none, before Spark starts."""
    from orbitmq.log_read.plan import layout_of

    if not is_remote(root) and not Path(root).is_dir():
        raise ConfigError("from", root, "there is no such directory")
    with store_names(root, settings) as names:
        layout_of(names.root, names.settings)
