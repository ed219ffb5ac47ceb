"""The end of a log: its last records, checked as recovery would, and what queues and index lack of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from orbitmq.format.columns import Mark, Rows
from orbitmq.format.kernels import Kernels, compiled, plain
from orbitmq.log_read import Chunk, Segment, find_record
from orbitmq.store.offline.reader import OfflineStore
from orbitmq.store.recovery.plan import Repair, WalkOptions
from orbitmq.store.recovery.walk import WalkResult, walk
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.log import LogCheck
from orbitmq.units import MiB

TAIL_BYTES: Final = 64 * MiB
_PLAIN_BYTES: Final = 2 * MiB


@dataclass(slots=True)
class Missing:
    """Records of the tail that something does not have."""

    records: int = 0
    first_offset: int = 0
    first_ms: int = 0

    def add(self, rows: Rows) -> None:
        if not self.records and len(rows):
            self.first_offset, self.first_ms = int(rows["log_offset"][0]), int(rows["store_ms"][0])
        self.records += len(rows)


@dataclass(slots=True)
class LogTail:
    """What the last records tell. Records younger than `settled_ms` may still be on their way."""

    queues: Mapping[tuple[str, int], int]  # (topic, queue id) -> next offset by the queue files
    queues_from: int  # before this log offset all records are in queues
    index_end: int  # the last record that an index file leads to
    settled_ms: int
    start: int = 0
    end: int = 0
    last_ms: int = 0
    next_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    undispatched: Missing = field(default_factory=Missing)
    unindexed: Missing = field(default_factory=Missing)

    def take(self, chunk: Chunk) -> None:
        """Take the next good records."""
        rows = chunk.rows[chunk.rows["marks"] & Mark.FILLER == 0]
        if not len(rows):
            return
        self.last_ms = max(self.last_ms, int(rows["store_ms"].max()))
        settled = rows["store_ms"] <= self.settled_ms
        keyed = (rows["key_count"] > 0) & (rows["log_offset"] > self.index_end)
        self.unindexed.add(rows[keyed & settled])
        late = (rows["log_offset"] >= self.queues_from) & (rows["marks"] & Mark.NO_UNIT == 0)
        missing = np.zeros(len(rows), dtype=np.bool_)
        for index in np.flatnonzero(late).tolist():
            row = rows[index]
            missing[index] = self._note_offset(_topic(chunk, row), row)
        self.undispatched.add(rows[missing & settled])

    def _note_offset(self, topic: str, row: np.void) -> bool:
        """Remember how far a queue goes by the log; True: its files do not have this record."""
        place = topic, int(row["queue_id"])
        end = int(row["queue_offset"]) + int(row["batch_count"])
        self.next_offsets[place] = max(end, self.next_offsets.get(place, 0))
        return end > self.queues.get(place, 0)


def read_tail(store: OfflineStore, facts: StoreFacts, tail: LogTail, findings: Findings) -> None:
    """Walk over the last records, and note what is wrong with them."""
    check = LogCheck(findings, live=facts.live)
    check.files(store.log)
    segment = _last_written(store)
    tail.start = tail.end = store.log.min_offset
    if segment is None:
        return
    written = segment.written_end()
    kernels = plain() if written < _PLAIN_BYTES else compiled()
    tail.start = _tail_start(segment, written, kernels)
    options = WalkOptions(kernels=kernels, scan=facts.scan, whole_from=facts.whole_from)
    result = WalkResult(tail.start)
    for item in walk(store.log, tail.start, options, result):
        if isinstance(item, Repair):
            check.repair(item)
        else:
            tail.take(item)
    tail.end = result.end_offset


def _last_written(store: OfflineStore) -> Segment | None:
    for segment in reversed(store.log.segments):
        if not segment.missing and segment.written_end() > 0:
            return segment
    return None


def _tail_start(segment: Segment, written: int, kernels: Kernels) -> int:
    if written <= TAIL_BYTES:
        return segment.base_offset
    end = segment.base_offset + written
    found = find_record(segment, end - TAIL_BYTES, end, kernels)
    return segment.base_offset if found is None else found


def _topic(chunk: Chunk, row: np.void) -> str:
    at, length = int(row["topic_at"]), int(row["topic_length"])
    return bytes(chunk.buffer[at : at + length]).decode("utf-8", "replace")
