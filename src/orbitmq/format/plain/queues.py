"""Number queues and group their units: the reference for `compiled.queues`."""

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.format.columns import RUN, Bytes, Mark, PackedUnits, Rows
from orbitmq.format.cq_unit import UNIT_DTYPE


class DictTable:
    """Numbers of queues in a dict. Not thread-safe."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bytes, int], int] = {}

    def add(self, topic: bytes, queue_id: int) -> int:
        return self._numbers.setdefault((topic, queue_id), len(self._numbers))

    def find(self, topic: bytes, queue_id: int) -> int:
        return self._numbers.get((topic, queue_id), -1)

    def resolve(self, buffer: Bytes, rows: Rows) -> npt.NDArray[np.int32]:
        view = buffer.data
        found = np.empty(len(rows), dtype=np.int32)
        columns = (rows[name].tolist() for name in ("topic_at", "topic_length", "queue_id"))
        for index, (at, length, queue_id) in enumerate(zip(*columns, strict=True)):
            if not 0 <= at <= at + length <= len(view):
                raise FormatError("a row's topic lies outside the buffer", at)
            found[index] = self.find(bytes(view[at : at + length]), queue_id)
        return found

    def __len__(self) -> int:
        return len(self._numbers)


def pack_units(rows: Rows, queue_nos: npt.NDArray[np.int32]) -> PackedUnits:
    """Group the rows' 20-byte units by queue. Rows marked NO_UNIT or with queue -1 are left out."""
    if len(rows) != len(queue_nos):
        raise FormatError(f"{len(rows)} rows but {len(queue_nos)} queue numbers")
    kept = np.flatnonzero((queue_nos >= 0) & (rows["marks"] & Mark.NO_UNIT == 0))
    order = kept[np.argsort(queue_nos[kept], kind="stable")]
    packed, numbers = rows[order], queue_nos[order]

    units = np.empty(len(order), dtype=UNIT_DTYPE)
    for name in UNIT_DTYPE.names or ():
        units[name] = packed[name]
    return PackedUnits(units.view(np.uint8), _runs(packed, numbers), order.astype(np.int64))


def _runs(packed: Rows, numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.void]:
    """Return the stretches of one queue whose queue offsets follow one another."""
    offsets = packed["queue_offset"]
    starts = np.ones(len(packed), dtype=bool)
    starts[1:] = (numbers[1:] != numbers[:-1]) | (offsets[1:] != offsets[:-1] + 1)
    first = np.flatnonzero(starts)
    after = np.append(first[1:], len(packed))
    last = packed[after[: len(first)] - 1]

    runs = np.zeros(len(first), dtype=RUN)
    runs["queue_no"] = numbers[first]
    runs["count"] = after[: len(first)] - first
    runs["first_queue_offset"] = offsets[first]
    runs["first_unit"] = first
    runs["end_log_offset"] = last["log_offset"] + last["size"]
    runs["last_store_ms"] = last["store_ms"]
    return runs
