"""Make queues and index anew, from the log alone, with all cores.

The new files are written beside the store, then take the place of the old ones, which go to the
quarantine. A crash at any moment leaves a store that recovers: before the exchange the old files are
untouched; during it the checkpoint no longer vouches for them, so the next start compares them with the
log.

Kept from the old queues: those of which no record is left in the log. Their numbering is nowhere else,
and consumers count on it. Filter bitmaps of ext files cannot be made from the log; a filter lets
messages without one pass and looks at them itself.
"""

import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import CorruptRecordError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import list_segments
from orbitmq.files.positioned import FileCache
from orbitmq.format.checkpoint import Extension
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.offline.check import CheckReport, check_store
from orbitmq.store.offline.check_facts import last_unit_end
from orbitmq.store.offline.tools import config_of, locked, make_dispatcher
from orbitmq.store.queues.queue_load import load_queue
from orbitmq.store.queues.queue_trim import correct_min
from orbitmq.store.recovery.adopt import with_items
from orbitmq.store.recovery.log_view import open_log
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.store.recovery.recovery_plan import Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.replay import Progress
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.snapshot import SnapshotFile, capture, encode_capture

WORK_NAME: Final = "orbitmq.rebuild"
_KINDS: Final = (QueueKind.SIMPLE, QueueKind.EXT, QueueKind.BATCH)


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
    workers: int | None = None,
    progress: Progress | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
) -> RebuildReport:
    """Replace consume queues and index of a store by new ones. Nobody else may have it open.

    CorruptRecordError: the log itself is damaged; `repair` comes first.
    """
    kernels = kernels or compiled()
    if dry_run:
        report = check_store(root, settings, kernels=kernels, workers=workers, progress=progress)
        return RebuildReport(dry_run=True, records=report.records, check=report)
    config = config_of(root, settings)
    disk, clock = disk or Disk(), clock or SystemClock()
    with locked(config.layout(), disk):
        return _Rebuild(config, kernels, workers, progress, disk, clock).run()


class _Rebuild:
    """One rebuild. Not thread-safe; holds the store's lock."""

    def __init__(
        self,
        config: StoreConfig,
        kernels: Kernels,
        workers: int | None,
        progress: Progress | None,
        disk: Disk,
        clock: Clock,
    ) -> None:
        self._config = config
        self._layout = config.layout()
        self._kernels = kernels
        self._workers = workers
        self._progress = progress
        self._disk = disk
        self._clock = clock
        self._work = replace(
            self._layout,
            root=self._layout.root / WORK_NAME,
            commit_log_paths=self._layout.commit_log_directories,
        )

    def run(self) -> RebuildReport:
        shutil.rmtree(self._work.root, ignore_errors=True)
        self._disk.make_directory(self._work.root)
        with FileCache(self._disk) as files:
            dispatcher = make_dispatcher(
                self._config, self._work, files, self._disk, self._kernels, self._clock
            )
            dispatcher.queues.gather(large=True)
            result = self._dispatch(dispatcher)
            self._sync(dispatcher)
            known = self._keep_expired_queues(dispatcher)
            kept = self._exchange()
            if known:
                self._vouch(dispatcher, result)
            headers = dispatcher.index.headers()
            dispatcher.index.close()
        shutil.rmtree(self._work.root, ignore_errors=True)
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
                workers=self._workers,
                progress=self._progress,
                prepare=with_items(self._kernels) if self._config.index_enabled else None,
            )
            result = WalkResult(log.min_offset)
            for item in walk(log, log.min_offset, options, result):
                if isinstance(item, Repair):
                    _require_tail(item)
                else:
                    dispatcher.apply(item)
            return result

    def _sync(self, dispatcher: Dispatcher) -> None:
        """Bring everything to the disk; queues and index at the same time, for the disk is the limit."""
        with ThreadPoolExecutor(2, thread_name_prefix="rebuild") as pool:
            for written in (
                pool.submit(dispatcher.index.flush),
                pool.submit(_sync_queues, dispatcher),
            ):
                written.result()

    def _keep_expired_queues(self, dispatcher: Dispatcher) -> bool:
        """Copy queues of which no record is left; return whether the dispatcher knows all queues now."""
        log = list_segments(self._layout.commit_log_directories)
        log_min = log[0].base_offset if log else 0
        all_known = True
        for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
            for queue in self._layout.list_queues(kind):
                old = self._layout.queue_directory(kind, queue.topic, queue.queue_id)
                new = self._work.queue_directory(kind, queue.topic, queue.queue_id)
                if new.exists() or not self._is_expired(kind, old, log_min):
                    continue
                shutil.copytree(old, new)
                if kind is QueueKind.BATCH:
                    all_known = False
                else:
                    number = dispatcher.queues.add(queue.topic, queue.queue_id)
                    load_queue(dispatcher.queues, number, queue, repair=False)
        correct_min(dispatcher.queues, log_min)
        return all_known

    def _is_expired(self, kind: QueueKind, directory: Path, log_min: int) -> bool:
        files = list_segments(directory, self._layout.queue_file_bytes(kind))
        ends = [last_unit_end(file.path, file.length, kind) for file in files]
        found = [end for end in ends if end is not None]
        return bool(found) and max(found) <= log_min

    def _exchange(self) -> list[Path]:
        """Put the new files in place of the old ones; return where those went."""
        checkpoint = CheckpointFile(self._layout.checkpoint, self._disk)
        if checkpoint.load() is not None:
            checkpoint.update(extension=None)
            checkpoint.write()
        layout = self._layout
        quarantine = Quarantine(layout.quarantine, layout.root, self._disk, self._clock)
        group = f"rebuild-{self._clock.now_ms()}"
        names = [kind.value for kind in _KINDS] + [layout.index_directory.name]
        for name in names:
            old, new = layout.root / name, self._work.root / name
            if old.exists():
                quarantine.keep_path(old, group, "queues and index are made anew")
            if new.exists():
                self._disk.rename(new, old)
        self._disk.sync_directory(layout.root)
        return quarantine.kept

    def _vouch(self, dispatcher: Dispatcher, result: WalkResult) -> None:
        """Write snapshot and checkpoint, so that the next start trusts the new files."""
        checkpoint = CheckpointFile(self._layout.checkpoint, self._disk)
        checkpoint.load()
        snapshot = SnapshotFile(self._layout.snapshot, self._disk)
        before = snapshot.load()
        generation = 1 + (before.generation if before is not None else 0)
        captured = capture(dispatcher, result.end_offset)
        snapshot.save(encode_capture(captured, dispatcher.queues.names, generation))
        full_ms = dispatcher.index.full_ms if self._config.index_enabled else result.last_store_ms
        checkpoint.update(
            physic_ms=max(result.last_store_ms, 0),
            logics_ms=max(min(result.last_store_ms, full_ms), 0),
            index_ms=dispatcher.index.full_ms,
            extension=Extension(
                generation, result.end_offset, result.end_offset, own_from=result.end_offset
            ),
        )
        checkpoint.write()


def _sync_queues(dispatcher: Dispatcher) -> None:
    if dispatcher.ext is not None:
        dispatcher.ext.write_out()
        dispatcher.ext.sync()
    dispatcher.queues.write_out(thorough=True)
    dispatcher.batch_queues.write_out()
    dispatcher.queues.sync()
    dispatcher.batch_queues.sync()


def _require_tail(repair: Repair) -> None:
    """A torn end is no reason to stop: the log counts up to there."""
    if repair.kind is not RepairKind.CUT:
        step = "Run `orbitmq store repair` first; it mends the log and what depends on it."
        raise CorruptRecordError(repair.path, repair.position, repair.cause, step)
