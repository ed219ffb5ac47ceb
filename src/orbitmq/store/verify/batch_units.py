"""Compare one batch queue's files with the units that the log asks for, in log order."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import SegmentFile, list_segments
from orbitmq.format.batch_unit import UNIT_BYTES, UNIT_DTYPE
from orbitmq.store.verify.findings import Findings, Kind

Units = npt.NDArray[np.void]

_STEP_UNITS: Final = 64 * 1024


@dataclass(slots=True)
class _Fault:
    """Units that have the same fault: number and log offset of the first, and how many."""

    first: tuple[int, int] = (0, 0)
    count: int = 0

    def add(self, number: int, log_offset: int, count: int) -> None:
        if not self.count:
            self.first = number, log_offset
        self.count += count


class BatchComparison:
    """One batch queue. `add` its expected units in log order, then `finish`. Not thread-safe.

    Units that point before `log_min` are those of expired records. Those from `lag_from` on may be
    missing; those from `log_end` on were added by a writer meanwhile.
    """

    def __init__(
        self, layout: StoreLayout, queue: tuple[str, int], findings: Findings, *, log_min: int
    ) -> None:
        self._findings = findings
        self._queue = queue
        self._directory = layout.queue_directory(QueueKind.BATCH, *queue)
        self._file_bytes = layout.batch_cq_file_bytes
        files = list_segments(self._directory, self._file_bytes, on_problem=findings.add_problem)
        self._first_base = files[0].base_offset if files else 0
        self._stored = _StoredUnits(files, self._file_bytes)
        self._expired = self._stored.count_before(log_min)
        self._seen = 0
        self._different = _Fault()
        self._missing = _Fault()

    def add(self, new: Units, *, lag_from: int) -> None:
        """Compare the next units that the log asks for."""
        start = self._expired + self._seen
        was = self._stored.read(start, start + len(new))
        both = len(was)
        different = np.flatnonzero(was != new[:both])
        if len(different):
            at = int(different[0])
            offset = int(new["log_offset"][at])
            self._different.add(self._seen + at, offset, len(different))
        missing = new[both:]
        if len(missing):
            late = int((missing["log_offset"] >= lag_from).sum())
            self._findings.lagging += late
            offset = int(missing["log_offset"][0])
            self._missing.add(self._seen + both, offset, len(missing) - late)
        self._seen += len(new)

    def finish(self, log_end: int) -> None:
        """Report what differs, what is missing and what no record stands behind."""
        count = self._different.count
        self._report(
            self._different,
            f"unit {self._different.first[0]} and {count - 1} more differ from the log",
        )
        self._report(self._missing, f"{self._missing.count} unit(s) are missing")
        extra = _Fault()
        for units in self._stored.iter_from(self._expired + self._seen):
            judged = int((units["log_offset"] < log_end).sum())
            extra.add(self._seen, int(units["log_offset"][0]), judged)
        self._report(extra, f"{extra.count} unit(s) have no record")

    def _report(self, fault: _Fault, cause: str) -> None:
        if fault.count:
            number, log_offset = fault.first
            at = self._first_base + (self._expired + number) * UNIT_BYTES
            base = at // self._file_bytes * self._file_bytes
            path: Path = self._directory / f"{base:020d}"
            text = f"{self._queue[0]}/{self._queue[1]}: {cause}"
            self._findings.add(Kind.QUEUE, path, at - base, text, log_offset=log_offset)


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
