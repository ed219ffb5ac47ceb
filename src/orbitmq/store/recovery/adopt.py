"""Recover a store at open: mend the log, bring queues and index into memory, dispatch what they lack.

Two ways, and the same result. Abnormal or clean makes no difference to what is kept:

  trusted   the checkpoint proves that nobody but us wrote since the snapshot, and the files bear it out:
            queues and index are as the snapshot says; the log is read from its dispatched offset on
            (after a crash a little earlier, from where it is known to be on disk)
  adopted   anything else (a store of a Java broker, files removed, a damaged snapshot): the whole log is
            read, and every unit and index entry compared with the files; what is wrong is put right
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.format.snapshot import NO_EXT, QueueKind, Snapshot
from orbitmq.log_read import Chunk, LogView, Prepare, open_log
from orbitmq.store.dispatch import AdoptionReport, Dispatcher
from orbitmq.store.index.load import keep_full_files, load_index_states
from orbitmq.store.queues.load import check_states, load_states
from orbitmq.store.queues.trim import correct_min
from orbitmq.store.recovery.lost_records import FillStyle
from orbitmq.store.recovery.mend import Mender
from orbitmq.store.recovery.plan import Note, Repair, RepairKind, WalkOptions
from orbitmq.store.recovery.quarantine import Quarantine
from orbitmq.store.recovery.queue_counts import Queue
from orbitmq.store.recovery.queue_units import file_units
from orbitmq.store.recovery.stale_units import cut_stale_units
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.units import SECOND_MS, MiB

log = logging.getLogger(__name__)

FLUSH_SLACK_MS: Final = 3 * SECOND_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoverOptions:
    """What recovery needs to know.

    `fast_kernels` loads the compiled ones (half a second) when there is more to read than `plain_bytes`.
    """

    layout: StoreLayout
    disk: Disk
    clock: Clock
    kernels: Kernels
    fast_kernels: Callable[[], Kernels] | None = None
    plain_bytes: int = 2 * MiB
    scan: ScanOptions = field(default_factory=lambda: ScanOptions(check_crc=True))
    style: FillStyle = field(default_factory=FillStyle)
    trusted_only: bool = False  # NotTrustedError instead of adopting
    index_safe: bool = False  # after a crash, make again what of the index no checkpoint covers


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What recovery found and did."""

    start_offset: int  # from where the log was read
    end_offset: int
    min_offset: int
    last_store_ms: int
    clean: bool  # no abort file: the store was closed in order
    adopted: bool
    why_adopted: str = ""
    records: int = 0  # that were read
    generation: int = 0  # of the newest snapshot or checkpoint that was found
    own_from: int = 0  # all records from this log offset on were appended by us
    repairs: tuple[Repair, ...] = ()
    notes: tuple[Note, ...] = ()
    resized: tuple[Path, ...] = ()  # segments that were made longer, or that were empty and went
    kept: tuple[Path, ...] = ()  # what went to the quarantine
    adoption: AdoptionReport = field(default_factory=AdoptionReport)
    stale_units: int = 0  # units of records that did not survive, cut after a crash

    @property
    def changed_log(self) -> bool:
        return bool(self.repairs or self.resized)

    @property
    def lost_records(self) -> bool:
        """Whether whole records may be gone: damage, not the torn end that a kill leaves."""
        return any(self.clean or repair.kind is RepairKind.FILL for repair in self.repairs)


def recover_store(
    options: RecoverOptions,
    dispatcher: Dispatcher,
    checkpoint: Checkpoint | None,
    snapshot: Snapshot | None,
) -> RecoveryReport:
    """Make log, queues and index of a store agree; return where the log ends and what was done.

    The dispatcher and its queues must be new. Nobody else may have the store open. What was dispatched
    is in the queues' memory and files, not synced yet.
    """
    layout, disk = options.layout, options.disk
    quarantine = Quarantine(layout.quarantine, layout.root, disk, options.clock)
    with open_log(layout, disk) as view:
        mender = Mender(view, disk, quarantine)
        resized = tuple(mender.set_lengths())
        report = _Recovery(options, dispatcher, view, mender, checkpoint, snapshot).run()
    return replace(report, resized=resized, kept=tuple(quarantine.kept))


