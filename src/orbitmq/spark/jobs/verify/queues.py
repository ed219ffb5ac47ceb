"""Queues of a verification: what each stretch of the log says of them, and the comparison per queue.

Where a stretch is read its units are compared with the queue files at once; what is the same goes on as
(first queue offset, count) only, and only what differs travels as units. Whoever gets all rows of a queue
in log order can tell whether its queue offsets follow one another, and judge the units that differ.
"""

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import WrongFileError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind
from orbitmq.files.listing import QueueFiles
from orbitmq.files.positioned import FileCache
from orbitmq.format import batch_unit
from orbitmq.format.columns import Mark
from orbitmq.format.cq_unit import UNIT, UNIT_BYTES
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.spark.jobs.verify.context import VerifyContext
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.queue_counts import Queue, resolve_all
from orbitmq.store.verify.basis import report_problem
from orbitmq.store.verify.batch_compare import BatchComparison, batch_units
from orbitmq.store.verify.expected_units import ExpectedUnits, QueueOrder
from orbitmq.store.verify.facts import BatchRows
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.queues import is_looked_at, note_queue_offset, queue_name
from orbitmq.store.verify.stray_units import StrayUnits
from orbitmq.store.verify.unit_compare import UnitComparison
from orbitmq.units import MiB

PENDING_BYTES: Final = 16 * MiB
ROW_UNITS_MAX: Final = 200
"""Units of one row. Spark sorts rows by the ten thousand, so a row must be small."""

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


def partition_of(order: QueueOrderKey) -> int:
    """Return a number that is the same for all rows of a queue, in every process."""
    return zlib.crc32(order[1]) + order[2]


