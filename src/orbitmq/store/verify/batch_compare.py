"""Compare one batch queue's files with the units that the log asks for, in log order."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem, SegmentFile, list_segments
from orbitmq.format.batch_unit import NOT_COMPACTED, UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.columns import Rows
from orbitmq.store.verify.findings import Findings, Kind
from orbitmq.store.verify.unit_compare import QueueName

Units = npt.NDArray[np.void]

_STEP_UNITS: Final = 64 * 1024


def batch_units(rows: Rows) -> Units:
    """Return the units of records of batch queues."""
    units = np.zeros(len(rows), UNIT_DTYPE)
    for name in ("log_offset", "size", "tag_hash", "store_ms"):
        units[name] = rows[name]
    units["base_offset"] = rows["queue_offset"]
    units["message_count"] = rows["batch_count"]
    units["compacted_offset"] = NOT_COMPACTED
    return units


class BatchComparison:
    """One batch queue. `add` its expected units in log order, then `finish`. Not thread-safe.

    Units that point before `log_min` are those of expired records. Those from `lag_from` on may be
    missing; those from `log_end` on were added by a writer meanwhile.
    """

    def __init__(
        self, layout: StoreLayout, queue: QueueName, on_problem: OnProblem, *, log_min: int
    ) -> None:
        self.lagging = 0
        self._queue = queue
        self._directory = layout.queue_directory(QueueKind.BATCH, *queue)
        self._file_bytes = layout.batch_cq_file_bytes
        files = list_segments(self._directory, self._file_bytes, on_problem=on_problem)
        self._first_base = files[0].base_offset if files else 0
        self._stored = _StoredUnits(files, self._file_bytes)
        self._expired = self._stored.count_before(log_min)
        self._seen = 0
        self._different: tuple[int, int] | None = None  # number and log offset of the first
        self._different_count = 0
        self._missing: tuple[int, int] | None = None
        self._missing_count = 0

    def add(self, new: Units, *, lag_from: int) -> None:
        """Compare the next units that the log asks for."""
        start = self._expired + self._seen
        was = self._stored.read(start, start + len(new))
        both = len(was)
        different = np.flatnonzero(was != new[:both])
        if len(different):
            at = int(different[0])
            place = (self._seen + at, int(new["log_offset"][at]))
            self._different = self._different or place
            self._different_count += len(different)
        missing = new[both:]
        late = int((missing["log_offset"] >= lag_from).sum())
        self.lagging += late
        if len(missing):
            self._missing = self._missing or (self._seen + both, int(missing["log_offset"][0]))
            self._missing_count += len(missing) - late
        self._seen += len(new)

    def finish(self, findings: Findings, *, log_end: int) -> None:
        """Report what differs, what is missing and what no record stands behind."""
        if self._different is not None:
            number, offset = self._different
            cause = f"unit {number} and {self._different_count - 1} more differ from the log"
            self._report(findings, number, cause, offset)
        if self._missing is not None and self._missing_count:
            cause = f"{self._missing_count} unit(s) are missing"
            self._report(findings, self._missing[0], cause, self._missing[1])
        self._report_extra(findings, log_end)

    def _report_extra(self, findings: Findings, log_end: int) -> None:
        count, offset = 0, None
        for units in self._stored.iter_from(self._expired + self._seen):
            offset = int(units["log_offset"][0]) if offset is None else offset
            count += int((units["log_offset"] < log_end).sum())
        if count and offset is not None:
            self._report(findings, self._seen, f"{count} unit(s) have no record", offset)

    def _report(self, findings: Findings, number: int, cause: str, log_offset: int) -> None:
        path, position = self._place(number)
        cause = f"{self._queue[0]}/{self._queue[1]}: {cause}"
        findings.add(Kind.QUEUE, path, position, cause, log_offset=log_offset)

    def _place(self, number: int) -> tuple[Path, int]:
        """Return where a live unit lies."""
        at = self._first_base + (self._expired + number) * UNIT_BYTES
        base = at // self._file_bytes * self._file_bytes
        return self._directory / f"{base:020d}", at - base


class _StoredUnits:
    """The units of a queue's files one after another, up to the first that cannot be one. Mapped."""

    def __init__(self, files: list[SegmentFile], file_bytes: int) -> None:
        self._parts = [_map(file.path, file_bytes) for file in files if file.length >= UNIT_BYTES]
        self._count = sum(len(part) for part in self._parts)
        self._count = self._valid_count()

    def _valid_count(self) -> int:
        done = 0
        for units in self.iter_from(0):
            valid = (units["size"] > 0) & (units["log_offset"] >= 0) & (units["message_count"] > 0)
            if not valid.all():
                return done + int(valid.argmin())
            done += len(units)
        return done

    def count_before(self, log_min: int) -> int:
        return sum(int((units["log_offset"] < log_min).sum()) for units in self.iter_from(0))

    def iter_from(self, start: int) -> Iterator[Units]:
        for first in range(start, self._count, _STEP_UNITS):
            yield self.read(first, first + _STEP_UNITS)

    def read(self, start: int, end: int) -> Units:
        """Return the units of this range, as many as there are."""
        end = min(end, self._count)
        found = [np.zeros(0, UNIT_DTYPE)]
        base = 0
        for part in self._parts:
            found.append(part[max(start - base, 0) : max(end - base, 0)])
            base += len(part)
        return np.concatenate(found)


def _map(path: Path, file_bytes: int) -> Units:
    data = np.memmap(path, dtype=np.uint8, mode="r")[:file_bytes]
    return data[: len(data) // UNIT_BYTES * UNIT_BYTES].view(UNIT_DTYPE)
