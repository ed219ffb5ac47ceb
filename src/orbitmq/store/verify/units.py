"""Compare the units of simple queues with what the queue files hold, both ways.

Every record has its unit (`UnitComparison`), every unit its record (`check_stray_units`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import QueueFiles, list_segments
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_BYTES
from orbitmq.store.queues.unit_files import stored_units
from orbitmq.store.verify.expected_units import QueueOrder
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.stored_units import FilePart, Flags, QueueName, StoredUnits, Units


@dataclass(slots=True)
class _Wrong:
    """Wrong units of one kind that follow one another in a file: one finding."""

    path: str
    position: int
    first: int
    end: int
    is_empty: bool
    cause: str
    log_offset: int

    def goes_on_with(self, other: "_Wrong") -> bool:
        return (self.path, self.end, self.is_empty) == (other.path, other.first, other.is_empty)


class UnitComparison:
    """Compares the units of any queues, in pieces of any size, each queue's in rising order.

    Units of records from `lag_from` on may be missing: they had not been dispatched yet. How a queue
    was cut into pieces makes no difference. Not thread-safe.
    """

    def __init__(self, stored: StoredUnits, findings: Findings, *, lag_from: int) -> None:
        self._stored = stored
        self._findings = findings
        self._lag_from = lag_from
        self._wrong: dict[QueueName, _Wrong] = {}  # the last one of each queue
        self._missing_files: dict[str, tuple[int, int]] = {}  # path -> units, first log offset

    def compare(self, queue: QueueName, first: int, data: bytes) -> None:
        """Compare these units with the files; what is wrong is reported now or by `finish`."""
        for part in self._stored.compare(queue, first, data):
            offsets = part.new["log_offset"]
            late = part.differs & part.is_empty & (offsets >= self._lag_from)
            self._findings.lagging += int(late.sum())
            wrong = part.differs & ~late
            if part.has_file:
                self._note(queue, part, wrong)
            elif wrong.any():
                count, start = self._missing_files.get(part.path, (0, int(offsets[0])))
                self._missing_files[part.path] = count + int(wrong.sum()), start

    def finish(self) -> None:
        """Report the rest."""
        for queue, wrong in self._wrong.items():
            self._report(queue, wrong)
        for path, (count, log_offset) in self._missing_files.items():
            cause = f"queue file is missing; {count} message(s) have no unit"
            self._findings.add(Kind.QUEUE, path, 0, cause, log_offset=log_offset)
        self._wrong, self._missing_files = {}, {}

    def _note(self, queue: QueueName, part: FilePart, wrong: Flags) -> None:
        """Hold wrong units back: the next piece of the queue may go on with them."""
        empty = part.is_empty
        for start, end in _ranges(wrong, empty):
            found = _Wrong(
                part.path,
                part.position + start * UNIT_BYTES,
                part.first + start,
                part.first + end,
                bool(empty[start]),
                _unit_cause(part.was[start], part.new[start]),
                int(part.new["log_offset"][start]),
            )
            held = self._wrong.get(queue)
            if held is not None and held.goes_on_with(found):
                held.end = found.end
                continue
            if held is not None:
                self._report(queue, held)
            self._wrong[queue] = found

    def _report(self, queue: QueueName, found: _Wrong) -> None:
        name = f"unit {found.first}"
        if found.end - found.first > 1:
            name = f"units {found.first} to {found.end - 1}"
        cause = f"{queue[0]}/{queue[1]}: {name}: {found.cause}"
        place = found.path, found.position
        self._findings.add(Kind.QUEUE, *place, cause, log_offset=found.log_offset)


def _ranges(marked: Flags, kinds: Flags) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of marked units that follow one another and are of one kind."""
    numbers = np.flatnonzero(marked)
    if not len(numbers):
        return
    breaks = (np.diff(numbers) != 1) | (np.diff(kinds[numbers].astype(np.int8)) != 0)
    starts = np.concatenate(([0], np.flatnonzero(breaks) + 1))
    ends = np.concatenate((starts[1:], [len(numbers)])) - 1
    yield from zip(numbers[starts].tolist(), (numbers[ends] + 1).tolist(), strict=True)


def _unit_cause(was: np.void, new: np.void) -> str:
    if was["size"] == 0 and was["log_offset"] == 0:
        return f"missing, the message lies at log offset {new['log_offset']}"
    if was["size"] == PADDING_SIZE:
        return f"padding, but the message lies at log offset {new['log_offset']}"
    if was["log_offset"] != new["log_offset"]:
        return f"points at log offset {was['log_offset']}, the message lies at {new['log_offset']}"
    if was["size"] != new["size"]:
        return f"says {was['size']} bytes, the record has {new['size']}"
    return f"has tag hash {was['tag_hash']}, the record's is {new['tag_hash']}"


# --- every unit has its record ---


def check_stray_units(
    layout: StoreLayout,
    queue: QueueFiles,
    order: QueueOrder | None,
    findings: Findings,
    *,
    log_min: int,
    log_end: int,
) -> None:
    """Report units before a queue's first record that do not point before the log, and any behind the last.

    `order` is None if no record is in the queue. Units that point to `log_end` or behind it are passed
    over: a writer added them meanwhile.
    """
    directory = layout.queue_directory(QueueKind.SIMPLE, queue.topic, queue.queue_id)
    list_segments(directory, layout.cq_file_bytes, on_problem=findings.add_problem)
    if not queue.file_count:
        return
    low = queue.first_base // UNIT_BYTES
    high = (queue.last_base + layout.cq_file_bytes) // UNIT_BYTES
    first, following = high, high  # without a record all units must be those of expired ones
    if order is not None and order.first is not None:
        first, following = order.first, order.next
    for part in _stored(layout, queue, low, first):
        units = part.units
        live = (units["size"] != PADDING_SIZE) & (units["log_offset"] >= log_min)
        _report_stray(queue, part, live & _is_judged(units, log_end), None, findings)
    for part in _stored(layout, queue, following, high):
        cause = "has no record; the queue ends before it"
        _report_stray(queue, part, _is_judged(part.units, log_end), cause, findings)


class _StoredPart(NamedTuple):
    path: str
    position: int
    first: int  # queue offset of the first unit
    units: Units


def _stored(layout: StoreLayout, queue: QueueFiles, low: int, high: int) -> Iterator[_StoredPart]:
    file_units = layout.cq_file_bytes // UNIT_BYTES
    at = low
    while at < high:
        base = at // file_units * file_units * UNIT_BYTES
        path = str(layout.queue_file(QueueKind.SIMPLE, queue.topic, queue.queue_id, base))
        end = min(high, base // UNIT_BYTES + file_units)
        position = at * UNIT_BYTES - base
        for start, units in stored_units(path, position, end * UNIT_BYTES - base):
            yield _StoredPart(path, start, (base + start) // UNIT_BYTES, units)
        at = end


def _is_judged(units: Units, log_end: int) -> Flags:
    found: Flags = (units["size"] != 0) & (units["log_offset"] < log_end)
    return found


def _report_stray(
    queue: QueueFiles, part: _StoredPart, stray: Flags, cause: str | None, findings: Findings
) -> None:
    for start, end in _ranges(stray, stray):
        log_offset = int(part.units["log_offset"][start])
        text = cause or f"points at log offset {log_offset}, where no such message is"
        name = f"{queue.topic}/{queue.queue_id}: unit {part.first + start}"
        findings.add(
            Kind.QUEUE,
            part.path,
            part.position + start * UNIT_BYTES,
            f"{name} ({end - start} in all) {text}",
            log_offset=log_offset,
        )
