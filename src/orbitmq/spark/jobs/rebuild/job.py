"""Make consume queues and index anew, from the commit log alone, on Spark.

  scan    a task for each split: checks the records, packs units and keys (`pack`), tells the facts
  join    the driver: splits make one chain, the log's end is found (`rebuild/chain.py`), each unit and
          each key gets its place (`queue_runs`, `rebuild/plan.py`)
  build   a task for some files each: queues and index (`rebuild/build.py`)
  settle  the driver: everything is there, once; files get their names (`attempt_files`), then new ones
          change places with old ones and the checkpoint covers them (`store.offline.exchange`)

The driver holds the store's lock from the first to the last step. Whatever fails or dies before the exchange
leaves the store as it was; the new files lie in a directory of their own until then.
"""

import signal
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import ConfigError, StoreLockedError
from orbitmq.files.disk import Disk, exists
from orbitmq.files.layout import QueueKind
from orbitmq.files.lock import StoreLock
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import plain
from orbitmq.log_read import SPLIT_BYTES, LogView, Split, cut_view, open_log
from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.rebuild.attempt_files import DIRECTORY, AttemptFiles, settle
from orbitmq.spark.jobs.rebuild.build import Build
from orbitmq.spark.jobs.rebuild.chain import LogChain, cut_stale, find_end, join
from orbitmq.spark.jobs.rebuild.pack import PackOptions, SplitFacts
from orbitmq.spark.jobs.rebuild.parts import Scan
from orbitmq.spark.jobs.rebuild.plan import (
    IndexTarget,
    Planner,
    RebuildPlan,
    ext_units_per_file,
    share,
)
from orbitmq.spark.jobs.rebuild.queue_runs import QueueResult, QueueRuns, batch_runs, simple_runs
from orbitmq.spark.jobs.rebuild.state import load_rebuilt
from orbitmq.spark.progress import JobProgress
from orbitmq.spark.shared_paths import absolute_settings
from orbitmq.store.config import StoreConfig
from orbitmq.store.make_dispatcher import make_dispatcher
from orbitmq.store.offline.exchange import Scope, WorkFiles
from orbitmq.store.offline.tools import config_of, locked
from orbitmq.store.verify.facts import is_open_elsewhere

