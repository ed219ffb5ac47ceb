"""Look through a whole store and name everything that is wrong with it. Reads only.

The log is read once, with all cores; each record is checked and its unit and index entries are looked up
in the files, each unit and entry in turn must have its record. Works beside a running broker: what has
not been dispatched yet is no finding then.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.errors import FormatError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout
from orbitmq.files.positioned import FileCache
from orbitmq.files.replace import read_whole
from orbitmq.files.state_file import parse_state
from orbitmq.format import checkpoint as checkpoint_format
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import Mark, ScanOptions
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.format.property_crc import property_crc_matches
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Chunk
from orbitmq.store.offline.check_batch import BatchQueueCheck
from orbitmq.store.offline.check_facts import (
    BatchRows,
    batch_topics,
    has_property_crc,
    index_headers,
    is_open_elsewhere,
    queues_end,
)
from orbitmq.store.offline.check_index import IndexCheck
from orbitmq.store.offline.check_queues import SimpleQueueCheck
from orbitmq.store.offline.findings import (
    LOOK_STEP,
    OPEN_STEP,
    Finding,
    Findings,
    Kind,
    Severity,
)
from orbitmq.store.recovery.adopt import with_items
from orbitmq.store.recovery.log_view import LogView, open_log
from orbitmq.store.recovery.recovery_plan import Note, Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.replay import Progress
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.units import HOUR_MS

NEVER: Final = 2**63 - 1


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
    layout = guess_layout(root, settings)
    config = StoreConfig.from_settings(root, settings or {})
    return _Check(layout, config, kernels or compiled(), workers, progress).run()


class _Check:
    """One check. Not thread-safe."""

    def __init__(
        self,
        layout: StoreLayout,
        config: StoreConfig,
        kernels: Kernels,
        workers: int | None,
        progress: Progress | None,
    ) -> None:
        self._layout = layout
        self._config = config
        self._kernels = kernels
        self._workers = workers
        self._progress = progress
        self._findings = Findings()
        self._live = is_open_elsewhere(layout.lock)
        self._abort = layout.abort.exists()
        self._last_ms = 0
        self._fillers = 0

    def run(self) -> CheckReport:
        checkpoint = self._checkpoint()
        disk = Disk()
        with open_log(self._layout, disk, missing_allowed=True) as log:
            self._check_files(log)
            with FileCache(disk, writable=False) as files:
                result, lagging = self._check_log(log, files, checkpoint)
        self._check_checkpoint(checkpoint, result)
        self._check_state_files()
        return CheckReport(
            findings=tuple(self._findings),
            left_out=self._findings.left_out,
            records=result.records,
            fillers=self._fillers,
            log_start=log.min_offset,
            log_end=result.end_offset,
            live=self._live,
            lagging=lagging,
        )

    def _problem(self, problem: WrongFileError) -> None:
        self._findings.add(Kind.FILE, problem.path, 0, problem.what, advice=problem.next_step)

    # --- the log ---

    def _check_files(self, log: LogView) -> None:
        for segment in log.short:
            cause = f"has {segment.length} bytes instead of {len(segment.data)}"
            self._findings.add(Kind.FILE, segment.path, segment.length, cause, advice=OPEN_STEP)
        for segment in log.missing:
            cause = "segment is missing: its messages are lost unless it is brought back"
            step = "Bring the file back; or `orbitmq store repair` goes on without it."
            self._findings.add(
                Kind.FILE, segment.path, 0, cause, advice=step, log_offset=segment.base_offset
            )
        if not self._live:
            for path in log.empty:
                cause = "is empty: a writer stopped between creating and sizing it"
                self._findings.add(Kind.FILE, path, 0, cause, advice=OPEN_STEP)

    def _check_log(
        self, log: LogView, files: FileCache, checkpoint: Checkpoint | None
    ) -> tuple[WalkResult, int]:
        log_min = log.min_offset
        queues_from, index_from = self._lag_from(checkpoint)
        has_queues = self._has_queue_files()
        extension = checkpoint.extension if checkpoint is not None else None
        nothing_dispatched = extension is not None and queues_from <= log_min
        simple = SimpleQueueCheck(
            self._layout,
            files,
            self._kernels,
            self._findings,
            log_min=log_min,
            lag_from=queues_from,
            light_queues=self._config.enable_multi_dispatch,
        )
        batch = BatchQueueCheck(
            self._layout, self._kernels, self._findings, log_min=log_min, lag_from=queues_from
        )
        index = IndexCheck(
            self._layout, self._kernels, self._findings, log_min=log_min, lag_from=index_from
        )
        has_index = bool(index.files) and self._config.index_enabled
        batches = BatchRows(self._kernels, batch_topics(self._layout))
        result = WalkResult(log_min)
        mending = False
        keys = units = 0
        for item in walk(log, log_min, self._walk_options(checkpoint), result):
            if isinstance(item, Repair):
                self._report_repair(item)
                mending = True
                continue
            if mending:  # fillers that do not exist yet: the files know the record that was there
                mending = False
                simple.skip(item)
                continue
            self._check_records(log, item)
            keys += int(item.rows["key_count"].sum())
            units += int((item.rows["marks"] & Mark.NO_UNIT == 0).sum())
            if has_queues:
                is_batch = batches.of(item)
                simple.add(item, ~is_batch)
                batch.add(item, is_batch)
            if has_index:
                index.add(item)
        if has_queues:
            simple.finish(self._problem)
            batch.finish(self._problem)
        elif units and not nothing_dispatched:
            cause = "there are no queue files at all; every message is in the log only"
            self._findings.add(Kind.QUEUE, self._layout.queue_root(QueueKind.SIMPLE), 0, cause)
        if has_index:
            index.finish(result.end_offset)
        elif keys and self._config.index_enabled and not nothing_dispatched:
            cause = f"there are no index files at all; {keys} key(s) cannot be looked up"
            self._findings.add(Kind.INDEX, self._layout.index_directory, 0, cause)
        for note in result.notes:
            self._report_note(note)
        self._check_last_record(log, result)
        return result, simple.lagging + batch.lagging + index.lagging

    def _walk_options(self, checkpoint: Checkpoint | None) -> WalkOptions:
        return WalkOptions(
            kernels=self._kernels,
            scan=ScanOptions(check_crc=True, delay_ms=self._config.delay_ms),
            whole_from=whole_from(checkpoint),
            workers=self._workers,
            progress=self._progress,
            prepare=with_items(self._kernels) if self._config.index_enabled else None,
        )

    def _has_queue_files(self) -> bool:
        return any(
            queue.file_count
            for kind in (QueueKind.SIMPLE, QueueKind.BATCH)
            for queue in self._layout.list_queues(kind, on_problem=self._problem)
        )

    def _lag_from(self, checkpoint: Checkpoint | None) -> tuple[int, int]:
        """Return from which record on queues and index may lag behind: a writer is running, or died."""
        if not self._abort and not self._live:
            return NEVER, NEVER
        if checkpoint is not None and checkpoint.extension is not None:
            return checkpoint.extension.dispatched_offset, checkpoint.extension.dispatched_offset
        end = queues_end(self._layout)
        index_end = max(
            (header.end_log_offset for header in index_headers(self._layout)), default=0
        )
        return end, min(end, index_end)

    def _check_records(self, log: LogView, chunk: Chunk) -> None:
        rows = chunk.rows
        self._fillers += int((rows["marks"] & Mark.FILLER != 0).sum())
        times = rows["store_ms"]
        before = np.concatenate(([self._last_ms], times[:-1]))
        for index in np.flatnonzero(times < before).tolist()[:10]:
            cause = f"record is {int(before[index] - times[index])} ms older than the one before it"
            self._report_record(
                log, int(rows["log_offset"][index]), Kind.STORE_TIME, cause, note=True
            )
        self._last_ms = int(times[-1])
        for index in np.flatnonzero(has_property_crc(chunk)).tolist():
            start = (
                int(rows["log_offset"][index]) - log.at(int(rows["log_offset"][index])).base_offset
            )
            if not property_crc_matches(
                chunk.buffer[start : start + int(rows["size"][index])].data
            ):
                cause = "record does not match its property CRC"
                self._report_record(log, int(rows["log_offset"][index]), Kind.PROPERTIES, cause)

    def _report_record(
        self, log: LogView, log_offset: int, kind: Kind, cause: str, *, note: bool = False
    ) -> None:
        segment = log.at(log_offset)
        self._findings.add(
            kind,
            segment.path,
            log_offset - segment.base_offset,
            cause,
            advice=LOOK_STEP if note else OPEN_STEP,
            log_offset=log_offset,
            severity=Severity.NOTE if note else Severity.ERROR,
        )

    def _report_repair(self, repair: Repair) -> None:
        cause, kind = repair.cause, Kind.RECORD
        match repair.kind:
            case RepairKind.CUT:
                if self._live or not repair.zero_rest:
                    return  # a writer is just writing there, or has made segments ahead
                kind = Kind.TAIL
            case RepairKind.BLANK:
                kind = Kind.BLANK
            case RepairKind.FILL:
                names = [
                    f"{lost.topic.decode()}/{lost.queue_id} offset {lost.queue_offset}"
                    for lost in repair.lost[:3]
                ]
                cause += f" ({', '.join(names)})" if names else ""
        self._findings.add(
            kind, repair.path, repair.position, cause, advice=OPEN_STEP, log_offset=repair.start
        )

    def _report_note(self, note: Note) -> None:
        self._findings.add(
            Kind.STORED_OFFSET,
            note.path,
            note.position,
            note.cause,
            advice=LOOK_STEP,
            log_offset=note.log_offset,
            severity=Severity.NOTE,
        )

    def _check_last_record(self, log: LogView, result: WalkResult) -> None:
        """A record whose last page did not reach the disk may still pass: its CRC covers the body only."""
        if result.last_row is None or self._live:
            return
        log_offset, properties_at, length = result.last_row
        segment = log.at(log_offset)
        raw = segment.data[properties_at : properties_at + length]
        if length and (raw == 0).any():
            cause = (
                "properties of the last record hold zero bytes: it is torn, tags and keys are lost"
            )
            self._report_record(log, log_offset, Kind.PROPERTIES, cause, note=True)

    # --- the small files ---

    def _checkpoint(self) -> Checkpoint | None:
        path = self._layout.checkpoint
        data = read_whole(Disk(), path)
        if data is None:
            return None
        try:
            return checkpoint_format.decode(data)
        except FormatError as error:
            self._findings.add(
                Kind.CHECKPOINT, path, error.position, error.reason, advice=OPEN_STEP
            )
            return Checkpoint()

    def _check_checkpoint(self, checkpoint: Checkpoint | None, result: WalkResult) -> None:
        if not result.records or (checkpoint is None and self._live):
            return  # a new store writes it with its first flush
        cause, position = None, 0
        if checkpoint is None:
            cause = "there is no checkpoint; a Java broker would read the whole log"
        elif checkpoint == Checkpoint():
            cause = "the checkpoint is all zero; a Java broker would read the whole log"
        elif checkpoint.physic_ms > self._last_ms + HOUR_MS:
            cause = f"names a flushed message of {checkpoint.physic_ms}, the newest is of {self._last_ms}"
        elif not self._abort and not self._live and _is_behind(checkpoint, result, self._last_ms):
            cause = "is older than the log although the store was closed (no abort file)"
            position = 8
        if cause is not None:
            self._findings.add(
                Kind.CHECKPOINT, self._layout.checkpoint, position, cause, advice=OPEN_STEP
            )

    def _check_state_files(self) -> None:
        for path in sorted(self._layout.config_directory.glob("*.json")):
            try:
                parse_state(path.read_text(encoding="utf-8"))
            except (ValueError, OSError) as error:
                backup = path.with_name(path.name + ".bak")
                step = f"Restore it from {backup.name} or from a backup."
                self._findings.add(
                    Kind.STATE, path, 0, f"is not readable as JSON: {error}", advice=step
                )


def _is_behind(checkpoint: Checkpoint, result: WalkResult, last_ms: int) -> bool:
    if checkpoint.extension is not None:
        return checkpoint.extension.dispatched_offset < result.end_offset
    return checkpoint.logics_ms < last_ms
