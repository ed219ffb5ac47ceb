"""What has to be known of a store before its log is compared with its other files. Reads only."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from orbitmq.errors import FormatError, StateFileError, StoreError, WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout, guess_layout
from orbitmq.files.listing import list_segments
from orbitmq.files.replace import read_whole
from orbitmq.files.state_file import read_state
from orbitmq.format import batch_unit
from orbitmq.format import checkpoint as checkpoint_format
from orbitmq.format.checkpoint import Checkpoint
from orbitmq.format.columns import ScanOptions
from orbitmq.format.cq_unit import PADDING_SIZE
from orbitmq.message import QueueType
from orbitmq.store.config import StoreConfig
from orbitmq.store.queues.unit_files import stored_units
from orbitmq.store.recovery.torn_records import whole_from
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.store.verify.findings import OPEN_STEP, Findings, Kind
from orbitmq.store.verify.index_entries import (
    IndexEntries,
    IndexFileFacts,
    list_index_files,
    read_header,
)

NEVER: Final = 2**63 - 1
NO_END: Final = 2**63
"""Behind every log offset."""


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """One store at the moment when its verification started. Travels to tasks."""

    layout: StoreLayout
    config: StoreConfig
    live: bool  # another process has the store open
    abort: bool  # it is open, or was not closed
    checkpoint: Checkpoint | None
    has_queues: bool
    batch_topics: frozenset[bytes]
    queues_from: int = NEVER  # from which record on queues and index may lag behind
    index_from: int = NEVER
    log_min: int = 0
    index_files: tuple[IndexFileFacts, ...] = ()  # empty: the index is not compared
    job_offset: int | None = None  # so far a Spark job has dispatched; None: no job does it

    @property
    def scan(self) -> ScanOptions:
        """How records are read."""
        return ScanOptions(check_crc=True, delay_ms=self.config.delay_ms)

    @property
    def whole_from(self) -> int:
        """From this log offset on all records are ours."""
        return whole_from(self.checkpoint)

    @property
    def light_queues(self) -> bool:
        return self.config.enable_multi_dispatch

    @property
    def index_kept_from(self) -> int:
        """From which record on the index has to have its keys: where only the newest files are kept."""
        if not self.config.index_files_max or not self.index_files:
            return 0
        return self.index_files[0].header.begin_log_offset

    @property
    def due_end(self) -> int:
        """Behind this log offset no record has to be in a queue or in the index yet."""
        return NO_END if self.job_offset is None else self.job_offset

    def judged_end(self, log_end: int) -> int:
        """Return up to which log offset units need a record: behind it a writer goes on."""
        return log_end if self.live else NO_END

    def open_index(self, start: int = -NO_END, end: int = NO_END) -> dict[int, IndexEntries]:
        """Map the index files that may lead to these log offsets; return them by number."""
        return {
            number: IndexEntries(file, self.layout, self.log_min)
            for number, file in enumerate(self.index_files)
            if file.header.begin_log_offset < end and file.header.end_log_offset >= start
        }


def look_at(root: Path, settings: Mapping[str, str] | None) -> tuple[StoreFacts, Findings]:
    """Look at a store directory. StoreError: it is none, or cannot be read with these settings."""
    layout = guess_layout(root, settings)
    findings = Findings()
    facts = StoreFacts(
        layout,
        StoreConfig.from_settings(root, settings or {}),
        live=is_open_elsewhere(layout.lock),
        abort=layout.abort.exists(),
        checkpoint=_read_checkpoint(layout, findings),
        has_queues=_look_for_queues(layout, findings),
        batch_topics=frozenset(_batch_topics(layout)),
        job_offset=_job_offset(layout.root, findings),
    )
    queues_from, index_from = _lag_from(facts)
    return replace(facts, queues_from=queues_from, index_from=index_from), findings


def is_open_elsewhere(lock: Path) -> bool:
    """Tell whether a process holds the store's lock, without touching the lock file.

    To open it would not do: a process that closes any descriptor of the file gives up its own lock.
    """
    try:
        status = lock.stat()
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return False
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    for line in lines:
        fields = line.split()
        place = next((field for field in fields if field.count(":") == 2), "")
        named_device, _, inode = place.rpartition(":")
        # A file system on top of another one (overlay) shows the number of the one below.
        if inode == str(status.st_ino) and (named_device == device or os.major(status.st_dev) == 0):
            return True
    return False


def _read_checkpoint(layout: StoreLayout, findings: Findings) -> Checkpoint | None:
    """Return the checkpoint, an empty one if it is damaged, None if there is none."""
    data = read_whole(Disk(), layout.checkpoint)
    if data is None:
        return None
    try:
        return checkpoint_format.decode(data)
    except FormatError as error:
        place = layout.checkpoint, error.position
        findings.add(Kind.CHECKPOINT, *place, error.reason, advice=OPEN_STEP)
        return Checkpoint()


def _look_for_queues(layout: StoreLayout, findings: Findings) -> bool:
    problems: list[WrongFileError] = []
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in layout.list_queues(kind, on_problem=problems.append):
            if queue.file_count:
                return True  # whoever compares the queues lists them again
    for problem in problems:
        findings.add_problem(problem)
    return False


def _batch_topics(layout: StoreLayout) -> Iterator[bytes]:
    """Yield the topics whose queues are batch queues: by topics.json, and by the directories."""
    for queue in layout.list_queues(QueueKind.BATCH, on_problem=lambda problem: None):
        yield queue.topic.encode()
    try:
        table = read_state(layout.config("topics.json")).get("topicConfigTable", {})
    except StoreError:
        return  # the check names the broken file
    for topic, config in table.items() if isinstance(table, dict) else ():
        attributes = config.get("attributes") if isinstance(config, dict) else None
        if isinstance(attributes, dict) and attributes.get("queue.type") == QueueType.BATCH.value:
            yield topic.encode()


def _job_offset(root: Path, findings: Findings) -> int | None:
    """Return how far a Spark job has dispatched, None if the store does that itself.

    A job that did not work for the last opening has no say: the next start dispatches all of the log.
    """
    handover = Handover(root)
    try:
        terms, done = handover.settings(), handover.dispatched_offset()
    except StateFileError as error:
        findings.add(Kind.STATE, error.path, 0, error.what, advice=error.next_step)
        return None
    if terms is None or done is None or done.epoch != terms.epoch:
        return None
    return done.log_offset


def _lag_from(facts: StoreFacts) -> tuple[int, int]:
    """Return from which record on queues and index may lag behind.

    A Spark job dispatches in its own time, also for a store that is closed. Else it is a writer who is
    running, or who died.
    """
    if facts.job_offset is not None:
        return facts.job_offset, facts.job_offset
    if not facts.abort and not facts.live:
        return NEVER, NEVER
    extension = facts.checkpoint.extension if facts.checkpoint is not None else None
    if extension is not None:
        return extension.dispatched_offset, extension.dispatched_offset
    end = _queues_end(facts.layout)
    headers = [read_header(path) for path in list_index_files(facts.layout)]
    ends = [header.end_log_offset for header in headers if header is not None]
    return end, min(end, max(ends, default=0))


def _queues_end(layout: StoreLayout) -> int:
    """Return where the newest record ends that a unit points to: so far a Java broker dispatched."""
    end = 0
    for queue in layout.list_queues(QueueKind.SIMPLE, on_problem=lambda problem: None):
        directory = layout.queue_directory(QueueKind.SIMPLE, queue.topic, queue.queue_id)
        for file in reversed(list_segments(directory, on_problem=lambda problem: None)):
            last = last_unit_end(file.path, file.length)
            if last is not None:
                end = max(end, last)
                break
    return end


def last_unit_end(path: Path, length: int, kind: QueueKind = QueueKind.SIMPLE) -> int | None:
    """Return where the record of a queue file's last unit ends; None if the file has no unit."""
    last = None
    if kind is QueueKind.BATCH:
        data = path.read_bytes()
        whole = len(data) // batch_unit.UNIT_BYTES
        parts = iter([(0, np.frombuffer(data, batch_unit.UNIT_DTYPE, whole))])
    else:
        parts = stored_units(str(path), 0, length)
    for _, units in parts:
        real = np.flatnonzero((units["size"] > 0) & (units["size"] != PADDING_SIZE))
        if len(real):
            unit = units[real[-1]]
            last = int(unit["log_offset"]) + int(unit["size"])
    return last
