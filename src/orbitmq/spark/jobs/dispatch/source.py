"""The tail of a commit log as a stream: what a store shows and is not dispatched yet, in packed chunks.

The offset of the stream is a log offset, always one where a record starts. How far it goes is told by the
store itself (`Handover.readable_offset`): with sync flush that is what is on disk, and never half a record.
A store that was killed says nothing any more, and then the stream waits: what its log holds is known when
it has recovered.
"""

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from orbitmq.files.layout import StoreLayout
from orbitmq.format.columns import ScanOptions
from orbitmq.format.handover import ReadableOffset
from orbitmq.format.kernels import compiled
from orbitmq.log_read import BadPlace, LogTail, Split, cut, read_split
from orbitmq.spark.jobs.dispatch.chunks import PackedChunk, pack_chunk
from orbitmq.spark.source.segment import open_split
from orbitmq.store.spark_dispatch.handover import Handover
from orbitmq.units import SECOND_MS, MiB

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

FORMAT: Final = "orbitmq_dispatch"
SCHEMA: Final = (
    "split_start bigint, split_end bigint, first bigint, rows binary, texts binary, items binary"
)
SILENT_MS: Final = 10 * SECOND_MS
"""A store that has said nothing for so long is not running."""
SMALL_BYTES: Final = 8 * MiB
"""So much is not worth a second task."""

_WAIT_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.002


@dataclass(frozen=True, slots=True)
class TailOptions:
    """What the stream needs to know of the store. Travels as text."""

    root: str
    epoch: int
    start: int
    segment_bytes: int
    log_paths: tuple[str, ...]
    delay_ms: tuple[int, ...]
    with_items: bool
    back_bytes: int
    batch_bytes: int
    tasks: int

    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> "TailOptions":
        values = json.loads(text)
        lists = {name: tuple(values[name]) for name in ("log_paths", "delay_ms")}
        return cls(**{**values, **lists})


def is_speaking(shown: ReadableOffset | None, now_ms: int) -> bool:
    """Tell whether what a store has shown can be relied on: it runs, or was closed in order."""
    return shown is not None and (shown.closed or now_ms - shown.told_ms < SILENT_MS)


class DispatchSource(DataSource):
    """The source of the dispatch job; of no use to others."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: Any) -> "TailReader":  # noqa: N802
        return TailReader(TailOptions.parse(self.options["tail"]))


class TailReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process that lives as long as the query; reads in tasks."""

    def __init__(self, options: TailOptions) -> None:
        self._options = options
        self._target: int | None = None
        self._tail: LogTail | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"_options": self._options, "_target": None, "_tail": None}  # maps do not travel

    # --- planning ---

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"log_offset": self._options.start}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._options.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._readable_offset()

    def latestOffset(self, start: Mapping[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        """Return how far the next batch goes. Waits a moment: else Spark would ask without a pause."""
        first = start["log_offset"]
        deadline = time.monotonic() + (_WAIT_SECONDS if self._target is None else 0)
        while (end := self._readable_offset()) <= first and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        if end <= first:
            return {"log_offset": first}
        room = None if isinstance(limit, ReadAllAvailable) else self._options.batch_bytes
        tail = self._log_tail()
        return {"log_offset": tail.whole_records(tail.published(first, end), room)}

    def _readable_offset(self) -> int:
        if self._target is not None:
            return self._target
        shown = Handover(Path(self._options.root)).readable_offset()
        if shown is None or shown.epoch != self._options.epoch:
            return -1
        return shown.log_offset if is_speaking(shown, time.time_ns() // 1_000_000) else -1

    def _log_tail(self) -> LogTail:
        if self._tail is None:
            paths = tuple(Path(path) for path in self._options.log_paths)
            root, size = Path(self._options.root), self._options.segment_bytes
            self._tail = LogTail(StoreLayout(root, commit_log_paths=paths, segment_bytes=size))
        return self._tail

    def partitions(
        self, start: Mapping[str, int], end: Mapping[str, int]
    ) -> Sequence[InputPartition]:
        first, last = start["log_offset"], end["log_offset"]
        share = max(SMALL_BYTES, -(-(last - first) // self._options.tasks))
        plan = self._log_tail().published(first, last)
        return [InputPartition(split) for split in cut(plan, share)]

    # --- reading ---

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa

        options, split = self._options, Split(*partition.value)
        kernels = compiled()
        scan = ScanOptions(delay_ms=options.delay_ms)
        empty = True
        for chunk in read_split(
            split, open_split(split), kernels, scan, _log_bad, back_bytes=options.back_bytes
        ):
            packed = pack_chunk(chunk.buffer, chunk.rows, kernels, with_items=options.with_items)
            yield _batch(pa, split, int(chunk.rows["log_offset"][0]), packed)
            empty = False
        if empty:  # a blank alone; the driver must hear that somebody looked
            yield _batch(pa, split, split.start, PackedChunk(b"", b"", b""))


def _log_bad(place: BadPlace) -> None:
    log.error("log offset %d: %s; dispatch goes on behind it", place.log_offset, place.reason)


def _batch(pa: Any, split: Split, first: int, packed: PackedChunk) -> "pa.RecordBatch":
    numbers = [pa.array([number], pa.int64()) for number in (split.start, split.end, first)]
    texts = [pa.array([part], pa.binary()) for part in packed]
    names = ["split_start", "split_end", "first", "rows", "texts", "items"]
    return pa.RecordBatch.from_arrays(numbers + texts, names)
