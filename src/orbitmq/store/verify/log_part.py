"""Compare records with the files that are made from them: a part of the log, chunk by chunk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.files.layout import QueueKind
from orbitmq.files.positioned import FileCache
from orbitmq.format import batch_unit
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk
from orbitmq.store.verify.expected_units import ExpectedUnits, UnitRun
from orbitmq.store.verify.facts import NO_END, StoreFacts
from orbitmq.store.verify.index import IndexComparison, IndexTally
from orbitmq.store.verify.log import RecordFacts, record_facts
from orbitmq.store.verify.queues import QueueRow, queue_name
from orbitmq.store.verify.stored_units import open_units
from orbitmq.units import MiB

PENDING_BYTES: Final = 64 * MiB


@dataclass(slots=True)
class PartTally:
    """What the records of a part of the log add up to, apart from their queues. Travels from tasks."""

    records: RecordFacts = field(default_factory=RecordFacts)
    index: IndexTally = field(default_factory=IndexTally)


class LogPart:
    """Takes good records in log order, between `start` and `end`; says what they tell of queues.

    Units are held until they are `pending_bytes`: a store of 80 000 queues is not read one by one.
    Not thread-safe.
    """

    def __init__(
        self,
        facts: StoreFacts,
        kernels: Kernels,
        files: FileCache,
        *,
        start: int = -NO_END,
        end: int = NO_END,
        pending_bytes: int = PENDING_BYTES,
    ) -> None:
        self._kernels = kernels
        self._has_queues, self._due_end = facts.has_queues, facts.due_end
        self._expected = ExpectedUnits(
            kernels, batch_topics=facts.batch_topics, light_queues=facts.light_queues
        )
        self._stored = open_units(facts.layout, files, kernels)
        self._pending: dict[int, tuple[int, bytearray]] = {}  # first queue offset, units
        self._pending_bytes = 0
        self._pending_max = pending_bytes
        self._index: IndexComparison | None = None
        if facts.index_files:
            index = facts.open_index(start, end)
            self._index = IndexComparison(
                index, lag_from=facts.index_from, kept_from=facts.index_kept_from
            )

    def add(self, chunk: Chunk, tally: PartTally) -> Iterator[QueueRow]:
        """Compare the next records; yield rows of queues that are ready."""
        rows = chunk.rows
        tally.records = tally.records.plus(record_facts(chunk, self._due_end))
        if self._index is not None:
            items = chunk.items
            if items is None:
                items = self._kernels.index_items(chunk.buffer, rows)
            start = int(rows["log_offset"][0])
            end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
            self._index.compare(items, start, end, tally.index)
        for run in self._runs(chunk):
            if run.kind is QueueKind.BATCH:
                count = len(run.units) // batch_unit.UNIT_BYTES
                yield self._row(run, unit_count=count, units=run.units)
            else:
                yield from self._hold(run)
        if self._pending_bytes > self._pending_max:
            yield from self.rest()

    def skip(self, chunk: Chunk) -> Iterator[QueueRow]:
        """Yield rows for records that the files need not know."""
        for run in self._runs(chunk):
            if run.kind is QueueKind.SIMPLE:
                yield from self._ready(run.number)
                yield self._row(run, unit_count=len(run.units) // UNIT_BYTES, skipped=True)

    def rest(self) -> Iterator[QueueRow]:
        """Yield the rows that are left."""
        for number in list(self._pending):
            yield from self._ready(number)

    def _runs(self, chunk: Chunk) -> Iterator[UnitRun]:
        return self._expected.runs(chunk) if self._has_queues else iter(())

    def _row(
        self, run: UnitRun, *, unit_count: int, units: bytes | None = None, skipped: bool = False
    ) -> QueueRow:
        queue = self._expected.names[run.number]
        return QueueRow(run.kind, *queue, run.log_offset, run.first, unit_count, units, skipped)

    def _hold(self, run: UnitRun) -> Iterator[QueueRow]:
        held = self._pending.get(run.number)
        if held is not None and held[0] + len(held[1]) // UNIT_BYTES != run.first:
            yield from self._ready(run.number)
            held = None
        if held is None:
            held = self._pending[run.number] = (run.first, bytearray())
        held[1].extend(run.units)
        self._pending_bytes += len(run.units)

    def _ready(self, number: int) -> Iterator[QueueRow]:
        held = self._pending.pop(number, None)
        if held is None:
            return
        self._pending_bytes -= len(held[1])
        run = UnitRun(QueueKind.SIMPLE, number, bytes(held[1]), held[0])
        name = queue_name(self._expected.names[number])
        same = self._stored.is_same(name, run.first, run.units)
        count = len(run.units) // UNIT_BYTES
        yield self._row(run, unit_count=count, units=None if same else run.units)
