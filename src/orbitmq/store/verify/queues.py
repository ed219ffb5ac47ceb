"""What is known of queues (`QueueRow`), and the comparison of whole queues with it (`QueueComparison`).

Where records are read their units are gathered per queue and compared with the files many at a time
(`LogPart`). What is the same goes on as (first queue offset, count) only; what differs goes on as units.
Who gets all rows of a queue in log order can tell whether its queue offsets follow one another, and judge
what differs.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import QueueFiles
from orbitmq.files.positioned import FileCache
from orbitmq.format import batch_unit
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.message import LMQ_PREFIX
from orbitmq.store.recovery.queue_counts import Queue
from orbitmq.store.verify.batch_units import BatchComparison
from orbitmq.store.verify.expected_units import QueueOrder
from orbitmq.store.verify.facts import StoreFacts
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.stored_units import QueueName, open_units
from orbitmq.store.verify.units import UnitComparison, check_stray_units

FILES_FIRST: Final = -1

QueueOrderKey = tuple[str, bytes, int, int]
"""Kind, topic, queue id, log offset: rows sorted by it come queue by queue, each in log order."""


class QueueRow(NamedTuple):
    """Something to know of a queue, at one place of the log.

    `units` None: `unit_count` units from queue offset `first` on are as they should be, or (`skipped`)
    are not to be looked at. `files`: what lies on disk, at log offset FILES_FIRST.
    """

    kind: str  # QueueKind
    topic: bytes
    queue_id: int
    log_offset: int
    first: int = 0
    unit_count: int = 0
    units: bytes | None = None
    skipped: bool = False
    files: QueueFiles | None = None

    @property
    def queue(self) -> tuple[str, bytes, int]:
        return self.kind, self.topic, self.queue_id

    @property
    def order(self) -> QueueOrderKey:
        return self.kind, self.topic, self.queue_id, self.log_offset

    def pieces(self, units_max: int) -> Iterator["QueueRow"]:
        """Yield the same in rows of so many units at most."""
        if self.units is None or self.unit_count <= units_max:
            yield self
            return
        width = len(self.units) // self.unit_count
        for at in range(0, self.unit_count, units_max):
            part = self.units[at * width : (at + units_max) * width]
            yield self._replace(
                log_offset=int.from_bytes(part[:8], "big"),
                first=self.first + at,
                unit_count=len(part) // width,
                units=part,
            )


def file_rows(facts: StoreFacts, findings: Findings) -> Iterator[QueueRow]:
    """Yield a row for every queue on disk that is looked at."""
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in facts.layout.list_queues(kind, on_problem=findings.add_problem):
            # Those of light messages only if the broker makes them.
            if kind is QueueKind.BATCH or facts.light_queues or not _is_light(queue):
                topic = queue.topic.encode()
                yield QueueRow(kind, topic, queue.queue_id, FILES_FIRST, files=queue)


def _is_light(queue: QueueFiles) -> bool:
    return queue.topic.startswith(LMQ_PREFIX)


class QueueComparison:
    """Compares queues with what all rows say of them, each queue's in log order. Not thread-safe."""

    def __init__(self, facts: StoreFacts, kernels: Kernels, files: FileCache) -> None:
        self.findings = Findings()
        self._facts = facts
        stored = open_units(facts.layout, files, kernels)
        self._units = UnitComparison(stored, self.findings, lag_from=facts.queues_from)
        self._orders: defaultdict[Queue, QueueOrder] = defaultdict(QueueOrder)
        self._files: dict[Queue, QueueFiles] = {}
        self._batches: dict[Queue, BatchComparison] = {}

    def take(self, row: QueueRow) -> None:
        """Take the next row of a queue."""
        queue = row.topic, row.queue_id
        if row.kind == QueueKind.BATCH:
            self._take_batch(queue, row)
        elif row.files is not None:
            self._files[queue] = row.files
        elif row.skipped:
            self._orders[queue].skip(row.first, row.unit_count)
        else:
            self._take_simple(queue, row)

    def _take_simple(self, queue: Queue, row: QueueRow) -> None:
        repeated, odd = self._orders[queue].take(row.first, row.unit_count)
        if odd is not None:
            self._note_order(queue_name(queue), row.log_offset, odd)
        if row.units is not None and repeated < row.unit_count:
            units = row.units[repeated * UNIT_BYTES :]
            self._units.compare(queue_name(queue), row.first + repeated, units)

    def _take_batch(self, queue: Queue, row: QueueRow) -> None:
        comparison = self._batches.get(queue)
        if comparison is None:
            layout, name = self._facts.layout, queue_name(queue)
            comparison = BatchComparison(layout, name, self.findings, log_min=self._facts.log_min)
            self._batches[queue] = comparison
        if row.units is not None:
            units = np.frombuffer(row.units, batch_unit.UNIT_DTYPE)
            comparison.add(units, lag_from=self._facts.queues_from)

    def finish(self, log_end: int) -> None:
        """Report the rest of all queues, and forget them; units from `log_end` on are a writer's."""
        self._units.finish()
        for queue, files in self._files.items():
            check_stray_units(
                self._facts.layout,
                files,
                self._orders.get(queue),
                self.findings,
                log_min=self._facts.log_min,
                log_end=log_end,
            )
        for comparison in self._batches.values():
            comparison.finish(log_end)
        for table in (self._orders, self._files, self._batches):
            table.clear()

    def _note_order(self, queue: QueueName, log_offset: int, odd: str) -> None:
        layout = self._facts.layout
        position = log_offset % layout.segment_bytes
        path = layout.segment_path(log_offset - position)
        cause = f"{queue[0]}/{queue[1]}: {odd}"
        self.findings.note(Kind.QUEUE_OFFSET, path, position, cause, log_offset)


def queue_name(queue: Queue) -> QueueName:
    """Return topic and queue id as findings and paths spell them."""
    topic, queue_id = queue
    return topic.decode("utf-8", "replace"), queue_id
