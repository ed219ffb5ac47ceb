"""The snapshot of queues and index: taken in a moment, written to its file, read at the next start."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.files.replace import read_whole, replace_file
from orbitmq.format.snapshot import (
    NO_EXT,
    QUEUE_ROW,
    IndexState,
    QueueKind,
    QueueState,
    Snapshot,
    decode,
    encode_rows,
)
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.consume_queue import QueueCapture
from orbitmq.store.queues.names import QueueNames

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StoreCapture:
    """Queues and index at one dispatched offset, not yet encoded."""

    dispatched_offset: int
    dispatched_ms: int
    queues: QueueCapture
    ext_ends: dict[int, int]
    batch_queues: Sequence[QueueState]
    index_files: Sequence[IndexState]


def capture(dispatcher: Dispatcher, dispatched_offset: int) -> StoreCapture:
    """Copy the state. Hold the dispatcher's lock, so that nothing is dispatched meanwhile."""
    ext = dispatcher.ext
    return StoreCapture(
        dispatched_offset,
        dispatcher.dispatched_ms,
        dispatcher.queues.capture(),
        ext.ends() if ext is not None else {},
        dispatcher.batch_queues.states(),
        dispatcher.index.states(),
    )


def encode_capture(captured: StoreCapture, names: QueueNames, generation: int) -> bytes:
    """Return the snapshot file's bytes."""
    simple = captured.queues
    rows = np.zeros(len(simple.numbers) + len(captured.batch_queues), dtype=QUEUE_ROW)
    topics: dict[str, int] = {}
    numbers = simple.numbers.tolist()
    named = [names.name(number) for number in numbers]
    part = rows[: len(numbers)]
    part["topic_no"] = [topics.setdefault(topic, len(topics)) for topic, _ in named]
    part["queue_id"] = [queue_id for _, queue_id in named]
    part["kind"] = QueueKind.SIMPLE
    part["min_offset"], part["next_offset"] = simple.min, simple.next
    part["end_log_offset"] = simple.end_log
    part["ext_end"] = [captured.ext_ends.get(number, NO_EXT) for number in numbers]
    for row, state in zip(rows[len(numbers) :], captured.batch_queues, strict=True):
        topic_no = topics.setdefault(state.topic, len(topics))
        row["topic_no"], row["kind"] = topic_no, state.kind
        for name in QueueState._fields[2:]:
            row[name] = getattr(state, name)
    return encode_rows(
        generation, captured.dispatched_offset, rows, list(topics), captured.index_files
    )


class SnapshotFile:
    """The file `orbitmq.snapshot`. One thread at a time writes."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self.path = path
        self._disk = disk

    def load(self) -> Snapshot | None:
        """Return the snapshot, None if there is none that can be read."""
        data = read_whole(self._disk, self.path)
        if data is None:
            return None
        try:
            return decode(data)
        except FormatError as error:
            log.warning("%s: %s; the store is read from its log", self.path, error)
            return None

    def save(self, data: bytes) -> None:
        """Put a new snapshot in place of the old one, durable when this returns."""
        replace_file(self._disk, self.path, data)
