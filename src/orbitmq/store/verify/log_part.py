"""Compare records with the files that are made from them: a part of the log, chunk by chunk."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from orbitmq.files.positioned import FileCache
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import Chunk
from orbitmq.store.verify.facts import NO_END, StoreFacts
from orbitmq.store.verify.index import IndexComparison, IndexTally
from orbitmq.store.verify.log import RecordFacts, record_facts
from orbitmq.store.verify.queues import QueueRow, QueueRows
from orbitmq.units import MiB

PENDING_BYTES: Final = 64 * MiB


@dataclass(slots=True)
class PartTally:
    """What the records of a part of the log add up to, apart from their queues. Travels from tasks."""

    records: RecordFacts = field(default_factory=RecordFacts)
    index: IndexTally = field(default_factory=IndexTally)


class LogPart:
    """Takes good records in log order, between `start` and `end`; says what they tell of queues.

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
        self._queues = QueueRows(facts, kernels, files, pending_bytes=pending_bytes)
        self._has_queues = facts.has_queues
        self._index: IndexComparison | None = None
        if facts.index_files:
            index = facts.open_index(start, end)
            self._index = IndexComparison(index, lag_from=facts.index_from)

    def add(self, chunk: Chunk, tally: PartTally) -> Iterator[QueueRow]:
        """Compare the next records; yield rows of queues that are ready."""
        rows = chunk.rows
        tally.records = tally.records.plus(record_facts(chunk))
        if self._index is not None:
            items = chunk.items
            if items is None:
                items = self._kernels.index_items(chunk.buffer, rows)
            start = int(rows["log_offset"][0])
            end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
            self._index.compare(items, start, end, tally.index)
        if self._has_queues:
            yield from self._queues.add(chunk)

    def skip(self, chunk: Chunk) -> Iterator[QueueRow]:
        """Yield rows for records that the files need not know."""
        if self._has_queues:
            yield from self._queues.skip(chunk)

    def rest(self) -> Iterator[QueueRow]:
        """Yield the rows that are left."""
        return self._queues.rest()
