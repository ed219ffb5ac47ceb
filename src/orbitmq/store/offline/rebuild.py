"""Make queues and index anew, from the log alone, with all cores.

The new files are written beside the store, then take the place of the old ones (`exchange`). A crash at
any moment leaves a store that recovers: before the exchange the old files are untouched; during it the
checkpoint no longer covers them, so the next start compares them with the log.

Kept from the old queues: those of which no record is left in the log. Their numbering is nowhere else,
and consumers count on it. Filter bitmaps of ext files cannot be made from the log; a filter lets
messages without one pass and looks at them itself.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import CorruptRecordError
from orbitmq.files.disk import Disk
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.log_read import Progress, open_log
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.make_dispatcher import make_dispatcher
from orbitmq.store.offline.exchange import WorkFiles
from orbitmq.store.offline.tools import config_of, locked
from orbitmq.store.recovery.adopt import with_items
from orbitmq.store.recovery.plan import Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.check import CheckReport, check_store


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild made, or (dry run) what is wrong with what it would replace."""

    dry_run: bool
    records: int
    queues: int = 0
    units: int = 0
    index_files: int = 0
    index_entries: int = 0
    kept: tuple[Path, ...] = ()  # where the old files are now
    check: CheckReport | None = None  # of the old files; dry run only


def rebuild_store(
    root: Path,
    settings: Mapping[str, str] | None = None,
    *,
    dry_run: bool = False,
    kernels: Kernels | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> RebuildReport:
    """Replace consume queues and index of a store by new ones. Nobody else may have it open.

    CorruptRecordError: the log itself is damaged; `repair` comes first.
    """
    kernels = kernels or compiled()
    if dry_run:
        report = check_store(root, settings, kernels=kernels, progress=progress)
        return RebuildReport(dry_run=True, records=report.records, check=report)
    config = config_of(root, settings)
    disk, clock = disk or Disk(), clock or SystemClock()
    with locked(config.layout(), disk):
        return _Rebuild(config, kernels, progress, disk, clock).run()


class _Rebuild:
    """One rebuild. Not thread-safe; holds the store's lock."""

    def __init__(
        self,
        config: StoreConfig,
        kernels: Kernels,
        progress: Progress | None,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._config = config
        self._layout = config.layout()
        self._kernels = kernels
        self._progress = progress
        self._disk = disk
        self._clock = clock
        self._work = WorkFiles(self._layout, disk, clock)

    def run(self) -> RebuildReport:
        self._work.begin()
        try:
            return self._make()
        finally:
            self._work.discard()

    def _make(self) -> RebuildReport:
        work = self._work
        with FileCache(self._disk) as files:
            dispatcher = make_dispatcher(
                self._config, work.layout, files, self._disk, self._kernels, self._clock
            )
            dispatcher.queues.gather(large=True)
            result = self._dispatch(dispatcher)
            self._sync(dispatcher)
            known = work.load_kept(dispatcher, work.keep_expired_queues())
            kept = work.exchange()
            if known:
                work.write_checkpoint(
                    dispatcher,
                    result.end_offset,
                    result.last_store_ms,
                    index_enabled=self._config.index_enabled,
                )
            headers = dispatcher.index.headers()
            dispatcher.index.close()
        queues = dispatcher.queues
        numbers = queues.numbers()
        return RebuildReport(
            dry_run=False,
            records=result.records,
            queues=len(numbers) + len(dispatcher.batch_queues.numbers()),
            units=sum(queues.next_offset(no) - queues.min_offset(no) for no in numbers),
            index_files=len(headers),
            index_entries=sum(header.next_item - 1 for _, header in headers),
            kept=tuple(kept),
        )

    def _dispatch(self, dispatcher: Dispatcher) -> WalkResult:
        with open_log(self._layout, self._disk) as log:
            options = WalkOptions(
                kernels=self._kernels,
                scan=ScanOptions(check_crc=True, delay_ms=self._config.delay_ms),
                whole_from=whole_from(CheckpointFile(self._layout.checkpoint, self._disk).load()),
                progress=self._progress,
                prepare=with_items(self._kernels) if self._config.index_enabled else None,
            )
            result = WalkResult(log.min_offset)
            for item in walk(log, log.min_offset, options, result):
                if isinstance(item, Repair):
                    require_tail(item)
                else:
                    dispatcher.apply(item)
            return result

    def _sync(self, dispatcher: Dispatcher) -> None:
        """Bring everything to the disk; queues and index at the same time, for the disk is the limit."""
        with ThreadPoolExecutor(2, thread_name_prefix="rebuild") as pool:
            for written in (
                pool.submit(dispatcher.index.flush),
                pool.submit(dispatcher.sync_queues),
            ):
                written.result()


def require_tail(repair: Repair) -> None:
    """A torn end is no reason to stop: the log counts up to there."""
    if repair.kind is not RepairKind.CUT:
        step = "Run `orbitmq store repair` first; it mends the log and what depends on it."
        raise CorruptRecordError(repair.path, repair.position, repair.cause, step)