class NotTrustedError(Exception):
    """Queues and index are not as our last account of them says."""


class _Recovery:
    """One recovery. Not thread-safe."""

    def __init__(
        self,
        options: RecoverOptions,
        dispatcher: Dispatcher,
        view: LogView,
        mender: Mender,
        checkpoint: Checkpoint | None,
        snapshot: Snapshot | None,
    ) -> None:
        self._options = options
        self._kernels = options.kernels
        self._dispatcher = dispatcher
        self._log = view
        self._mender = mender
        self._checkpoint = checkpoint or Checkpoint()
        self._snapshot = snapshot
        self._clean = not options.layout.abort.exists()
        self._repairs: list[Repair] = []

    def run(self) -> RecoveryReport:
        if not self._log.segments:
            if self._options.trusted_only:
                return self._report(WalkResult(0), start=0, adopted=False)
            return self._without_log()
        reason = self._load_snapshot()
        if reason is None:
            try:
                return self._resume()
            except NotTrustedError as error:
                reason = str(error)
        if self._options.trusted_only:
            raise NotTrustedError(reason)
        log.info("%s: reading the whole log: %s", self._options.layout.root, reason)
        return self._adopt(reason)

    def _without_log(self) -> RecoveryReport:
        """An empty store. Queues that are there have nothing to point to."""
        self._dispatcher.begin_verify(0)
        adoption = self._dispatcher.finish_verify()
        report = self._report(WalkResult(0), start=0, adopted=not adoption.is_clean)
        return replace(report, adoption=adoption)

    # --- the snapshot ---

    def _load_snapshot(self) -> str | None:
        """Take queues and index from the snapshot; return why that is not possible, None if it was."""
        snapshot, extension = self._snapshot, self._checkpoint.extension
        if snapshot is None:
            return "there is no snapshot of queues and index"
        if extension is None:
            return "somebody else wrote the checkpoint last"
        if snapshot.generation < extension.generation:
            return "the snapshot is older than the checkpoint"
        if not self._log.min_offset <= snapshot.dispatched_offset <= self._log.max_offset:
            return "the snapshot speaks of another part of the log"
        dispatcher = self._dispatcher
        load_queues(dispatcher, snapshot)
        if _has_forgotten_ext(dispatcher, snapshot):
            return "the snapshot knows nothing of ext units that are there"
        problems = check_states(dispatcher.queues) or dispatcher.batch_queues.check_states()
        if problems:
            return problems[0]
        if dispatcher.index.enabled and not load_index_states(
            dispatcher.index,
            snapshot.index_files,
            self._log.min_offset,
            self._log.store_ms_at,
        ):
            return "index files are not those of the snapshot"
        return None

    def _resume(self) -> RecoveryReport:
        assert self._snapshot is not None
        dispatched = self._snapshot.dispatched_offset
        start = min(self._scan_start(dispatched), self._index_start(dispatched))
        if self._clean and self._ends_at(dispatched):
            result = WalkResult(dispatched)
        else:
            result = self._catch_up(start, dispatched)
        stale = 0
        if not self._clean:
            stale = cut_stale_units(self._dispatcher)
            self._mender.sync_all(self._options.layout)
        self._correct_min()
        return replace(self._report(result, start=start, adopted=False), stale_units=stale)

    def _ends_at(self, log_offset: int) -> bool:
        """Tell at a glance whether nothing was written behind this offset."""
        if log_offset == self._log.max_offset:
            return True
        number = self._log.index_of(log_offset)
        if number != len(self._log.segments) - 1:
            return False
        segment = self._log.segments[number]
        position = log_offset - segment.base_offset
        return segment.is_zero(position, position + 4096)

    def _scan_start(self, dispatched: int) -> int:
        """Return from where the log has to be read.

        Queues may have reached the disk before the log did. After a crash the log is checked from the
        last segment on whose first record is older than what is known to be flushed.
        """
        if self._clean:
            return dispatched
        flushed_ms = self._checkpoint.physic_ms - FLUSH_SLACK_MS
        start = self._log.min_offset
        for segment in self._log.segments:
            if segment.base_offset > dispatched:
                break
            first_ms = self._log.store_ms_at(segment.base_offset)
            if first_ms is not None and first_ms <= flushed_ms:
                start = segment.base_offset
        return min(start, dispatched)

    def _index_start(self, dispatched: int) -> int:
        """Return from where records have to be entered into the index.

        What the snapshot says of it is enough. A safe index is believed only as far as files are full and
        the checkpoint speaks of them, as a Java broker has it: the file that was being filled at the crash
        is made again, at the price of reading the log from its first entry on.
        """
        index = self._dispatcher.index
        if self._clean or not self._options.index_safe or not index.enabled:
            return dispatched
        keep_full_files(index, self._checkpoint.index_ms)
        first = max(index.end_log_offset, self._log.min_offset)
        return self._log.at(first).base_offset if first < self._log.max_offset else dispatched

    def _catch_up(self, start: int, dispatched: int) -> WalkResult:
        assert self._snapshot is not None
        result = WalkResult(start)
        known = _known_next(self._snapshot) if start == dispatched else {}
        for item in walk(self._log, start, self._walk_options(start, known), result):
            if isinstance(item, Repair):
                if item.start < dispatched:
                    self._apply_before_snapshot(item)
                self._mend(item)
            else:
                self._enter_keys(item, dispatched)
                self._dispatcher.apply(_rows_from(item, dispatched))
        if result.end_offset < dispatched:
            raise NotTrustedError("the log ends before the snapshot")
        return result

    def _enter_keys(self, chunk: Chunk, dispatched: int) -> None:
        """Enter the keys of records before the snapshot that the index does not have."""
        index, offsets = self._dispatcher.index, chunk.rows["log_offset"]
        rows = chunk.rows[(offsets > index.end_log_offset) & (offsets < dispatched)]
        if index.enabled and len(rows):
            index.insert(self._kernels.index_items(chunk.buffer, rows))

    def _apply_before_snapshot(self, repair: Repair) -> None:
        """Queues and index may know the lost record: only comparing them all puts that right."""
        if repair.kind is not RepairKind.CUT:
            self._mend(repair)
        raise NotTrustedError(f"the log is damaged at {repair.start}, before the snapshot")

    # --- the whole log ---

    def _adopt(self, reason: str) -> RecoveryReport:
        start = self._log.min_offset
        self._mark_open()
        self._dispatcher.begin_verify(start)
        result = WalkResult(start)
        for item in walk(self._log, start, self._walk_options(start, {}), result):
            if isinstance(item, Repair):
                self._mend(item)
            else:
                self._dispatcher.apply(item, verify=True)
        adoption = self._dispatcher.finish_verify()
        if not self._clean:
            self._mender.sync_all(self._options.layout)
        self._correct_min()
        report = self._report(result, start=start, adopted=True)
        return replace(report, why_adopted=reason, adoption=adoption)

    # --- both ---

    def _walk_options(self, start: int, known: Mapping[Queue, int]) -> WalkOptions:
        self._use_fast_kernels(start)
        return WalkOptions(
            kernels=self._kernels,
            scan=self._options.scan,
            style=self._options.style,
            units_between=file_units(self._options.layout, self._options.disk),
            known_next=known,
            topic_type=self._dispatcher.topic_type,
            whole_from=whole_from(self._checkpoint),
            prepare=with_items(self._kernels) if self._dispatcher.index.enabled else None,
        )

    def _use_fast_kernels(self, start: int) -> None:
        load = self._options.fast_kernels
        if load is None or self._kernels is not self._options.kernels:
            return
        first = self._log.index_of(start) if start < self._log.max_offset else 0
        written = sum(segment.data_end() for segment in self._log.segments[first:])
        if written - (start - self._log.segments[first].base_offset) > self._options.plain_bytes:
            self._kernels = load()
            self._dispatcher.use(self._kernels)

    def _mark_open(self) -> None:
        """Leave an abort file before queues and index change: if we die now, a broker must not trust them."""
        layout, disk = self._options.layout, self._options.disk
        if not layout.abort.exists():
            disk.close(layout.abort, disk.open(layout.abort, create=True))
            disk.sync_directory(layout.root)

    def _mend(self, repair: Repair) -> None:
        place, kind = (repair.path, repair.position), repair.kind.value
        log.warning("%s: position %d: %s (%s)", *place, repair.cause, kind)
        self._mender.apply(repair)
        self._repairs.append(repair)

    def _correct_min(self) -> None:
        correct_min(self._dispatcher.queues, self._log.min_offset)
        self._dispatcher.batch_queues.correct_min(self._log.min_offset)

    def _report(self, result: WalkResult, *, start: int, adopted: bool) -> RecoveryReport:
        snapshot, extension = self._snapshot, self._checkpoint.extension
        last_store_ms = result.likely_ms
        if last_store_ms < 0:
            physic_ms = self._checkpoint.physic_ms
            last_store_ms = self._log.store_ms_before(result.end_offset, physic_ms)
        return RecoveryReport(
            start_offset=start,
            end_offset=result.end_offset,
            min_offset=self._log.min_offset,
            last_store_ms=last_store_ms,
            clean=self._clean,
            adopted=adopted,
            records=result.records,
            generation=max(
                snapshot.generation if snapshot is not None else 0,
                extension.generation if extension is not None else 0,
            ),
            own_from=min(whole_from(self._checkpoint), result.end_offset),
            repairs=tuple(self._repairs),
            notes=tuple(result.notes),
        )


