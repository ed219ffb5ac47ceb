"""Verify a store: what must hold between its log, queues and index, and in which order it is looked at.

  index files   each by itself: chains, slots, header
  log           every record with its checksums; bad places are found as recovery finds them
  records       each one's unit and index entries are looked up
  queues        their offsets follow one another; units that differ; units without a record
  timer         wheel, timer log and checkpoint lead to what is there

Who reads and compares is a `Runner`: threads of this process (`check`), or tasks of Spark. No finding
depends on it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.replace import bak_path
from orbitmq.files.state_file import is_whole_state, parse_state
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.log_read import Chunk, LogView
from orbitmq.store.recovery.plan import Repair
from orbitmq.store.recovery.walk import WalkResult
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import OPEN_STEP, Finding, Findings, Kind, Severity
from orbitmq.store.verify.index import IndexTally, report_index
from orbitmq.store.verify.index_chains import IndexFileResult, check_order
from orbitmq.store.verify.index_entries import list_index_files
from orbitmq.store.verify.log import LogCheck
from orbitmq.store.verify.log_part import PartTally
from orbitmq.store.verify.timer import check_timer
from orbitmq.units import HOUR_MS


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The result of a verification. A store with no errors among the findings is sound."""

    findings: tuple[Finding, ...]
    left_out: Mapping[Kind, int]  # found, but too many of one kind to list
    records: int
    fillers: int
    log_start: int
    log_end: int
    live: bool  # another process has the store open
    lagging: int  # units and index entries that were not written yet when the writer stopped
    undispatched: int = 0  # bytes of the log that a Spark job has still to dispatch

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(item for item in self.findings if item.severity is Severity.ERROR)

    @property
    def is_sound(self) -> bool:
        return not self.errors


class Runner(Protocol):
    """Reads and compares, somewhere. Called in the order of these methods."""

    def check_index_files(
        self, paths: Sequence[Path], facts: StoreFacts
    ) -> Iterable[IndexFileResult]:
        """Check each index file by itself; results in the order of the paths."""

    def walk(self, log: LogView, facts: StoreFacts, result: WalkResult) -> Iterator[Chunk | Repair]:
        """Walk over the log (`recovery.walk`)."""

    def take(self, chunk: Chunk) -> PartTally:
        """Compare these records of the walk, now or later; return what they add up to."""

    def skip(self, chunk: Chunk) -> None:
        """Pass over records of the walk whose units are not to be looked at."""

    def finish(self, log_end: int) -> tuple[Findings, IndexTally]:
        """Compare what is left, and all queues; units from `log_end` on are a writer's."""


