"""What has to be known of a store before its log is compared with its other files. Reads only."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orbitmq.errors import WrongFileError
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import ScanOptions
from orbitmq.store.config import StoreConfig
from orbitmq.store.verify.facts import index_headers, is_open_elsewhere, queues_end
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.log import RecordFacts
from orbitmq.store.verify.small_files import read_checkpoint

NEVER: Final = 2**63 - 1
NO_END: Final = 2**63
"""Behind every log offset."""


@dataclass(slots=True)
class CheckBasis:
    """A store at the moment when a check starts; the findings grow as the check goes on."""

    layout: StoreLayout
    config: StoreConfig
    live: bool  # another process has the store open
    abort: bool  # it is open, or was not closed
    findings: Findings = field(default_factory=Findings)
    checkpoint: Checkpoint | None = None
    has_queues: bool = False
    queues_from: int = NEVER  # from which record on queues and index may lag behind
    index_from: int = NEVER

    @property
    def scan(self) -> ScanOptions:
        """How records are read."""
        return ScanOptions(check_crc=True, delay_ms=self.config.delay_ms)

    def problem(self, problem: WrongFileError) -> None:
        """Report a problem with a file, as a listing finds them."""
        report_problem(problem, self.findings)

    def judged_end(self, log_end: int) -> int:
        """Return up to which log offset units and entries need a record: behind it a writer goes on."""
        return log_end if self.live else NO_END

    def report_absent(self, facts: RecordFacts, *, log_min: int, has_index: bool) -> None:
        """Report that there are no queue files or no index files at all, where records ask for them."""
        extension = self.checkpoint.extension if self.checkpoint is not None else None
        if extension is not None and self.queues_from <= log_min:
            return  # nothing was dispatched yet
        if facts.units and not self.has_queues:
            cause = "there are no queue files at all; every message is in the log only"
            self.findings.add(Kind.QUEUE, self.layout.queue_root(QueueKind.SIMPLE), 0, cause)
        if facts.keys and not has_index and self.config.index_enabled:
            cause = f"there are no index files at all; {facts.keys} key(s) cannot be looked up"
            self.findings.add(Kind.INDEX, self.layout.index_directory, 0, cause)


def report_problem(problem: WrongFileError, findings: Findings) -> None:
    """Report a file that does not belong where it is, or not as it is."""
    findings.add(Kind.FILE, problem.path, 0, problem.what, advice=problem.next_step)


def look_at(root: Path, settings: Mapping[str, str] | None) -> CheckBasis:
    """Look at a store directory. StoreError: it is none, or cannot be read with these settings."""
    layout = guess_layout(root, settings)
    config = StoreConfig.from_settings(root, settings or {})
    live = is_open_elsewhere(layout.lock)
    basis = CheckBasis(layout, config, live, layout.abort.exists())
    basis.checkpoint = read_checkpoint(layout, basis.findings)
    _look_for_queues(basis)
    basis.queues_from, basis.index_from = _lag_from(basis)
    return basis


def _look_for_queues(basis: CheckBasis) -> None:
    problems: list[WrongFileError] = []
    basis.has_queues = any(
        queue.file_count
        for kind in (QueueKind.SIMPLE, QueueKind.BATCH)
        for queue in basis.layout.list_queues(kind, on_problem=problems.append)
    )
    if not basis.has_queues:  # else whoever compares the queues lists them again
        for problem in problems:
            basis.problem(problem)


def _lag_from(basis: CheckBasis) -> tuple[int, int]:
    """Return from which record on queues and index may lag behind: a writer is running, or died."""
    if not basis.abort and not basis.live:
        return NEVER, NEVER
    extension = basis.checkpoint.extension if basis.checkpoint is not None else None
    if extension is not None:
        return extension.dispatched_offset, extension.dispatched_offset
    end = queues_end(basis.layout)
    ends = (header.end_log_offset for header in index_headers(basis.layout))
    return end, min(end, max(ends, default=0))
