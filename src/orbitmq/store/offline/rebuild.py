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
from orbitmq.log_read import LogView, Progress, open_log
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
    layout = config.layout()
    with locked(layout, disk):
        work = WorkFiles(layout, disk, clock)
        work.begin()
        try:
            with FileCache(disk) as files:
                dispatcher = make_dispatcher(config, work.layout, files, disk, kernels, clock)
                options = _walk_options(config, disk, kernels, progress)
                with open_log(layout, disk) as log:
                    result = _dispatch(log, dispatcher, options)
                kept = _exchange(work, dispatcher, result, index_enabled=config.index_enabled)
                dispatcher.index.close()
        finally:
            work.discard()
    return _report(dispatcher, result, kept)


def _walk_options(
    config: StoreConfig, disk: Disk, kernels: Kernels, progress: Progress | None
) -> WalkOptions:
    return WalkOptions(
        kernels=kernels,
        scan=ScanOptions(check_crc=True, delay_ms=config.delay_ms),
        whole_from=whole_from(CheckpointFile(config.layout().checkpoint, disk).load()),
        progress=progress,
        prepare=with_items(kernels) if config.index_enabled else None,
    )


def _dispatch(log: LogView, dispatcher: Dispatcher, options: WalkOptions) -> WalkResult:
    """Put the whole log into new queues and index, and those on the disk."""
    dispatcher.queues.gather(large=True)
    result = WalkResult(log.min_offset)
    for item in walk(log, log.min_offset, options, result):
        if isinstance(item, Repair):
            require_tail(item)
        else:
            dispatcher.apply(item)
    # Queues and index at the same time, for the disk is the limit.
    with ThreadPoolExecutor(2, thread_name_prefix="rebuild") as pool:
        for written in (
            pool.submit(dispatcher.index.flush),
            pool.submit(dispatcher.sync_queues),
        ):
            written.result()
    return result


def _exchange(
    work: WorkFiles, dispatcher: Dispatcher, result: WalkResult, *, index_enabled: bool
) -> list[Path]:
    """Put the new files in place of the old ones; return where those went."""
    known = work.load_kept(dispatcher, work.keep_expired_queues())
    kept = work.exchange()
    if known:
        end, last_ms = result.end_offset, result.last_store_ms
        work.write_checkpoint(dispatcher, end, last_ms, index_enabled=index_enabled)
    return kept


def _report(dispatcher: Dispatcher, result: WalkResult, kept: list[Path]) -> RebuildReport:
    queues, headers = dispatcher.queues, dispatcher.index.headers()
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


def require_tail(repair: Repair) -> None:
    """A torn end is no reason to stop: the log counts up to there."""
    if repair.kind is not RepairKind.CUT:
        step = "Run `orbitmq store repair` first; it mends the log and what depends on it."
        raise CorruptRecordError(repair.path, repair.position, repair.cause, step)
