"""Compare queue files with the log, both ways: every record has its unit, every unit its record.

Units are gathered per queue and compared many at a time, so that a store of 80 000 queues is not read
one unit at a time. Memory is bounded by PENDING_BYTES and the number of queues.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.listing import OnProblem, QueueFiles, list_segments
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Mark
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import find_property
from orbitmq.message import LMQ_PREFIX, Property
from orbitmq.store.dispatch import Chunk
from orbitmq.store.offline.findings import LOOK_STEP, Findings, Kind, Severity
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.queue_names import QueueNames
from orbitmq.store.recovery.queue_counts import Queue, resolve_all
from orbitmq.store.recovery.queue_units import stored_units
from orbitmq.units import MiB

PENDING_BYTES: Final = 64 * MiB

Units = npt.NDArray[np.void]


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
        log_min: int,
        lag_from: int,
        light_queues: bool,
    ) -> None:
        self.lagging = 0
        self._layout = layout
        self._files = files
        self._kernels = kernels
        self._findings = findings
        self._log_min = log_min
        self._lag_from = lag_from
        self._light_queues = light_queues
        self._table = kernels.queue_table()
        self._names: list[Queue] = []
        self._first: dict[int, int] = {}  # queue offset of each queue's first record
        self._next: dict[int, int] = {}
        self._pending: dict[int, tuple[int, bytearray]] = {}
        self._pending_bytes = 0
        self._missing_files: dict[str, list[int]] = {}  # path -> [units, first log offset]
        self._ext_names = QueueNames(kernels)
        self._ext: ExtQueues | None = None
        if layout.queue_root(QueueKind.EXT).is_dir():
            self._ext = ExtQueues(layout, files, self._ext_names)

    def add(self, chunk: Chunk, simple: npt.NDArray[np.bool_]) -> None:
        """Expect a unit for each of the chunk's rows that `simple` marks."""
        rows = chunk.rows if simple.all() else chunk.rows[simple]
        numbers = resolve_all(self._table, self._names, chunk.buffer, rows)
        packed = self._kernels.pack_units(rows, numbers)
        units = packed.units.tobytes()
        for number, count, first, first_unit, *_ in packed.runs.tolist():
            start = first_unit * UNIT_BYTES
            self._expect(number, first, units[start : start + count * UNIT_BYTES])
        if self._light_queues:
            for row in rows[rows["marks"] & Mark.MULTI_DISPATCH != 0]:
                self._expect_light(chunk, row)
        if self._pending_bytes > PENDING_BYTES:
            self._compare_all()

    def skip(self, chunk: Chunk) -> None:
        """Pass over records whose units are not to be looked at."""
        numbers = resolve_all(self._table, self._names, chunk.buffer, chunk.rows)
        for number, count, first, *_ in self._kernels.pack_units(chunk.rows, numbers).runs.tolist():
            self._first.setdefault(number, first)
            self._next[number] = first + count

    def _expect_light(self, chunk: Chunk, row: np.void) -> None:
        at, length = int(row["properties_at"]), int(row["properties_length"])
        raw = chunk.buffer[at : at + length].tobytes()
        names = (find_property(raw, Property.MULTI_DISPATCH) or "").split(",")
        offsets = (find_property(raw, Property.MULTI_QUEUE_OFFSET) or "").split(",")
        if len(names) != len(offsets):
            return
        unit = UNIT.pack(int(row["log_offset"]), int(row["size"]), int(row["tag_hash"]))
        for name, offset in zip(names, offsets, strict=True):
            if "/" in name or not offset.isdigit():
                continue
            queue_id = 0 if name.startswith(LMQ_PREFIX) else int(row["queue_id"])
            number = self._table.add(name.encode(), queue_id)
            if number == len(self._names):
                self._names.append((name.encode(), queue_id))
            self._expect(number, int(offset), unit)

    def _expect(self, number: int, first: int, data: bytes) -> None:
        following = self._next.get(number)
        if following is None:
            self._first[number] = first
        elif first > following:
            self._note_numbers(
                number, data, f"queue offsets {following} to {first - 1} have no record"
            )
        elif first < following:
            repeated = min(following - first, len(data) // UNIT_BYTES)
            self._note_numbers(
                number, data, f"queue offset {first} is that of an earlier record of its queue"
            )
            first, data = first + repeated, data[repeated * UNIT_BYTES :]
            if not data:
                return
        self._hold(number, first, data)
        self._next[number] = first + len(data) // UNIT_BYTES

    def _note_numbers(self, number: int, data: bytes, cause: str) -> None:
        topic, queue_id = self._name(number)
        log_offset = UNIT.unpack_from(data)[0]
        path, position = self._segment_place(log_offset)
        self._findings.add(
            Kind.QUEUE_OFFSET,
            path,
            position,
            f"{topic}/{queue_id}: {cause}",
            advice=LOOK_STEP,
            log_offset=log_offset,
            severity=Severity.NOTE,
        )

    def _segment_place(self, log_offset: int) -> tuple[Path, int]:
        position = log_offset % self._layout.segment_bytes
        return self._layout.segment_path(log_offset - position), position

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

    def _name(self, number: int) -> tuple[str, int]:
        topic, queue_id = self._names[number]
        return topic.decode("utf-8", "replace"), queue_id

    # --- records that have no unit, or a wrong one ---

    def _compare_all(self) -> None:
        for number, (first, data) in self._pending.items():
            self._compare(number, first, data)
        self._pending = {}
        self._pending_bytes = 0

    def _compare(self, number: int, first: int, data: bytearray) -> None:
        file_units = self._layout.cq_file_bytes // UNIT_BYTES
        done = 0
        while done < len(data):
            at = first + done // UNIT_BYTES
            length = min(len(data) - done, (file_units - at % file_units) * UNIT_BYTES)
            self._compare_in_file(number, at, bytes(data[done : done + length]))
            done += length

    def _compare_in_file(self, number: int, first: int, data: bytes) -> None:
        path, position = self._place(number, first)
        if path is None:
            return
        new = np.frombuffer(data, UNIT_DTYPE)
        old = self._read(path, position, len(data))
        if old is None:
            self._count_missing_file(path, new)
            return
        if old == data:
            return
        was = np.frombuffer(old.ljust(len(data), b"\0"), UNIT_DTYPE)
        differs = was != new
        if self._ext is not None:
            self._accept_ext(number, was, new, differs)
        self._report(number, path, first, was, new, differs)

    def _place(self, number: int, queue_offset: int) -> tuple[str | None, int]:
        topic, queue_id = self._name(number)
        file_bytes = self._layout.cq_file_bytes
        base = queue_offset * UNIT_BYTES // file_bytes * file_bytes
        try:
            path = self._layout.queue_file(QueueKind.SIMPLE, topic, queue_id, base)
        except StoreError:
            return None, 0  # no directory can have this name: the record is in no queue
        return str(path), queue_offset * UNIT_BYTES - base

    def _read(self, path: str, position: int, length: int) -> bytes | None:
        try:
            return self._files.read(path, position, length)
        except StoreError as error:
            if is_missing(error):
                return None
            raise

    def _count_missing_file(self, path: str, new: Units) -> None:
        late = new["log_offset"] >= self._lag_from
        self.lagging += int(late.sum())
        if late.all():
            return
        found = self._missing_files.setdefault(path, [0, int(new["log_offset"][0])])
        found[0] += int((~late).sum())

    def _accept_ext(
        self, number: int, was: Units, new: Units, differs: npt.NDArray[np.bool_]
    ) -> None:
        """Let units stand whose ext unit says the same."""
        assert self._ext is not None
        ext_number = self._ext_number(number)
        for index in np.flatnonzero(differs & (was["tag_hash"] <= ADDRESS_MAX)).tolist():
            same = all(was[name][index] == new[name][index] for name in ("log_offset", "size"))
            unit = self._ext.get(ext_number, int(was["tag_hash"][index])) if same else None
            if unit is not None and unit.tag_hash == int(new["tag_hash"][index]):
                differs[index] = False

    def _ext_number(self, number: int) -> int:
        assert self._ext is not None
        known = len(self._ext_names)
        ext_number = self._ext_names.add(*self._name(number))
        if ext_number == known:
            self._ext.load_queue(ext_number)
        return ext_number

    def _report(
        self,
        number: int,
        path: str,
        first: int,
        was: Units,
        new: Units,
        differs: npt.NDArray[np.bool_],
    ) -> None:
        """Report differing units; those of one kind that follow one another make one finding."""
        empty = (was["size"] == 0) & (was["log_offset"] == 0)
        late = differs & empty & (new["log_offset"] >= self._lag_from)
        self.lagging += int(late.sum())
        bad = np.flatnonzero(differs & ~late).tolist()
        topic, queue_id = self._name(number)
        file_first = first - first % (self._layout.cq_file_bytes // UNIT_BYTES)
        for start, end in _stretches(bad, empty):
            count = end - start
            cause = _unit_cause(was[start], new[start])
            unit = (
                f"unit {first + start}"
                if count == 1
                else f"units {first + start} to {first + end - 1}"
            )
            self._findings.add(
                Kind.QUEUE,
                path,
                (first - file_first + start) * UNIT_BYTES,
                f"{topic}/{queue_id}: {unit}: {cause}",
                log_offset=int(new["log_offset"][start]),
            )

    # --- units that have no record ---

    def finish(self, on_problem: OnProblem) -> None:
        """Compare the rest, then look at everything in the files that no record stands behind."""
        self._compare_all()
        for path, (count, log_offset) in sorted(self._missing_files.items()):
            self._findings.add(
                Kind.QUEUE,
                path,
                0,
                f"queue file is missing; {count} message(s) have no unit",
                log_offset=log_offset,
            )
        for queue in self._layout.list_queues(QueueKind.SIMPLE, on_problem=on_problem):
            if queue.topic.startswith(LMQ_PREFIX) and not self._light_queues:
                continue
            directory = self._layout.queue_directory(QueueKind.SIMPLE, queue.topic, queue.queue_id)
            list_segments(directory, self._layout.cq_file_bytes, on_problem=on_problem)
            self._check_rest(queue)

    def _check_rest(self, queue: QueueFiles) -> None:
        if not queue.file_count:
            return
        number = self._table.find(queue.topic.encode(), queue.queue_id)
        first, end = self._first.get(number), self._next.get(number, 0)
        low = queue.first_base // UNIT_BYTES
        high = (queue.last_base + self._layout.cq_file_bytes) // UNIT_BYTES
        name = f"{queue.topic}/{queue.queue_id}"
        if first is None:  # no record is left: all units must be those of expired ones
            self._check_expired(queue, name, low, high)
            return
        self._check_expired(queue, name, low, first)
        self._check_expired(queue, name, end, high, what="has no record; the queue ends before it")

    def _check_expired(
        self, queue: QueueFiles, name: str, low: int, high: int, *, what: str | None = None
    ) -> None:
        """Report units from `low` to `high` that do not point before the log; `what`: any unit."""
        for path, position, first, units in self._stored_units(queue, low, high):
            live = units["size"] != 0
            if what is None:
                live &= (units["size"] != PADDING_SIZE) & (units["log_offset"] >= self._log_min)
            bad = np.flatnonzero(live).tolist()
            for start, end in _stretches(bad, np.zeros(len(units), dtype=bool)):
                log_offset = int(units["log_offset"][start])
                text = what or f"points at log offset {log_offset}, where no such message is"
                self._findings.add(
                    Kind.QUEUE,
                    path,
                    position + start * UNIT_BYTES,
                    f"{name}: unit {first + start} ({end - start} in all) {text}",
                    log_offset=log_offset,
                )

    def _stored_units(
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


def _stretches(numbers: list[int], kinds: npt.NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of numbers that follow one another and are of one kind."""
    start = 0
    for index in range(1, len(numbers) + 1):
        if (
            index == len(numbers)
            or numbers[index] != numbers[index - 1] + 1
            or kinds[numbers[index]] != kinds[numbers[start]]
        ):
            yield numbers[start], numbers[index - 1] + 1
            start = index


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
