"""Put a store together: recover what is on disk, then join log, queues, index and flush.

Order: table of topics, checkpoint and snapshot, recovery, segments, queue offsets. Threads come last, and
not here. A store whose dispatch a Spark job does is put together in `spark_dispatch/opening.py`.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.lock import StoreLock
from orbitmq.files.positioned import FileCache
from orbitmq.format import kernels as kernel_sets
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.clean import Cleaner, DiskRatio, sync_deletions
from orbitmq.store.config import StoreConfig, WaitFor
from orbitmq.store.dispatch import Dispatcher, Extra
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.store.flags import Flag, RunningFlags
from orbitmq.store.log.append_rules import AppendRules
from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.flush import LogFlusher
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.make_dispatcher import make_dispatcher
from orbitmq.store.queues.cq_ext import trim_ext
from orbitmq.store.queues.flush import QueueFlusher
from orbitmq.store.queues.trim import delete_before
from orbitmq.store.readers import Unread, first_referred
from orbitmq.store.recovery.adopt import RecoverOptions, RecoveryReport, recover_store
from orbitmq.store.recovery.lost_records import FillStyle
from orbitmq.store.snapshot import SnapshotFile
from orbitmq.store.statistics import Counters
from orbitmq.store.topic_types import TopicTypes, read_topic_types

_log = logging.getLogger(__name__)

FilesT = TypeVar("FilesT", bound=FileCache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependencies:
    """What a store gets from outside."""

    config: StoreConfig
    layout: StoreLayout
    clock: Clock
    disk: Disk
    topic_types: TopicTypes | None
    dispatchers: Sequence[Extra]
    disk_ratio: DiskRatio


@dataclass(slots=True, kw_only=True)
class StoreParts:
    """The parts of an open store, joined."""

    lock: StoreLock
    files: FileCache
    flags: RunningFlags
    counters: Counters
    log: CommitLog
    dispatcher: Dispatcher
    dispatch: DispatchService
    flusher: LogFlusher
    queue_flusher: QueueFlusher
    checkpoint: CheckpointFile
    cleaner: Cleaner
    kernels: Kernels
    report: RecoveryReport


@contextmanager
def closed_on_error(files: FilesT) -> Iterator[FilesT]:
    """Close the files if the opening fails."""
    try:
        yield files
    except BaseException:
        files.close()
        raise


class Opening:
    """One opening of a store, step by step."""

    def __init__(self, deps: Dependencies, lock: StoreLock, files: FileCache) -> None:
        self._deps, self._lock, self._files = deps, lock, files
        self._config, self._layout = deps.config, deps.layout
        self._clock, self._disk = deps.clock, deps.disk
        self._flags, self._counters = RunningFlags(), Counters()
        self._kernels = kernel_sets.plain()
        topics = self._layout.config("topics.json")
        self._topic_types = deps.topic_types or read_topic_types(topics, self._disk)
        self._checkpoint = CheckpointFile(self._layout.checkpoint, self._disk)
        self._snapshot = SnapshotFile(self._layout.snapshot, self._disk)

    def run(self) -> StoreParts:
        dispatcher = self._dispatcher(self._files)
        loaded = self._checkpoint.load(), self._snapshot.load()
        report = recover_store(self._recover_options(), dispatcher, *loaded)
        log = self._log(dispatcher, report)
        return self._joined(log, dispatcher, self._dispatch(log, dispatcher, report), report)

    def _joined(
        self,
        log: CommitLog,
        dispatcher: Dispatcher,
        dispatch: DispatchService,
        report: RecoveryReport,
    ) -> StoreParts:
        flusher = LogFlusher(log, flags=self._flags, counters=self._counters, clock=self._clock)
        queue_flusher = self._queue_flusher(
            dispatcher, report, lambda: log.written_offset, lambda: dispatch.dispatched_offset
        )
        if log.min_offset > 0 and (report.adopted or not report.clean):
            # Killed between deleting segments and what led to them. A Java broker looks for a queue's
            # min offset in its first file only, so files that only lead to deleted segments must go.
            sync_deletions(log.segments)
            follow_the_log(dispatcher, log.min_offset)
        is_new = self._checkpoint.value.extension is None
        if is_new or report.adopted or report.records or report.changed_log:
            # So that a crash right after this does not mean reading all of it again; and that what is
            # torn then is known to be ours.
            self._checkpoint.update(physic_ms=max(0, report.last_store_ms))
            queue_flusher.flush_all()
        return StoreParts(
            lock=self._lock,
            files=self._files,
            flags=self._flags,
            counters=self._counters,
            log=log,
            dispatcher=dispatcher,
            dispatch=dispatch,
            flusher=flusher,
            queue_flusher=queue_flusher,
            checkpoint=self._checkpoint,
            cleaner=self._cleaner(log, dispatcher, dispatch),
            kernels=self._kernels,
            report=report,
        )

    def _dispatcher(self, files: FileCache, **more: Any) -> Dispatcher:
        own = self._config, self._layout, files, self._disk, self._kernels, self._clock
        return make_dispatcher(*own, topic_types=self._topic_types, **more)

    def _recover_options(self) -> RecoverOptions:
        config = self._config
        return RecoverOptions(
            layout=self._layout,
            disk=self._disk,
            clock=self._clock,
            kernels=self._kernels,
            fast_kernels=self._load_fast_kernels,
            plain_bytes=config.plain_recovery_bytes,
            scan=ScanOptions(
                check_crc=config.check_crc_on_recover,
                check_property_crc=config.force_property_crc,
                delay_ms=config.delay_ms,
            ),
            style=FillStyle(config.store_host, config.property_crc),
            index_safe=config.index_safe,
        )

    def _load_fast_kernels(self) -> Kernels:
        self._kernels = kernel_sets.compiled()
        return self._kernels

    def _log(self, dispatcher: Dispatcher, report: RecoveryReport) -> CommitLog:
        segments = SegmentList(self._layout, disk=self._disk, clock=self._clock)
        segments.load()
        log = CommitLog(
            self._config,
            segments,
            AppendRules(self._config, self._topic_types),
            clock=self._clock,
            kernels=self._kernels,
            flags=self._flags,
            counters=self._counters,
        )
        for queues in (dispatcher.queues, dispatcher.batch_queues):
            for number in queues.numbers():
                topic, queue_id = queues.names.name(number)
                route = log.queue_offsets.route(topic, queue_id)
                route.next_offset = queues.next_offset(number)
        log.resume(report.end_offset, report.last_store_ms)
        return log

    def _give_up(self, error: Exception) -> None:
        failure = error if isinstance(error, StoreError) else _bug(self._layout, error)
        self._flags.fail(failure, Flag.QUEUE_ERROR)

    def _dispatch(
        self, log: CommitLog, dispatcher: Dispatcher, report: RecoveryReport
    ) -> DispatchService:
        # Only from here on: what recovery dispatched was seen before the last stop.
        dispatcher.extra.extend(self._deps.dispatchers)
        return DispatchService(
            log,
            dispatcher,
            self._kernels,
            start=report.end_offset,
            options=ScanOptions(delay_ms=self._config.delay_ms),
            clock=self._clock,
            on_error=self._give_up,
        )

    def _queue_flusher(
        self,
        dispatcher: Dispatcher,
        report: RecoveryReport,
        log_end: Callable[[], int],
        dispatched_offset: Callable[[], int],
    ) -> QueueFlusher:
        flusher = QueueFlusher(
            self._config,
            dispatcher,
            self._checkpoint,
            self._snapshot,
            self._clock,
            dispatched_offset=dispatched_offset,
            log_end=log_end,
        )
        flusher.generation, flusher.own_from = report.generation, report.own_from
        return flusher

    def _cleaner(
        self, log: CommitLog, dispatcher: Dispatcher, dispatch: DispatchService
    ) -> Cleaner:
        config, clock = self._config, self._clock

        def follow(log_min: int) -> None:
            pause_ms = cleaner.config.queue_delete_pause_ms
            follow_the_log(dispatcher, log_min, lambda: clock.sleep(pause_ms))

        def by_queues() -> Unread | None:
            return first_referred(dispatcher, clock.now_ms(), cleaner.config.retention_ms)

        cleaner = Cleaner(
            config,
            log.segments,
            flags=self._flags,
            counters=self._counters,
            clock=clock,
            ratio=self._deps.disk_ratio,
            followers=[follow],
            dispatched_offset=lambda: dispatch.dispatched_offset,
            readers=by_queues if config.wait_for_readers is WaitFor.QUEUES else None,
        )
        return cleaner


def follow_the_log(
    dispatcher: Dispatcher, log_min: int, pause: Callable[[], None] | None = None
) -> None:
    """Delete the files of queues and index that lead only to segments that are gone."""
    delete_before(dispatcher.queues, log_min, pause)
    dispatcher.batch_queues.delete_before(log_min)
    if dispatcher.ext is not None:
        trim_ext(dispatcher.ext, dispatcher.queues)
    dispatcher.index.delete_before(log_min)


def _bug(layout: StoreLayout, error: Exception) -> StoreError:
    step = "Restart; if it comes again, run `orbitmq store check` and report this."
    return StoreError(layout.root, f"dispatch failed: {error!r}", step)