class Verification:
    """One verification. Not thread-safe."""

    def __init__(self, facts: StoreFacts, findings: Findings, log: LogView, runner: Runner) -> None:
        self._facts = replace(facts, log_min=log.min_offset)
        self._findings = findings
        self._log = log
        self._runner = runner
        self._log_check = LogCheck(findings, live=facts.live)
        self._index = IndexTally()

    def run(self) -> CheckReport:
        """Do it all. StoreError: something cannot be read."""
        self._log_check.files(self._log)
        self._check_index_files()
        result = WalkResult(self._facts.log_min)
        self._walk(result)
        found, index = self._runner.finish(self._facts.judged_end(result.end_offset))
        self._findings.merge(found)
        self._index.merge(index)
        self._report_index(result)
        self._report_absent()
        self._log_check.finish(self._log, result)
        _check_checkpoint(self._facts, result, self._findings, last_ms=self._log_check.last_ms)
        check_timer(self._facts, self._log, result.end_offset, self._findings)
        check_state_files(self._facts.layout, self._findings)
        return self._report(result)

    def _check_index_files(self) -> None:
        layout = self._facts.layout
        paths = list_index_files(layout)
        files = []
        for facts, findings in self._runner.check_index_files(paths, self._facts) if paths else ():
            self._findings.merge(findings)
            if facts is not None:
                files.append(facts)
        if not self._facts.config.index_roll_ms:
            check_order(files, layout, self._findings)
        if self._facts.config.index_enabled:
            self._facts = replace(self._facts, index_files=tuple(files))

    def _walk(self, result: WalkResult) -> None:
        mended_to = 0
        for item in self._runner.walk(self._log, self._facts, result):
            if isinstance(item, Repair):
                self._log_check.repair(item)
                mended_to = item.resume
            elif item.rows["log_offset"][0] < mended_to:
                # Fillers that do not exist yet: the files know the record that was there.
                self._runner.skip(item)
            else:
                tally = self._runner.take(item)
                self._log_check.records(self._log, item.rows, tally.records)
                self._index.merge(tally.index)

    def _report_index(self, result: WalkResult) -> None:
        if self._facts.index_files:
            log_end = None if self._facts.live else result.end_offset
            files, layout = self._facts.open_index(), self._facts.layout
            report_index(self._index, files, layout, self._findings, log_end=log_end)

    def _report_absent(self) -> None:
        """Report that there are no queue files or no index files at all, where records ask for them."""
        facts, records = self._facts, self._log_check.facts
        extension = facts.checkpoint.extension if facts.checkpoint is not None else None
        if extension is not None and facts.queues_from <= facts.log_min:
            return  # nothing was dispatched yet
        if records.units and not facts.has_queues:
            cause = "there are no queue files at all; every message is in the log only"
            self._findings.add(Kind.QUEUE, facts.layout.queue_root(QueueKind.SIMPLE), 0, cause)
        if records.keys and not facts.index_files and facts.config.index_enabled:
            cause = f"there are no index files at all; {records.keys} key(s) cannot be looked up"
            self._findings.add(Kind.INDEX, facts.layout.index_directory, 0, cause)

    def _report(self, result: WalkResult) -> CheckReport:
        return CheckReport(
            findings=tuple(self._findings),
            left_out=self._findings.left_out,
            records=result.records,
            fillers=self._log_check.facts.fillers,
            log_start=self._facts.log_min,
            log_end=result.end_offset,
            live=self._facts.live,
            lagging=self._findings.lagging,
            undispatched=max(result.end_offset - self._facts.due_end, 0),
        )


def _check_checkpoint(
    facts: StoreFacts, result: WalkResult, findings: Findings, *, last_ms: int
) -> None:
    """Compare the checkpoint with the log that was read; `last_ms` is its last store time."""
    checkpoint, path = facts.checkpoint, facts.layout.checkpoint
    if not result.records or (checkpoint is None and facts.live):
        return  # a new store writes it with its first flush
    cause, position = None, 0
    if checkpoint is None:
        cause = "there is no checkpoint; a Java broker would read the whole log"
    elif checkpoint == Checkpoint():
        cause = "the checkpoint is all zero; a Java broker would read the whole log"
    elif checkpoint.physic_ms > last_ms + HOUR_MS:
        cause = f"names a flushed message of {checkpoint.physic_ms}, the newest is of {last_ms}"
    elif _must_be_new(facts) and _is_behind(checkpoint, result, last_ms):
        cause = "is older than the log although the store was closed (no abort file)"
        position = 8
    if cause is not None:
        findings.add(Kind.CHECKPOINT, path, position, cause, advice=OPEN_STEP)


def _must_be_new(facts: StoreFacts) -> bool:
    """Tell whether whoever closed the store had dispatched all of it: a Spark job goes on later."""
    return not facts.abort and not facts.live and facts.job_offset is None


def _is_behind(checkpoint: Checkpoint, result: WalkResult, last_ms: int) -> bool:
    if checkpoint.extension is not None:
        return checkpoint.extension.dispatched_offset < result.end_offset
    return checkpoint.logics_ms < last_ms


def check_state_files(layout: StoreLayout, findings: Findings) -> None:
    """Report JSON files that cannot be read."""
    for path in sorted(layout.config_directory.glob("*.json")):
        try:
            parse_state(path.read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            whole = is_whole_state(Disk(), bak_path(path))
            step = OPEN_STEP if whole else "Restore it from a backup: its .bak is not whole either."
            findings.add(Kind.STATE, path, 0, f"is not readable as JSON: {error}", advice=step)
