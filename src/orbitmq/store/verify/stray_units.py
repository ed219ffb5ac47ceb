"""Look at the units of a queue that no record stands behind: every unit has its record."""

from collections.abc import Iterator

import numpy as np

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem, QueueFiles, list_segments
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_BYTES
from orbitmq.store.recovery.queue_units import stored_units
from orbitmq.store.verify.expected_units import QueueOrder
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.unit_compare import Units, stretches


class StrayUnits:
    """Reports units before a queue's first record that do not point before the log, and any behind the last.

    Units that point to `log_end` or behind it are passed over: a writer added them meanwhile.
    """

    def __init__(
        self, layout: StoreLayout, findings: Findings, *, log_min: int, log_end: int
    ) -> None:
        self._layout = layout
        self._findings = findings
        self._log_min = log_min
        self._log_end = log_end

    def check(self, queue: QueueFiles, order: QueueOrder | None, on_problem: OnProblem) -> None:
        """Look through one queue's files; `order` is None if no record is in the queue."""
        directory = self._layout.queue_directory(QueueKind.SIMPLE, queue.topic, queue.queue_id)
        list_segments(directory, self._layout.cq_file_bytes, on_problem=on_problem)
        if not queue.file_count:
            return
        low = queue.first_base // UNIT_BYTES
        high = (queue.last_base + self._layout.cq_file_bytes) // UNIT_BYTES
        if order is None or order.first is None:  # all units must be those of expired records
            self._expired(queue, low, high)
            return
        self._expired(queue, low, order.first)
        self._expired(queue, order.next, high, what="has no record; the queue ends before it")

    def _expired(self, queue: QueueFiles, low: int, high: int, *, what: str | None = None) -> None:
        """Report units from `low` to `high` that do not point before the log; `what`: any unit."""
        for path, position, first, units in self._stored(queue, low, high):
            live = (units["size"] != 0) & (units["log_offset"] < self._log_end)
            if what is None:
                live &= (units["size"] != PADDING_SIZE) & (units["log_offset"] >= self._log_min)
            bad = np.flatnonzero(live).tolist()
            for start, end in stretches(bad, np.zeros(len(units), dtype=bool)):
                log_offset = int(units["log_offset"][start])
                text = what or f"points at log offset {log_offset}, where no such message is"
                name = f"{queue.topic}/{queue.queue_id}: unit {first + start}"
                self._findings.add(
                    Kind.QUEUE,
                    path,
                    position + start * UNIT_BYTES,
                    f"{name} ({end - start} in all) {text}",
                    log_offset=log_offset,
                )

    def _stored(
        self, queue: QueueFiles, low: int, high: int
    ) -> Iterator[tuple[str, int, int, Units]]:
        file_units = self._layout.cq_file_bytes // UNIT_BYTES
        at = low
        while at < high:
            base = at // file_units * file_units * UNIT_BYTES
            path = str(self._layout.queue_file(QueueKind.SIMPLE, queue.topic, queue.queue_id, base))
            end = min(high, base // UNIT_BYTES + file_units)
            position = at * UNIT_BYTES - base
            for start, units in stored_units(path, position, end * UNIT_BYTES - base):
                yield path, start, (base + start) // UNIT_BYTES, units
            at = end
