"""The queues of a store directory as their files show them: first and next offset, end in the log."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from orbitmq.errors import WrongFileError
from orbitmq.files.layout import QueueKind
from orbitmq.format import batch_unit, cq_unit
from orbitmq.store.offline.reader import OfflineStore
from orbitmq.store.offline.stat import UnitFiles


@dataclass(slots=True, kw_only=True)
class QueueFacts:
    """One queue. `max_offset` grows when the log has records that no unit leads to yet."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int
    end_log_offset: int  # where the record of its last unit ends
    units: UnitFiles = field(repr=False)
    kind: QueueKind = QueueKind.SIMPLE

    @property
    def messages(self) -> int:
        return self.max_offset - self.min_offset

    def offset_at(self, log_offset: int) -> int:
        """Return the queue offset of the first message that lies at this log offset or behind it."""
        units = self.units
        number = bisect_left(
            range(units.start, units.end),
            log_offset,
            key=lambda at: cq_unit.decode_unit(units.unit(at)).log_offset,
        )
        return units.start + number

    def stored_bytes(self, store: OfflineStore, start: int, end: int) -> int:
        """Return how many bytes of log the messages from `start` up to `end` have."""
        file_units = store.layout.cq_file_bytes // cq_unit.UNIT_BYTES
        total = 0
        while start < end:
            file, inside = divmod(start, file_units)
            count = min(end - start, file_units - inside)
            base = file * store.layout.cq_file_bytes
            path = store.layout.queue_file(self.kind, self.topic, self.queue_id, base)
            unit = cq_unit.UNIT_BYTES
            raw = store.read_file(path, inside * unit, count * unit)
            whole = np.frombuffer(raw, cq_unit.UNIT_DTYPE, len(raw) // unit)
            total += int(whole["size"].clip(min=0).sum())
            start += count
        return total


def iter_queues(store: OfflineStore) -> Iterator[QueueFacts]:
    """Yield all queues that have files; what is wrong with the others a check tells."""
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in store.layout.list_queues(kind, on_problem=lambda problem: None):
            if not queue.file_count:
                continue
            try:
                units = UnitFiles(store, kind, queue)
            except WrongFileError:
                continue
            facts = _simple if kind is QueueKind.SIMPLE else _batch
            yield facts(store, units, queue.topic, queue.queue_id)


def _simple(store: OfflineStore, units: UnitFiles, topic: str, queue_id: int) -> QueueFacts:
    end_log = 0
    if units.end > units.start:
        last = cq_unit.decode_unit(units.unit(units.end - 1))
        end_log = 0 if last.is_padding else last.log_offset + last.size
    return QueueFacts(
        topic=topic,
        queue_id=queue_id,
        min_offset=units.first_live(store.log.min_offset),
        max_offset=units.end,
        end_log_offset=end_log,
        units=units,
    )


def _batch(store: OfflineStore, units: UnitFiles, topic: str, queue_id: int) -> QueueFacts:
    first, start, end, end_log = units.first_live(store.log.min_offset), 0, 0, 0
    if units.end > units.start:
        last = batch_unit.decode_unit(units.unit(units.end - 1))
        end, end_log = last.end_offset, last.log_offset + last.size
        start = batch_unit.decode_unit(units.unit(first)).base_offset if first < units.end else end
    return QueueFacts(
        topic=topic,
        queue_id=queue_id,
        min_offset=start,
        max_offset=end,
        end_log_offset=end_log,
        units=units,
        kind=QueueKind.BATCH,
    )
