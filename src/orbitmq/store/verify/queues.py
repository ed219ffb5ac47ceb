"""Compare queue files with the log, both ways: every record has its unit, every unit its record.

Units are gathered per queue and compared many at a time, so that a store of 80 000 queues is not read
one unit at a time. Memory is bounded by PENDING_BYTES and the number of queues.
"""

from collections import defaultdict
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_unit import UNIT, UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.message import LMQ_PREFIX
from orbitmq.store.dispatch import Chunk
from orbitmq.store.verify.expected_units import ExpectedUnits, QueueOrder, UnitRun
from orbitmq.store.verify.findings import LOOK_STEP, Findings, Kind, Severity
from orbitmq.store.verify.stray_units import StrayUnits
from orbitmq.store.verify.unit_compare import QueueName, UnitComparison
from orbitmq.units import MiB

PENDING_BYTES: Final = 64 * MiB


class SimpleQueueCheck:
    """The simple queues of one store. `add` every chunk of the log in order, then `finish`.

    Units of records from `lag_from` on may be missing: they had not been dispatched yet.
    """

    def __init__(
        self,
        layout: StoreLayout,
        files: FileCache,
        kernels: Kernels,
        findings: Findings,
        *,
        lag_from: int,
        light_queues: bool,
    ) -> None:
        self._layout = layout
        self._findings = findings
        self._light_queues = light_queues
        self._expected = ExpectedUnits(kernels, light_queues=light_queues)
        self._orders: defaultdict[int, QueueOrder] = defaultdict(QueueOrder)
        self._pending: dict[int, tuple[int, bytearray]] = {}
        self._pending_bytes = 0
        self._comparison = UnitComparison(layout, files, kernels, lag_from=lag_from)

    @property
    def lagging(self) -> int:
        return self._comparison.lagging

    def add(self, chunk: Chunk, simple: npt.NDArray[np.bool_]) -> None:
        """Expect a unit for each of the chunk's rows that `simple` marks."""
        rows = chunk.rows if simple.all() else chunk.rows[simple]
        for run in self._expected.runs(chunk.buffer, rows):
            self._expect(run)
        if self._pending_bytes > PENDING_BYTES:
            self._compare_all()

    def skip(self, chunk: Chunk) -> None:
        """Pass over records whose units are not to be looked at."""
        for run in self._expected.runs(chunk.buffer, chunk.rows):
            self._orders[run.number].skip(run.first, len(run.units) // UNIT_BYTES)

    def _expect(self, run: UnitRun) -> None:
        order = self._orders[run.number]
        repeated, odd = order.take(run.first, len(run.units) // UNIT_BYTES)
        if odd is not None:
            log_offset = UNIT.unpack_from(run.units)[0]
            name = self._name(run.number)
            note_queue_offset(self._layout, name, log_offset, odd, self._findings)
        units = run.units[repeated * UNIT_BYTES :]
        if units:
            self._hold(run.number, run.first + repeated, units)

    def _hold(self, number: int, first: int, data: bytes) -> None:
        held = self._pending.get(number)
        if held is not None and held[0] + len(held[1]) // UNIT_BYTES != first:
            self._compare(number, *held)
            self._pending_bytes -= len(held[1])
            held = None
        if held is None:
            held = self._pending[number] = (first, bytearray())
        held[1].extend(data)
        self._pending_bytes += len(data)

    def _name(self, number: int) -> QueueName:
        return queue_name(self._expected.names[number])

    def _compare_all(self) -> None:
        for number, (first, data) in self._pending.items():
            self._compare(number, first, data)
        self._pending = {}
        self._pending_bytes = 0

    def _compare(self, number: int, first: int, data: bytearray) -> None:
        self._comparison.compare(self._name(number), first, bytes(data), self._findings)

    def finish(self, on_problem: OnProblem, *, log_min: int, log_end: int) -> None:
        """Compare the rest, then look at everything in the files that no record stands behind."""
        self._compare_all()
        self._comparison.finish(self._findings)
        stray = StrayUnits(self._layout, self._findings, log_min=log_min, log_end=log_end)
        for queue in self._layout.list_queues(QueueKind.SIMPLE, on_problem=on_problem):
            if is_looked_at(queue.topic, light_queues=self._light_queues):
                number = self._expected.find(queue.topic, queue.queue_id)
                stray.check(queue, self._orders.get(number), on_problem)


def is_looked_at(topic: str, *, light_queues: bool) -> bool:
    """Tell whether a queue on disk is checked: those of light messages only if the broker makes them."""
    return light_queues or not topic.startswith(LMQ_PREFIX)


def queue_name(queue: tuple[bytes, int]) -> QueueName:
    """Return topic and queue id as findings and paths spell them."""
    topic, queue_id = queue
    return topic.decode("utf-8", "replace"), queue_id


def note_queue_offset(
    layout: StoreLayout, queue: QueueName, log_offset: int, odd: str, findings: Findings
) -> None:
    """Report that the queue offset of this record does not follow the one before it."""
    path, position = _segment_place(layout, log_offset)
    findings.add(
        Kind.QUEUE_OFFSET,
        path,
        position,
        f"{queue[0]}/{queue[1]}: {odd}",
        advice=LOOK_STEP,
        log_offset=log_offset,
        severity=Severity.NOTE,
    )


def _segment_place(layout: StoreLayout, log_offset: int) -> tuple[Path, int]:
    position = log_offset % layout.segment_bytes
    return layout.segment_path(log_offset - position), position
