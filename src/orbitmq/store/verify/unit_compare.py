"""Compare expected queue units with what the queue files hold: every record has its unit."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.errors import StoreError
from orbitmq.files.disk import is_missing
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.cq_ext_unit import ADDRESS_MAX
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT_BYTES, UNIT_DTYPE
from orbitmq.format.kernels import Kernels
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.verify.findings import Findings, Kind

Units = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]
QueueName = tuple[str, int]


class _FilePart(NamedTuple):
    """Expected units that belong into one file."""

    path: str
    position: int
    first: int  # queue offset of the first unit
    data: bytes


@dataclass(slots=True)
class _Stretch:
    """Wrong units of one kind that follow one another in a file: one finding."""

    path: str
    position: int
    first: int
    end: int
    is_empty: bool
    cause: str
    log_offset: int

    def goes_on_with(self, other: "_Stretch") -> bool:
        return (self.path, self.end, self.is_empty) == (other.path, other.first, other.is_empty)


class UnitComparison:
    """Compares the units of any queues, in pieces of any size, each queue's in rising order.

    Units of records from `lag_from` on may be missing: they had not been dispatched yet. How a queue
    was cut into pieces makes no difference. Not thread-safe.
    """

    def __init__(
        self, layout: StoreLayout, files: FileCache, kernels: Kernels, *, lag_from: int
    ) -> None:
        self.lagging = 0
        self._layout = layout
        self._files = files
        self._lag_from = lag_from
        self._wrong: dict[QueueName, _Stretch] = {}  # the last one of each queue
        self._missing_files: dict[str, list[int]] = {}  # path -> [units, first log offset]
        self._ext_names = QueueNames(kernels)
        self._ext: ExtQueues | None = None
        if layout.queue_root(QueueKind.EXT).is_dir():
            self._ext = ExtQueues(layout, files, self._ext_names)

    def is_same(self, queue: QueueName, first: int, data: bytes) -> bool:
        """Tell whether the files hold exactly these units, from queue offset `first` on."""
        for part in self._parts(queue, first, data):
            old = self._read(part)
            if old != part.data and (old is None or self._differences(queue, part, old)[2].any()):
                return False
        return True

    def compare(self, queue: QueueName, first: int, data: bytes, findings: Findings) -> None:
        """Compare these units with the files; what is wrong is reported now or by `finish`."""
        for part in self._parts(queue, first, data):
            old = self._read(part)
            if old is None:
                self._count_missing_file(part)
            elif old != part.data:
                self._note(queue, part, *self._differences(queue, part, old), findings)

    def finish(self, findings: Findings) -> None:
        """Report the rest."""
        for queue, stretch in self._wrong.items():
            _report(queue, stretch, findings)
        for path, (count, log_offset) in self._missing_files.items():
            cause = f"queue file is missing; {count} message(s) have no unit"
            findings.add(Kind.QUEUE, path, 0, cause, log_offset=log_offset)
        self._wrong, self._missing_files = {}, {}

    # --- files ---

    def _parts(self, queue: QueueName, first: int, data: bytes) -> Iterator[_FilePart]:
        file_bytes = self._layout.cq_file_bytes
        done = 0
        while done < len(data):
            at = first * UNIT_BYTES + done
            base = at // file_bytes * file_bytes
            length = min(len(data) - done, base + file_bytes - at)
            try:
                path = self._layout.queue_file(QueueKind.SIMPLE, *queue, base)
            except StoreError:
                return  # no directory can have this name: the record is in no queue
            part = data[done : done + length]
            yield _FilePart(str(path), at - base, at // UNIT_BYTES, part)
            done += length

    def _read(self, part: _FilePart) -> bytes | None:
        try:
            return self._files.read(part.path, part.position, len(part.data))
        except StoreError as error:
            if is_missing(error):
                return None
            raise

    def _count_missing_file(self, part: _FilePart) -> None:
        offsets = np.frombuffer(part.data, UNIT_DTYPE)["log_offset"]
        late = offsets >= self._lag_from
        self.lagging += int(late.sum())
        if not late.all():
            found = self._missing_files.setdefault(part.path, [0, int(offsets[0])])
            found[0] += int((~late).sum())

    # --- units ---

    def _differences(
        self, queue: QueueName, part: _FilePart, old: bytes
    ) -> tuple[Units, Units, Flags]:
        """Return what is there, what should be, and where the two differ."""
        new = np.frombuffer(part.data, UNIT_DTYPE)
        was = np.frombuffer(old.ljust(len(part.data), b"\0"), UNIT_DTYPE)
        differs = was != new
        if self._ext is not None:
            self._accept_ext(queue, was, new, differs)
        return was, new, differs

    def _accept_ext(self, queue: QueueName, was: Units, new: Units, differs: Flags) -> None:
        """Let units stand whose ext unit says the same."""
        assert self._ext is not None
        number = self._ext_number(queue)
        for index in np.flatnonzero(differs & (was["tag_hash"] <= ADDRESS_MAX)).tolist():
            same = all(was[name][index] == new[name][index] for name in ("log_offset", "size"))
            unit = self._ext.get(number, int(was["tag_hash"][index])) if same else None
            if unit is not None and unit.tag_hash == int(new["tag_hash"][index]):
                differs[index] = False

    def _ext_number(self, queue: QueueName) -> int:
        assert self._ext is not None
        known = len(self._ext_names)
        number = self._ext_names.add(*queue)
        if number == known:
            self._ext.load_queue(number)
        return number

    def _note(
        self,
        queue: QueueName,
        part: _FilePart,
        was: Units,
        new: Units,
        differs: Flags,
        findings: Findings,
    ) -> None:
        empty = (was["size"] == 0) & (was["log_offset"] == 0)
        late = differs & empty & (new["log_offset"] >= self._lag_from)
        self.lagging += int(late.sum())
        bad = np.flatnonzero(differs & ~late).tolist()
        for start, end in stretches(bad, empty):
            found = _Stretch(
                part.path,
                part.position + start * UNIT_BYTES,
                part.first + start,
                part.first + end,
                bool(empty[start]),
                _unit_cause(was[start], new[start]),
                int(new["log_offset"][start]),
            )
            self._join(queue, found, findings)

    def _join(self, queue: QueueName, found: _Stretch, findings: Findings) -> None:
        """Hold a stretch back: the next piece of the queue may go on with it."""
        held = self._wrong.get(queue)
        if held is not None:
            if held.goes_on_with(found):
                held.end = found.end
                return
            _report(queue, held, findings)
        self._wrong[queue] = found


def _report(queue: QueueName, found: _Stretch, findings: Findings) -> None:
    name = f"unit {found.first}"
    if found.end - found.first > 1:
        name = f"units {found.first} to {found.end - 1}"
    cause = f"{queue[0]}/{queue[1]}: {name}: {found.cause}"
    findings.add(Kind.QUEUE, found.path, found.position, cause, log_offset=found.log_offset)


def stretches(numbers: list[int], kinds: Flags) -> Iterator[tuple[int, int]]:
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
