"""Look through a whole store and name everything that is wrong with it. Reads only.

The log is read once, with all cores; each record is checked and its unit and index entries are looked up
in the files, each unit and entry in turn must have its record. Works beside a running broker: what has
not been dispatched yet is no finding then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.adopt import with_items
from orbitmq.store.recovery.log_view import LogView, open_log
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.replay import Progress
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.basis import CheckBasis, look_at
from orbitmq.store.verify.batch_queues import BatchQueueCheck
from orbitmq.store.verify.facts import BatchRows, batch_topics
from orbitmq.store.verify.findings import Finding, Kind, Severity
from orbitmq.store.verify.index import IndexCheck
from orbitmq.store.verify.log import LogCheck, record_facts
from orbitmq.store.verify.queues import SimpleQueueCheck
from orbitmq.store.verify.small_files import check_checkpoint, check_state_files


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a check. A store with no errors among the findings is sound."""

    findings: tuple[Finding, ...]
    left_out: Mapping[Kind, int]  # found, but too many of one kind to list
    records: int
    fillers: int
    log_start: int
    log_end: int
    live: bool  # another process has the store open
    lagging: int  # units and index entries that were not written yet when the writer stopped

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    @property
    def is_sound(self) -> bool:
        return not self.errors


def check_store(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kernels: Kernels | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check a store directory. `settings` are RocketMQ's keys; sizes that files show need not be given.

    StoreError: this is no store, or one that cannot be read with these settings.
    """
    basis = look_at(root, settings)
    disk = Disk()
    with (
        open_log(basis.layout, disk, missing_allowed=True) as log,
        FileCache(disk, writable=False) as files,
    ):
        return _Check(basis, log, files, kernels or compiled()).run(workers, progress)


class _Check:
    """One check. Not thread-safe."""

    def __init__(self, basis: CheckBasis, log: LogView, files: FileCache, kernels: Kernels) -> None:
        layout, findings = basis.layout, basis.findings
        self._basis = basis
        self._log = log
        self._kernels = kernels
        self._log_check = LogCheck(findings, live=basis.live)
        self._batches = BatchRows(kernels, batch_topics(layout))
        self._batch = BatchQueueCheck(layout, kernels, findings)
        self._simple = SimpleQueueCheck(
            layout,
            files,
            kernels,
            findings,
            lag_from=basis.queues_from,
            light_queues=basis.config.enable_multi_dispatch,
        )
        self._index = IndexCheck(
            layout,
            kernels,
            findings,
            log_min=log.min_offset,
            lag_from=basis.index_from,
            live=basis.live,
        )
        self._has_index = bool(self._index.files) and basis.config.index_enabled

    def run(self, workers: int | None, progress: Progress | None) -> CheckReport:
        self._log_check.files(self._log)
        result = WalkResult(self._log.min_offset)
        mended_to = 0
        for item in walk(self._log, result.end_offset, self._options(workers, progress), result):
            if isinstance(item, Repair):
                self._log_check.repair(item)
                mended_to = item.resume
            elif item.rows["log_offset"][0] < mended_to:
                # Fillers that do not exist yet: the files know the record that was there.
                self._simple.skip(item)
            else:
                self._add(item)
        self._finish(result)
        return self._report(result)

    def _options(self, workers: int | None, progress: Progress | None) -> WalkOptions:
        return WalkOptions(
            kernels=self._kernels,
            scan=self._basis.scan,
            whole_from=whole_from(self._basis.checkpoint),
            workers=workers,
            progress=progress,
            prepare=with_items(self._kernels) if self._basis.config.index_enabled else None,
        )

    def _add(self, chunk: Chunk) -> None:
        self._log_check.records(self._log, chunk.rows, record_facts(chunk))
        if self._basis.has_queues:
            is_batch = self._batches.of(chunk)
            self._simple.add(chunk, ~is_batch)
            self._batch.add(chunk, is_batch)
        if self._has_index:
            self._index.add(chunk)

    def _finish(self, result: WalkResult) -> None:
        basis, log_min = self._basis, self._log.min_offset
        log_end = basis.judged_end(result.end_offset)
        if basis.has_queues:
            self._simple.finish(basis.problem, log_min=log_min, log_end=log_end)
            self._batch.finish(
                basis.problem, log_min=log_min, log_end=log_end, lag_from=basis.queues_from
            )
        if self._has_index:
            self._index.finish(None if basis.live else result.end_offset)
        basis.report_absent(self._log_check.facts, log_min=log_min, has_index=self._has_index)
        self._log_check.finish(self._log, result)
        check_checkpoint(
            basis.checkpoint,
            basis.layout,
            result,
            basis.findings,
            last_ms=self._log_check.last_ms,
            live=basis.live,
            abort=basis.abort,
        )
        check_state_files(basis.layout, basis.findings)

    def _report(self, result: WalkResult) -> CheckReport:
        return CheckReport(
            findings=tuple(self._basis.findings),
            left_out=self._basis.findings.left_out,
            records=result.records,
            fillers=self._log_check.facts.fillers,
            log_start=self._log.min_offset,
            log_end=result.end_offset,
            live=self._basis.live,
            lagging=self._simple.lagging + self._batch.lagging + self._index.lagging,
        )
