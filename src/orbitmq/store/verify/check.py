"""`orbitmq store check`: look through a whole store and name everything that is wrong with it. Reads only.

The log is read once, with all cores. Works beside a running broker: what has not been dispatched yet is
no finding then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import Chunk, LogView, Progress, open_log
from orbitmq.store.recovery.adopt import with_items
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.facts import StoreFacts, look_at
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.index import IndexTally
from orbitmq.store.verify.index_chains import IndexFileResult, check_index_file
from orbitmq.store.verify.log_part import LogPart, PartTally
from orbitmq.store.verify.queues import QueueComparison, file_rows
from orbitmq.store.verify.verification import CheckReport, Verification

__all__ = ["CheckReport", "check_store"]


def check_store(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
) -> CheckReport:
    """Check a store directory. `settings` are RocketMQ's keys; sizes that files show need not be given.

    StoreError: this is no store, or one that cannot be read with these settings.
    """
    facts, findings = look_at(root, settings)
    disk = Disk()
    with (
        open_log(facts.layout, disk, missing_allowed=True) as log,
        FileCache(disk, writable=False) as files,
    ):
        runner = _ThreadRunner(kernels or compiled(), files, progress)
        return Verification(facts, findings, log, runner).run()


class _ThreadRunner:
    """Threads read ahead; what they read is compared here, in log order. Not thread-safe."""

    def __init__(self, kernels: Kernels, files: FileCache, progress: Progress | None) -> None:
        self._kernels = kernels
        self._files = files
        self._progress = progress

    def check_index_files(
        self, paths: Sequence[Path], facts: StoreFacts
    ) -> Iterable[IndexFileResult]:
        for path in paths:
            yield check_index_file(path, facts.layout, self._kernels, live=facts.live)

    def walk(self, log: LogView, facts: StoreFacts, result: WalkResult) -> Iterator[Chunk | Repair]:
        self._facts = facts
        self._part = LogPart(facts, self._kernels, self._files)
        self._queues = QueueComparison(facts, self._kernels, self._files)
        options = WalkOptions(
            kernels=self._kernels,
            scan=facts.scan,
            whole_from=facts.whole_from,
            progress=self._progress,
            prepare=with_items(self._kernels) if facts.index_files else None,
        )
        return walk(log, facts.log_min, options, result)

    def take(self, chunk: Chunk) -> PartTally:
        tally = PartTally()
        for row in self._part.add(chunk, tally):
            self._queues.take(row)
        return tally

    def skip(self, chunk: Chunk) -> None:
        for row in self._part.skip(chunk):
            self._queues.take(row)

    def finish(self, log_end: int) -> tuple[Findings, IndexTally]:
        for row in self._part.rest():
            self._queues.take(row)
        if self._facts.has_queues:
            for row in file_rows(self._facts, self._queues.findings):
                self._queues.take(row)
        self._queues.finish(log_end)
        return self._queues.findings, IndexTally()