SCANS_PER_CORE: Final = 4
"""Scan tasks that each core has at least, if the log is large enough."""
SPLITS_PER_SCAN: Final = 4
"""Splits that a scan task has at most: what it has done counts when it ends, and is lost when it fails."""
TASKS_PER_CORE: Final = 2
"""Build tasks; more would only cost, for their work is known beforehand and shared out evenly."""


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """What to make anew, and where it goes."""

    scope: Scope = field(default_factory=Scope)
    to: Path | None = None  # another directory; the store stays as it is
    dry_run: bool = False
    split_bytes: int = SPLIT_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild made, or (dry run) would make."""

    dry_run: bool
    root: Path
    records: int
    log_bytes: int
    queues: int
    units: int
    index_files: int
    index_entries: int
    conflicts: int  # records whose queue offset another record has; they are in no queue
    trusted: bool  # whether the next start trusts the files without reading the log
    kept: tuple[Path, ...]  # where the old files are now
    shuffle_bytes: int  # between tasks
    seconds: dict[str, float]  # per stage


def rebuild(
    spark: Spark,
    root: Path,
    settings: Mapping[str, str] | None = None,
    options: RebuildOptions | None = None,
    *,
    progress: JobProgress | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> RebuildReport:
    """Make queues and index of a store anew. Nobody else may have it open.

    CorruptRecordError: the log itself is damaged; `orbitmq store repair` comes first.
    JobFailedError: Spark could not do it; the store is as before.
    """
    options = options or RebuildOptions()
    options = replace(options, to=options.to.absolute() if options.to is not None else None)
    config = config_of(root.absolute(), absolute_settings(settings))
    disk, clock = disk or Disk(), clock or SystemClock()
    _require_target(config, options)
    with (
        _alone(config, options, disk),
        nullcontext(progress) if progress is not None else JobProgress(spark) as shown,
        clear_errors("rebuild"),
    ):
        return _Rebuild(spark, config, options, shown, disk, clock).run()


def _require_target(config: StoreConfig, options: RebuildOptions) -> None:
    if options.to is None:
        return
    if options.to.resolve() == config.root.resolve():
        raise ConfigError("--to", options.to, "is the store itself; leave it out to rebuild that")
    log = options.to / "commitlog"
    if exists(log) and log.resolve() not in {
        path.resolve() for path in config.layout().commit_log_directories
    }:
        raise ConfigError("--to", options.to, "is another store: it has a commit log of its own")


@contextmanager
def _alone(config: StoreConfig, options: RebuildOptions, disk: Disk) -> Iterator[None]:
    """Have the store, or the other directory, to oneself; what is only read is not touched."""
    layout = config.layout()
    if not options.dry_run and options.to is None:
        with locked(layout, disk):
            yield
        return
    if is_open_elsewhere(layout.lock):
        step = "Stop that broker or tool first, or work on a copy."
        raise StoreLockedError(layout.lock, "another process has this store open", step)
    if options.dry_run or options.to is None:
        yield
        return
    disk.make_directory(options.to)
    with StoreLock(disk, options.to / "lock"):
        yield


class _Joined(NamedTuple):
    """The log as all splits tell it: what goes into queues, and where it ends."""

    chain: LogChain
    simple: QueueRuns
    batches: QueueRuns
    end: int

    @property
    def queues(self) -> list[QueueResult]:
        return [*self.simple.queues, *self.batches.queues]


class _Rebuild:
    """One rebuild. Not thread-safe."""

    def __init__(
        self,
        spark: Spark,
        config: StoreConfig,
        options: RebuildOptions,
        progress: JobProgress,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._context = context_of(spark)
        self._config = config
        self._options = options
        self._progress = progress
        self._disk = disk
        self._clock = clock
        self._scope = options.scope
        self._with_index = options.scope.index and config.index_enabled
        self._layout = config.layout()
        self._with_ext = (
            config.enable_cq_ext and ext_units_per_file(self._layout.ext_file_bytes) > 0
        )
        self._work = WorkFiles(self._layout, disk, clock, target=options.to, scope=options.scope)
        self._job = uuid.uuid4().hex[:12]
        self._seconds: dict[str, float] = {}

    def run(self) -> RebuildReport:
        if self._options.dry_run:
            return self._make()
        self._work.begin()
        try:
            self._disk.make_directory(self._attempts)
            return self._make()
        finally:
            self._work.discard()

    @property
    def _attempts(self) -> Path:
        return self._work.layout.root / DIRECTORY

    def _make(self) -> RebuildReport:
        with open_log(self._layout, self._disk) as log:
            with self._timed("scan"):
                scan, found = self._scan(log)
            with self._timed("join"):
                joined = self._join(log, found, scan)
        self._require_topics(joined)
        plan = self._plan(joined)
        kept: list[Path] = []
        trusted = False
        if not self._options.dry_run:
            with self._timed("build"):
                self._build(plan, joined.chain)
            with self._timed("exchange"):
                kept, trusted = self._exchange(joined)
        return self._report(joined, plan, kept, trusted=trusted)

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self._seconds[stage] = time.monotonic() - start

    # --- scan ---

    def _scan(self, log: LogView) -> tuple[Scan, list[SplitFacts]]:
        splits = cut_view(log, self._options.split_bytes)
        counter = self._progress.stage("scan", sum(split.end - split.start for split in splits))
        makes_files = not self._options.dry_run
        pack_options = PackOptions.of(self._config, self._disk)
        scan = Scan(
            pack_options,
            AttemptFiles(str(self._attempts), self._job, "scan"),
            counter,
            with_units=makes_files and self._scope.queues,
            with_items=makes_files and self._with_index,
        )
        return scan, self._run(self._grouped(splits), scan)

    def _grouped(self, splits: list[Split]) -> list[list[Split]]:
        """Put splits together: handing out a task takes half as long as scanning a split.

        Each core gets some tasks nevertheless, so that none has much to do when the others are done.
        """
        total = sum(split.end - split.start for split in splits)
        even = -(-total // max(self._context.defaultParallelism, 1))
        one = min(even, self._options.split_bytes)
        some = min(even // SCANS_PER_CORE, SPLITS_PER_SCAN * self._options.split_bytes)
        groups: list[list[Split]] = []
        room = 0
        for split in splits:
            if room <= 0:
                groups.append([])
                room = max(one, some)
            groups[-1].append(split)
            room -= split.end - split.start
        return groups

    def _run(self, tasks: Sequence[Any], work: Any) -> list[Any]:
        """Run one task for each element; return what they give."""
        if not tasks:
            return []
        spread = self._context.parallelize(tasks, len(tasks))
        found: list[Any] = spread.mapPartitionsWithIndex(work).collect()
        return found

    # --- join ---

    def _join(self, log: LogView, found: list[SplitFacts], scan: Scan) -> _Joined:
        def again(split: Split) -> SplitFacts:
            return scan.scan(split, at_record=True)

        chain = join(found, log, again)
        simple = simple_runs(chain.splits, with_ext=self._with_ext)
        if (chain.earlier and simple.conflicts) or chain.doubtful:
            chain = cut_stale(chain, log, scan.options, again)
            simple = simple_runs(chain.splits, with_ext=self._with_ext)
        joined = _Joined(chain, simple, batch_runs(chain.splits), chain.at)
        known = {
            (result.queue.topic.encode(), result.queue.queue_id): result.next_offset
            for result in joined.queues
        }
        return joined._replace(end=find_end(chain, known, log, scan.options))

    def _require_topics(self, joined: _Joined) -> None:
        """A topic that is nowhere was misspelled; its queues must not be taken for empty."""
        found = {result.queue.topic for result in joined.queues}
        for topic in sorted((self._scope.topics or frozenset()) - found):
            roots = [self._layout.queue_root(kind) for kind in QueueKind]
            if not any(exists(queues / topic) for queues in roots):
                raise ConfigError("--topics", topic, "the log has no record of it")

    # --- build ---

    def _plan(self, joined: _Joined) -> RebuildPlan:
        planner = Planner(self._work.layout, self._scope, self._clock.now_ms())
        if self._with_index:
            planner.add_index(joined.chain.splits)
        if self._scope.queues:
            planner.add_queues(joined.simple, QueueKind.SIMPLE)
            planner.add_queues(joined.simple, QueueKind.EXT)
            planner.add_queues(joined.batches, QueueKind.BATCH)
        return planner.plan

    def _build(self, plan: RebuildPlan, chain: LogChain) -> None:
        total = sum(target.byte_count for target in plan.targets)
        build = Build(
            self._work.layout,
            AttemptFiles(str(self._attempts), self._job, "build"),
            self._progress.stage("build", total),
        )
        count = TASKS_PER_CORE * self._context.defaultParallelism
        finished = self._run(share(plan.targets, chain.splits, count), build)
        settle(plan.wanted, finished, self._disk)

    # --- exchange ---

    def _exchange(self, joined: _Joined) -> tuple[list[Path], bool]:
        expired = self._work.keep_expired_queues()
        times = joined.end, joined.chain.last_store_ms
        with FileCache(self._disk) as files:
            dispatcher = make_dispatcher(
                self._config, self._work.layout, files, self._disk, plain(), self._clock
            )
            trusted = self._scope.is_whole
            if trusted:
                load_rebuilt(dispatcher, joined.simple, joined.batches, self._layout)
                trusted = self._work.load_kept(dispatcher, expired)
            with _uninterrupted(self._progress):
                kept = self._work.exchange()
                if trusted:
                    self._work.write_checkpoint(dispatcher, *times, index_enabled=self._with_index)
                else:
                    self._work.note_times(*times)
        return kept, trusted

    def _report(
        self, joined: _Joined, plan: RebuildPlan, kept: list[Path], *, trusted: bool
    ) -> RebuildReport:
        chain = joined.chain
        made = [queue for queue in joined.queues if self._scope.has_topic(queue.queue.topic)]
        parts = [facts.part for facts in chain.splits if facts.part is not None]
        entries = sum(facts.item_count for facts in chain.splits) if self._with_index else 0
        return RebuildReport(
            dry_run=self._options.dry_run,
            root=self._work.target.root,
            records=chain.records,
            log_bytes=chain.at - (chain.splits[0].first if chain.splits else chain.at),
            queues=len(made),
            units=sum(result.units or result.next_offset - result.min_offset for result in made),
            index_files=sum(isinstance(target, IndexTarget) for target in plan.targets),
            index_entries=entries,
            conflicts=joined.simple.conflicts,
            trusted=trusted,
            kept=tuple(kept),
            shuffle_bytes=sum(part.length for part in parts),
            seconds=dict(self._seconds),
        )


@contextmanager
def _uninterrupted(progress: JobProgress) -> Iterator[None]:
    """Let Ctrl-C wait for the end of what is done inside, which is a matter of milliseconds.

    KeyboardInterrupt: it was pressed before, while the JVM finished the job.
    """
    if progress.interrupted:
        raise KeyboardInterrupt
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ignore(number: int, frame: FrameType | None) -> None:
        """Too late to leave everything as it was; the command ends by itself at once."""

    before = signal.signal(signal.SIGINT, ignore)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
