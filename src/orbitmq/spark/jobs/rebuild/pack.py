"""What queues and index get from one split of the log, packed: runs of units and the keys of records.

A task packs a split without knowing anything of the rest of the log. Where each run and each key goes
is told by the order of the splits alone; whoever joins them has to look at `first` and `end`, which say
whether one split begins where the one before it ended.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format.columns import Mark, Rows, ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.log_read import BACK_BYTES, Chunk, ReadState, Split, read_split
from orbitmq.message import QueueType
from orbitmq.spark.jobs.rebuild.pack_collect import (
    BatchCollector,
    BatchRuns,
    Flags,
    ItemCollector,
    Runs,
    UnitCollector,
    UnitRuns,
)
from orbitmq.spark.jobs.rebuild.pack_items import PackedItems, pack_items
from orbitmq.spark.source.segment import open_split
from orbitmq.store.checkpoint import CheckpointFile
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Dispatcher
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.recovery.torn_records import NOWHERE, first_torn, whole_from
from orbitmq.store.topic_types import read_batch_topics
from orbitmq.units import KiB

NOTHING = -1
_RECENT = 3


@dataclass(frozen=True, slots=True)
class PackOptions:
    """How records are dispatched in this store. Travels to tasks."""

    layout: StoreLayout
    scan: ScanOptions = field(default_factory=lambda: ScanOptions(check_crc=True))
    batch_topics: frozenset[str] = frozenset()
    multi_dispatch: bool = False
    with_ext: bool = False
    with_index: bool = True
    whole_from: int = NOWHERE  # from this log offset on all records are ours, and a torn one is bad
    back_bytes: int = BACK_BYTES  # more than the longest record

    @classmethod
    def of(cls, config: StoreConfig, disk: Disk | None = None) -> "PackOptions":
        """Return the options of a store, from its settings, topics and checkpoint."""
        disk, layout = disk or Disk(), config.layout()
        return cls(
            layout,
            ScanOptions(check_crc=True, delay_ms=config.delay_ms),
            batch_topics=read_batch_topics(layout.config("topics.json"), disk),
            multi_dispatch=config.enable_multi_dispatch,
            with_ext=config.enable_cq_ext,
            with_index=config.index_enabled,
            whole_from=whole_from(CheckpointFile(layout.checkpoint, disk).load()),
            back_bytes=max(BACK_BYTES, config.message_bytes_max + 128 * KiB),
        )


class PackedQueue(NamedTuple):
    """A queue that records of the split are in; its number is its place in `SplitFacts.queues`."""

    topic: str
    queue_id: int
    kind: int  # of `queues/names.py`


class Column(NamedTuple):
    """Where a column lies in a part file."""

    position: int
    kind: str  # of numpy
    length: int


class Part(NamedTuple):
    """The file with the units and keys of one split."""

    path: str
    length: int
    columns: dict[str, Column]
    base_offset: int  # of the keys' records
    base_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFacts:
    """What the driver is told of a split. `first` and `end` are NOTHING when no record starts in it."""

    split: Split
    first: int  # log offset of the first record
    end: int  # where the next record starts, in this split or behind it
    records: int
    recent_ms: tuple[int, ...]  # store times of the last three records
    first_ms: int  # of the first record
    earlier: bool  # some record is older than the one before it
    doubtful: bool  # the last record before `bad` names another place than its own
    bad: int | None  # log offset where reading ended: no valid record, though the split goes on
    queues: tuple[PackedQueue, ...]
    runs: Runs
    light: Flags
    batch_runs: Runs
    item_count: int
    part: Part | None = None  # None: no units, no keys, or nobody wants them


class PackedSplit(NamedTuple):
    """What one split holds: facts, and the bytes of units and keys."""

    facts: SplitFacts
    units: UnitRuns
    batches: BatchRuns
    items: PackedItems


def pack_split(
    split: Split, kernels: Kernels, options: PackOptions, *, at_record: bool = False
) -> PackedSplit:
    """Scan a split and pack what queues and index get from it; a bad place ends it.

    `at_record`: the caller knows that a record starts where the split does.
    """
    return _Packer(split, kernels, options).run(at_record=at_record)


class _Packer:
    """Packs one split. Not thread-safe."""

    def __init__(self, split: Split, kernels: Kernels, options: PackOptions) -> None:
        self._split = split
        self._kernels = kernels
        self._options = options
        self._first = self._end = self._first_ms = NOTHING
        self._records = 0
        self._recent_ms: tuple[int, ...] = ()
        self._earlier = self._last_is_lost = False
        files = FileCache(Disk())
        names = QueueNames(kernels)
        layout = options.layout
        self._units = UnitCollector(layout, files, names, with_times=options.with_ext)
        self._batches = BatchCollector(layout, files, names)
        self._items = ItemCollector(layout, files, kernels, enabled=options.with_index)
        self._dispatcher = Dispatcher(
            kernels,
            self._units,
            self._batches,
            self._items,
            topic_type=self._topic_type,
            multi_dispatch=options.multi_dispatch,
        )

    def _topic_type(self, topic: str) -> QueueType:
        return QueueType.BATCH if topic in self._options.batch_topics else QueueType.SIMPLE

    def run(self, *, at_record: bool) -> PackedSplit:
        state, bad = ReadState(self._split.start), None
        for chunk in self._chunks(state, at_record=at_record):
            bad = self._take(chunk)
            if bad is not None:
                break
        else:
            bad = None if state.is_whole else state.at
        names = self._dispatcher.queues.names
        units, batches = self._units.collected(), self._batches.collected()
        items = pack_items(self._items.parts)
        facts = SplitFacts(
            split=self._split,
            first=self._first,
            end=self._end,
            records=self._records,
            recent_ms=self._recent_ms,
            first_ms=self._first_ms,
            earlier=self._earlier,
            doubtful=bad is not None and self._last_is_lost,
            bad=bad,
            queues=tuple(PackedQueue(*names.name(no), names.kind(no)) for no in range(len(names))),
            runs=units.runs,
            light=units.light,
            batch_runs=batches.runs,
            item_count=items.item_count,
        )
        return PackedSplit(facts, units, batches, items)

    def _chunks(self, state: ReadState, *, at_record: bool) -> Iterable[Chunk]:
        options = self._options
        return read_split(
            self._split,
            open_split(self._split),
            self._kernels,
            options.scan,
            None,
            back_bytes=options.back_bytes,
            at_record=at_record,
            state=state,
        )

    def _take(self, chunk: Chunk) -> int | None:
        """Dispatch records up to one that was torn; return where that lies."""
        rows = chunk.rows
        torn = first_torn(chunk.buffer, rows, self._options.whole_from)
        good = rows[:torn]
        if len(good):
            self._note(good)
            self._units.rows = good
            self._dispatcher.apply(Chunk(chunk.buffer, good))
        return int(rows["log_offset"][torn]) if torn is not None else None

    def _note(self, rows: Rows) -> None:
        times = rows["store_ms"]
        if self._first == NOTHING:
            self._first, self._first_ms = int(rows["log_offset"][0]), int(times[0])
        elif times[0] < self._recent_ms[-1]:
            self._earlier = True
        self._earlier = self._earlier or bool((times[1:] < times[:-1]).any())
        self._end = int(rows["log_offset"][-1]) + int(rows["size"][-1])
        self._records += len(rows)
        self._recent_ms = (*self._recent_ms, *times[-_RECENT:].tolist())[-_RECENT:]
        self._last_is_lost = bool(rows["marks"][-1] & Mark.OFFSET_WRONG)