def with_items(kernels: Kernels) -> Prepare:
    """Return what makes the index items of a chunk ahead of its dispatch."""

    def prepare(chunk: Chunk) -> Chunk:
        return replace(chunk, items=kernels.index_items(chunk.buffer, chunk.rows))

    return prepare


def _rows_from(chunk: Chunk, log_offset: int) -> Chunk:
    if chunk.rows["log_offset"][0] >= log_offset:
        return chunk
    return Chunk(chunk.buffer, chunk.rows[chunk.rows["log_offset"] >= log_offset])


def load_queues(dispatcher: Dispatcher, snapshot: Snapshot) -> None:
    """Take queues and their ext files as the snapshot says; no file is opened."""
    load_states(dispatcher.queues, snapshot.queues)
    dispatcher.batch_queues.load_states(snapshot.queues)
    if dispatcher.ext is None:
        return
    for state in snapshot.queues:
        if state.kind == QueueKind.SIMPLE and state.ext_end != NO_EXT:
            number = dispatcher.queues.find(state.topic, state.queue_id)
            dispatcher.ext.load_end(number, state.ext_end)


def _has_forgotten_ext(dispatcher: Dispatcher, snapshot: Snapshot) -> bool:
    """Tell whether a queue has ext files that the snapshot leaves out: they were switched off then."""
    return dispatcher.ext is not None and any(
        state.kind == QueueKind.SIMPLE
        and state.ext_end == NO_EXT
        and dispatcher.ext.has_files(dispatcher.queues.find(state.topic, state.queue_id))
        for state in snapshot.queues
    )


def _known_next(snapshot: Snapshot) -> dict[Queue, int]:
    return {(state.topic.encode(), state.queue_id): state.next_offset for state in snapshot.queues}