class QueueRows:
    """Makes the rows of the records of one part of the log. Not thread-safe."""

    def __init__(self, context: VerifyContext, kernels: Kernels, files: FileCache) -> None:
        self._expected = ExpectedUnits(kernels, light_queues=context.light_queues)
        self._batches = BatchRows(kernels, set(context.batch_topics))
        self._batch_table = kernels.queue_table()
        self._batch_names: list[Queue] = []
        self._comparison = UnitComparison(
            context.layout, files, kernels, lag_from=context.queues_from
        )
        self._pending: dict[int, tuple[int, bytearray]] = {}
        self._pending_bytes = 0

    def add(self, chunk: Chunk) -> Iterator[QueueRow]:
        """Take the next records; yield rows that are ready."""
        is_batch = self._batches.of(chunk)
        yield from self._batch_rows(chunk, is_batch)
        simple = chunk.rows[~is_batch] if is_batch.any() else chunk.rows
        for run in self._expected.runs(chunk.buffer, simple):
            held = self._pending.get(run.number)
            if held is not None and held[0] + len(held[1]) // UNIT_BYTES != run.first:
                yield from self._rows_of(run.number)
                held = None
            if held is None:
                held = self._pending[run.number] = (run.first, bytearray())
            held[1].extend(run.units)
            self._pending_bytes += len(run.units)
        if self._pending_bytes > PENDING_BYTES:
            yield from self.finish()

    def finish(self) -> Iterator[QueueRow]:
        """Yield all rows that are left."""
        for number in list(self._pending):
            yield from self._rows_of(number)

    def _rows_of(self, number: int) -> Iterator[QueueRow]:
        first, data = self._pending.pop(number)
        self._pending_bytes -= len(data)
        topic, queue_id = self._expected.names[number]
        row = QueueRow(QueueKind.SIMPLE, topic, queue_id, UNIT.unpack_from(data)[0], first)
        if self._comparison.is_same(queue_name((topic, queue_id)), first, bytes(data)):
            yield row._replace(unit_count=len(data) // UNIT_BYTES)
            return
        step = ROW_UNITS_MAX * UNIT_BYTES
        for at in range(0, len(data), step):
            units = bytes(data[at : at + step])
            yield row._replace(
                log_offset=UNIT.unpack_from(units)[0],
                first=first + at // UNIT_BYTES,
                unit_count=len(units) // UNIT_BYTES,
                units=units,
            )

    def _batch_rows(self, chunk: Chunk, is_batch: npt.NDArray[np.bool_]) -> Iterator[QueueRow]:
        rows = chunk.rows[is_batch & (chunk.rows["marks"] & Mark.NO_UNIT == 0)]
        if not len(rows):
            return
        numbers = resolve_all(self._batch_table, self._batch_names, chunk.buffer, rows)
        units = batch_units(rows)
        for number in np.unique(numbers).tolist():
            mine = units[numbers == number]
            for at in range(0, len(mine), ROW_UNITS_MAX):
                part = mine[at : at + ROW_UNITS_MAX]
                topic, queue_id = self._batch_names[number]
                yield QueueRow(
                    QueueKind.BATCH,
                    topic,
                    queue_id,
                    int(part["log_offset"][0]),
                    unit_count=len(part),
                    units=part.tobytes(),
                )


def skipped_rows(chunk: Chunk, context: VerifyContext, kernels: Kernels) -> Iterator[QueueRow]:
    """Yield rows for records whose units are not to be looked at."""
    expected = ExpectedUnits(kernels, light_queues=context.light_queues)
    for run in expected.runs(chunk.buffer, chunk.rows):
        topic, queue_id = expected.names[run.number]
        offset, count = UNIT.unpack_from(run.units)[0], len(run.units) // UNIT_BYTES
        yield QueueRow(QueueKind.SIMPLE, topic, queue_id, offset, run.first, count, skipped=True)


def file_rows(context: VerifyContext, findings: Findings) -> Iterator[QueueRow]:
    """Yield a row for every queue on disk."""
    for kind in (QueueKind.SIMPLE, QueueKind.BATCH):
        for queue in context.layout.list_queues(
            kind, on_problem=lambda problem: report_problem(problem, findings)
        ):
            topic = queue.topic.encode()
            yield QueueRow(kind, topic, queue.queue_id, FILES_FIRST, files=queue)


@dataclass(slots=True)
class QueueResult:
    """What the comparison of some queues gave."""

    findings: Findings = field(default_factory=Findings)
    lagging: int = 0

    def problem(self, problem: WrongFileError) -> None:
        report_problem(problem, self.findings)


def compare_queues(rows: Iterable[QueueRow], context: VerifyContext, log_end: int) -> QueueResult:
    """Compare whole queues; the rows come queue by queue, each in log order.

    Units that point to `log_end` or behind it are a writer's.
    """
    result = QueueResult()
    with FileCache(Disk(), writable=False) as files:
        units = UnitComparison(context.layout, files, compiled(), lag_from=context.queues_from)
        stray = StrayUnits(
            context.layout, result.findings, log_min=context.log_min, log_end=log_end
        )
        for (kind, topic, queue_id), queue in groupby(rows, key=attrgetter("queue")):
            if kind == QueueKind.BATCH:
                _compare_batch((topic, queue_id), queue, context, log_end, result)
            else:
                _compare_simple((topic, queue_id), queue, context, units, stray, result)
        result.lagging += units.lagging
    return result


def _compare_simple(
    queue: Queue,
    rows: Iterable[QueueRow],
    context: VerifyContext,
    units: UnitComparison,
    stray: StrayUnits,
    result: QueueResult,
) -> None:
    name, order, files = queue_name(queue), QueueOrder(), None
    for row in rows:
        if row.files is not None:
            files = row.files
        elif row.skipped:
            order.skip(row.first, row.unit_count)
        else:
            repeated, odd = order.take(row.first, row.unit_count)
            if odd is not None:
                note_queue_offset(context.layout, name, row.log_offset, odd, result.findings)
            if row.units is not None and repeated < row.unit_count:
                data = row.units[repeated * UNIT_BYTES :]
                units.compare(name, row.first + repeated, data, result.findings)
    units.finish(result.findings)
    if files is not None and is_looked_at(files.topic, light_queues=context.light_queues):
        stray.check(files, order, result.problem)


def _compare_batch(
    queue: Queue,
    rows: Iterable[QueueRow],
    context: VerifyContext,
    log_end: int,
    result: QueueResult,
) -> None:
    name, log_min = queue_name(queue), context.log_min
    comparison = BatchComparison(context.layout, name, result.problem, log_min=log_min)
    for row in rows:
        if row.units is not None:
            units = np.frombuffer(row.units, batch_unit.UNIT_DTYPE)
            comparison.add(units, lag_from=context.queues_from)
    comparison.finish(result.findings, log_end=log_end)
    result.lagging += comparison.lagging
