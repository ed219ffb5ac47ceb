"""The task that makes files of queues and index out of what the scanned splits hold."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Bytes
from orbitmq.format.cq_ext_unit import END_MARK, HEAD_BYTES, ext_address
from orbitmq.format.cq_unit import PADDING, UNIT_DTYPE
from orbitmq.format.index_file import IndexHeader
from orbitmq.format.kernels import Kernels, compiled
from orbitmq.spark.jobs.rebuild.attempt_files import AttemptFiles, Finished
from orbitmq.spark.jobs.rebuild.parts import PartReader
from orbitmq.spark.jobs.rebuild.plan import (
    UNIT_SIZES,
    BuildTask,
    IndexTarget,
    ItemPiece,
    QueueTarget,
    ext_units_per_file,
)
from orbitmq.spark.jobs.rebuild.queue_runs import NO_EXT
from orbitmq.spark.progress import StageCounter
from orbitmq.spark.shared_paths import require_seen
from orbitmq.store.index.files import Items
from orbitmq.store.index.maps import IndexMaps
from orbitmq.store.index.open import OpenIndex

BLOCK_UNITS: Final = 256 * 1024
EXT_DTYPE: Final = np.dtype(
    [("size", ">i2"), ("tag_hash", ">i8"), ("store_ms", ">i8"), ("bitmap_length", ">i2")]
)
assert EXT_DTYPE.itemsize == HEAD_BYTES


@dataclass(frozen=True, slots=True)
class Build:
    """Makes the files of build tasks. Travels to executors."""

    layout: StoreLayout
    files: AttemptFiles
    counter: StageCounter | None

    def __call__(self, _number: int, tasks: Iterator[BuildTask]) -> Iterator[Finished]:
        require_seen(self.files.directory)
        for task in tasks:
            yield from _Builder(task, self).run()


class _Builder:
    """Makes the files of one task. Not thread-safe."""

    def __init__(self, task: BuildTask, build: Build) -> None:
        self._task = task
        self._layout, self._names, self._counter = build.layout, build.files, build.counter
        self._part = cache(lambda split: PartReader(task.parts[split]))
        self._kernels: Kernels = compiled()

    def run(self) -> list[Finished]:
        finished: list[Finished] = []
        with FileCache(Disk()) as self._files:
            for target in self._task.targets:
                path = self._names.new_path()
                if isinstance(target, IndexTarget):
                    length = self._build_index(target, path)
                else:
                    length = self._build_queue(target, path)
                finished.append(Finished(target.number, path, length, target.units))
                if self._counter is not None:
                    self._counter.add(target.byte_count, 0)
            self._files.sync(file.path for file in finished)
        return finished

    # --- queues ---

    def _build_queue(self, target: QueueTarget, path: str) -> int:
        """Write one file, a block of units at a time; return its length."""
        length = self._layout.queue_file_bytes(target.kind)
        at = 0
        for start in range(target.first, target.end, BLOCK_UNITS):
            block = self._block(target, start, min(start + BLOCK_UNITS, target.end))
            self._files.write(path, at, block.data, file_bytes=length)
            at += len(block)
        if target.kind is QueueKind.EXT and not target.last_of_queue:
            self._files.write(path, at, END_MARK, file_bytes=length)
        return length

    def _block(self, target: QueueTarget, start: int, end: int) -> Bytes:
        """Return units `start` to `end` of a file."""
        size = UNIT_SIZES[target.kind]
        block = np.empty((end - start) * size, dtype=np.uint8)
        if int(target.pieces["count"].sum()) != target.units:  # only simple queues have gaps
            block[:] = np.tile(np.frombuffer(PADDING, dtype=np.uint8), end - start)
        for piece in target.pieces:
            low = max(int(piece["offset"]), start)
            high = min(int(piece["offset"] + piece["count"]), end)
            if low < high:
                units = self._units(target.kind, piece, low, high)
                block[(low - start) * size : (high - start) * size] = units
        return block

    def _units(self, kind: QueueKind, piece: np.void, low: int, high: int) -> Bytes:
        """Return the units of a piece from number `low` to `high` of their queue."""
        part = self._part(int(piece["split"]))
        skip = low - int(piece["offset"])
        first = int(piece["first_unit"]) + skip
        last = first + high - low
        name = "batches" if kind is QueueKind.BATCH else "units"
        source = UNIT_SIZES[QueueKind.BATCH if kind is QueueKind.BATCH else QueueKind.SIMPLE]
        packed: Bytes = part.column(name)[first * source : last * source]
        if kind is QueueKind.EXT:
            return _ext_units(packed.view(UNIT_DTYPE), part.column("unit_times")[first:last])
        if piece["ext"] != NO_EXT:
            numbers = np.arange(high - low, dtype=np.int64) + int(piece["ext"]) + skip
            addressed = packed.view(UNIT_DTYPE).copy()
            addressed["tag_hash"] = self._addresses(numbers)
            return addressed.view(np.uint8)
        return packed

    def _addresses(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return what queue units hold that have these ext units."""
        file_bytes = self._layout.ext_file_bytes
        files, places = np.divmod(numbers, ext_units_per_file(file_bytes))
        found: npt.NDArray[np.int64] = files * file_bytes + places * HEAD_BYTES + ext_address(0)
        return found

    # --- index ---

    def _build_index(self, target: IndexTarget, path: str) -> int:
        """Write one index file as `IndexFiles` does; return its length."""
        index = OpenIndex("", path, self._layout, self._files, IndexMaps(Disk()))
        index.start(self._first_header(target.before))
        for piece in target.pieces:
            items = self._items(piece)
            index.insert(self._kernels, items, 0)
        index.write()
        return self._layout.index_file_bytes

    def _first_header(self, before: ItemPiece | None) -> IndexHeader:
        if before is None:
            return IndexHeader()
        last = self._items(before)[-1]
        ended = IndexHeader(end_ms=int(last["store_ms"]), end_log_offset=int(last["log_offset"]))
        return ended.following()

    def _items(self, piece: ItemPiece) -> Items:
        items = self._part(piece.split).items().unpack()
        return items[piece.skip : piece.skip + piece.items]


def _ext_units(units: npt.NDArray[np.void], times: npt.NDArray[np.int64]) -> Bytes:
    made = np.zeros(len(units), dtype=EXT_DTYPE)
    made["size"], made["tag_hash"], made["store_ms"] = HEAD_BYTES, units["tag_hash"], times
    return made.view(np.uint8)
