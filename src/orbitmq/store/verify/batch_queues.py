"""Compare batch queue files with the log: one 46-byte unit per record, in log order."""

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem
from orbitmq.format.columns import Mark
from orbitmq.format.kernels import Kernels
from orbitmq.store.dispatch import Chunk
from orbitmq.store.recovery.queue_counts import Queue, resolve_all
from orbitmq.store.verify.batch_compare import BatchComparison, Units, batch_units
from orbitmq.store.verify.findings import Findings
from orbitmq.store.verify.queues import queue_name
from orbitmq.store.verify.unit_compare import QueueName


class BatchQueueCheck:
    """The batch queues of one store. `add` every chunk of the log in order, then `finish`.

    There are few of them: the units of the whole log are gathered first.
    """

    def __init__(self, layout: StoreLayout, kernels: Kernels, findings: Findings) -> None:
        self.lagging = 0
        self._layout = layout
        self._findings = findings
        self._table = kernels.queue_table()
        self._names: list[Queue] = []
        self._units: dict[int, list[Units]] = {}

    def add(self, chunk: Chunk, batch: npt.NDArray[np.bool_]) -> None:
        """Expect a unit for each of the chunk's rows that `batch` marks."""
        if not batch.any():
            return
        rows = chunk.rows[batch & (chunk.rows["marks"] & Mark.NO_UNIT == 0)]
        numbers = resolve_all(self._table, self._names, chunk.buffer, rows)
        units = batch_units(rows)
        for number in np.unique(numbers).tolist():
            self._units.setdefault(number, []).append(units[numbers == number])

    def finish(self, on_problem: OnProblem, *, log_min: int, log_end: int, lag_from: int) -> None:
        """Compare everything; units from `lag_from` on may be missing, those from `log_end` on too many."""
        queues: dict[QueueName, list[Units]] = {
            (queue.topic, queue.queue_id): []
            for queue in self._layout.list_queues(QueueKind.BATCH, on_problem=on_problem)
        }
        for number, name in enumerate(self._names):
            queues[queue_name(name)] = self._units[number]
        for queue, parts in queues.items():
            comparison = BatchComparison(self._layout, queue, on_problem, log_min=log_min)
            for units in parts:
                comparison.add(units, lag_from=lag_from)
            comparison.finish(self._findings, log_end=log_end)
            self.lagging += comparison.lagging
