"""Compare batch queue files with the log: one 46-byte unit per record, in log order."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem, list_segments
from orbitmq.format.batch_unit import NOT_COMPACTED, UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.columns import Mark
from orbitmq.format.kernels import Kernels
from orbitmq.store.dispatch import Chunk
from orbitmq.store.offline.findings import Findings, Kind
from orbitmq.store.recovery.queue_counts import Queue, resolve_all

Units = npt.NDArray[np.void]


class BatchQueueCheck:
    """The batch queues of one store. `add` every chunk of the log in order, then `finish`.

    There are few of them: the units of the whole log are gathered first.
    """

    def __init__(
        self,
        layout: StoreLayout,
        kernels: Kernels,
        findings: Findings,
        *,
        log_min: int,
        lag_from: int,
    ) -> None:
        self.lagging = 0
        self._layout = layout
        self._findings = findings
        self._log_min = log_min
        self._lag_from = lag_from
        self._table = kernels.queue_table()
        self._names: list[Queue] = []
        self._units: dict[int, list[Units]] = {}

    def add(self, chunk: Chunk, batch: npt.NDArray[np.bool_]) -> None:
        """Expect a unit for each of the chunk's rows that `batch` marks."""
        if not batch.any():
            return
        rows = chunk.rows[batch & (chunk.rows["marks"] & Mark.NO_UNIT == 0)]
        numbers = resolve_all(self._table, self._names, chunk.buffer, rows)
        units = np.zeros(len(rows), UNIT_DTYPE)
        for name in ("log_offset", "size", "tag_hash", "store_ms"):
            units[name] = rows[name]
        units["base_offset"] = rows["queue_offset"]
        units["message_count"] = rows["batch_count"]
        units["compacted_offset"] = NOT_COMPACTED
        for number in np.unique(numbers).tolist():
            self._units.setdefault(number, []).append(units[numbers == number])

    def finish(self, on_problem: OnProblem) -> None:
        queues = {
            (topic.decode("utf-8", "replace"), queue_id): np.concatenate(self._units[number])
            for number, (topic, queue_id) in enumerate(self._names)
        }
        on_disk = {
            (queue.topic, queue.queue_id)
            for queue in self._layout.list_queues(QueueKind.BATCH, on_problem=on_problem)
        }
        nothing = np.zeros(0, UNIT_DTYPE)
        for queue in sorted(on_disk | set(queues)):
            self._check(queue, queues.get(queue, nothing), on_problem)

    def _check(self, queue: tuple[str, int], new: Units, on_problem: OnProblem) -> None:
        directory = self._layout.queue_directory(QueueKind.BATCH, *queue)
        file_bytes = self._layout.batch_cq_file_bytes
        files = list_segments(directory, file_bytes, on_problem=on_problem)
        parts = [_read_units(file.path, file_bytes) for file in files]
        was = np.concatenate(parts) if parts else np.zeros(0, UNIT_DTYPE)
        was = was[: _valid_count(was)]
        expired = int((was["log_offset"] < self._log_min).sum())
        place = _Place(directory, files[0].base_offset if files else 0, expired, file_bytes)
        self._compare(queue, was[expired:], new, place)

    def _compare(self, queue: tuple[str, int], was: Units, new: Units, place: "_Place") -> None:
        name = f"{queue[0]}/{queue[1]}"
        both = min(len(was), len(new))
        different = np.flatnonzero(was[:both] != new[:both])
        if len(different):
            first = int(different[0])
            cause = f"unit {first} and {len(different) - 1} more differ from the log"
            offset = int(new["log_offset"][first])
            self._findings.add(Kind.QUEUE, *place.of(first), f"{name}: {cause}", log_offset=offset)
        missing = new[both:]
        late = int((missing["log_offset"] >= self._lag_from).sum())
        self.lagging += late
        if len(missing) > late:
            cause = f"{len(missing) - late} unit(s) are missing"
            offset = int(missing["log_offset"][0])
            self._findings.add(Kind.QUEUE, *place.of(both), f"{name}: {cause}", log_offset=offset)
        if len(was) > both:
            cause = f"{len(was) - both} unit(s) have no record"
            offset = int(was["log_offset"][both])
            self._findings.add(Kind.QUEUE, *place.of(both), f"{name}: {cause}", log_offset=offset)


class _Place:
    """Where the live units of a queue lie."""

    def __init__(self, directory: Path, first_base: int, expired: int, file_bytes: int) -> None:
        self._directory = directory
        self._start = first_base + expired * UNIT_BYTES
        self._file_bytes = file_bytes

    def of(self, unit: int) -> tuple[Path, int]:
        at = self._start + unit * UNIT_BYTES
        base = at // self._file_bytes * self._file_bytes
        return self._directory / f"{base:020d}", at - base


def _read_units(path: Path, file_bytes: int) -> Units:
    data = path.read_bytes()[:file_bytes]
    return np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_BYTES)


def _valid_count(units: Units) -> int:
    valid = (units["size"] > 0) & (units["log_offset"] >= 0) & (units["message_count"] > 0)
    return len(units) if valid.all() else int(valid.argmin())
