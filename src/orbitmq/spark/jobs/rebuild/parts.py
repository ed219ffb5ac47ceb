"""What a scanned split hands to the tasks that build files: a file beside the store, and facts about it.

The facts go to the driver, a few hundred bytes for each queue; the units and keys themselves go to the
file, about 30 bytes for a record and 4 for each of its keys, and from there straight to the task that
needs them. Every task can reach the store's directory anyway, or it could not read the log.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from orbitmq.errors import JobFailedError, io_error
from orbitmq.files.disk import Disk
from orbitmq.format.columns import Bytes
from orbitmq.format.kernels import compiled
from orbitmq.log_read import Split
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles
from orbitmq.spark.jobs.rebuild.pack import (
    Column,
    PackedSplit,
    PackOptions,
    Part,
    SplitFacts,
    pack_split,
)
from orbitmq.spark.jobs.rebuild.pack_items import PackedItems
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.shared_paths import require_seen

_ALIGNED: Final = 8
_ITEM_COLUMNS: Final = ("offsets", "times", "counts", "hashes")


def write_part(
    packed: PackedSplit, files: AttemptFiles, *, with_units: bool, with_items: bool
) -> Part | None:
    """Write the units and keys of a split to a file of this attempt."""
    columns: dict[str, npt.NDArray[Any]] = {}
    if with_units:
        columns["units"], columns["unit_times"] = packed.units.units, packed.units.times
        columns["batches"] = np.frombuffer(packed.batches.units, dtype=np.uint8)
    if with_items:
        columns.update(zip(_ITEM_COLUMNS, packed.items.columns, strict=True))
    filled = {name: values for name, values in columns.items() if len(values)}
    if not filled:
        return None
    path = files.new_path()
    places, length = _write_columns(path, filled)
    return Part(path, length, places, packed.items.base_offset, packed.items.base_ms)


def _write_columns(
    path: str, columns: dict[str, npt.NDArray[Any]]
) -> tuple[dict[str, Column], int]:
    disk, at = Disk(), 0
    places: dict[str, Column] = {}
    fd = disk.open(path, create=True)
    try:
        # Not synced: the file is gone before the job is over, and so is the job after a power cut.
        for name, values in columns.items():
            places[name] = Column(at, values.dtype.str, len(values))
            disk.write_at(path, fd, at, values.view(np.uint8).data)
            at += -(-values.nbytes // _ALIGNED) * _ALIGNED
        disk.truncate(path, fd, at)
    finally:
        disk.close(path, fd)
    return places, at


class PartReader:
    """The columns of a part file, mapped. Not thread-safe; the map goes with the last array on it."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._data: Bytes = _map(part)

    def column(self, name: str) -> npt.NDArray[Any]:
        place = self._part.columns.get(name)
        if place is None:
            return np.zeros(0, dtype=np.uint8)
        return np.frombuffer(self._data, place.kind, place.length, place.position)

    def items(self) -> PackedItems:
        columns = [self.column(name) for name in _ITEM_COLUMNS]
        return PackedItems(self._part.base_offset, self._part.base_ms, *columns)


def _map(part: Part) -> Bytes:
    try:
        mapped = np.memmap(part.path, dtype=np.uint8, mode="r")
    except OSError as cause:
        raise io_error(part.path, "map", cause) from cause
    if len(mapped) != part.length:
        what = f"{part.path} has {len(mapped)} bytes instead of {part.length}"
        raise JobFailedError(what, "All machines must see the same directory.")
    return mapped


@dataclass(frozen=True, slots=True)
class Scan:
    """Packs splits into files of their own. Travels to executors.

    Without units and items only the facts are gathered: no file is written.
    """

    options: PackOptions
    files: AttemptFiles
    counter: StageCounter | None
    with_units: bool = True
    with_items: bool = True

    def __call__(self, _number: int, groups: Iterator[list[Split]]) -> Iterator[SplitFacts]:
        if self.with_units or self.with_items:
            require_seen(self.files.directory)
        for splits in groups:
            yield from map(self.scan, splits)

    def scan(self, split: Split, *, at_record: bool = False) -> SplitFacts:
        """Scan one split, on the driver too."""
        packed = pack_split(split, compiled(), self.options, at_record=at_record)
        part = write_part(
            packed, self.files, with_units=self.with_units, with_items=self.with_items
        )
        if self.counter is not None:
            self.counter.add(split.end - split.start, packed.facts.records)
        return replace(packed.facts, part=part)
