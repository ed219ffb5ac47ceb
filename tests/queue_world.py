"""Queues, index and dispatch of a store directory, joined without an engine."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from golden_stores import row, settings
from orbitmq.clock import Clock, SystemClock
from orbitmq.files.disk import Disk
from orbitmq.files.layout import QueueKind, StoreLayout
from orbitmq.files.positioned import FileCache
from orbitmq.format import kernels as kernel_sets
from orbitmq.format.columns import ROW, Bytes, PackedUnits, ScanOptions
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import find_property
from orbitmq.format.record import encode_blank, encode_record
from orbitmq.log_read import Chunk
from orbitmq.message import LOOPBACK, AppendRequest, Property, QueueType, SysFlag
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import AdoptionReport, Dispatcher
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.store.index.files import IndexFiles
from orbitmq.store.index.key_query import KeyQuery
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.load import load_queue
from orbitmq.store.queues.names import QueueNames
from orbitmq.store.reads.read import QueueReader
from orbitmq.store.reads.record_finder import RecordFinder

BATCH_TOPIC = "BatchT"


class SegmentsLog:
    """A commit log in memory, made of whole segments (LogReader)."""

    def __init__(self, segments: list[tuple[int, Bytes]], end: int) -> None:
        self._segments = segments
        self.end = end

    @classmethod
    def of_store(cls, layout: StoreLayout, end: int) -> "SegmentsLog":
        files = layout.list_segments()
        return cls([(file.base_offset, np.fromfile(file.path, np.uint8)) for file in files], end)

    @property
    def min_offset(self) -> int:
        return self._segments[0][0] if self._segments else 0

    def visible_offset(self) -> int:
        return self.end

    def read(self, log_offset: int, size: int) -> memoryview | None:
        for base, data in self._segments:
            if base <= log_offset and log_offset + size <= min(base + len(data), self.end):
                return memoryview(data)[log_offset - base : log_offset - base + size]
        return None

    def iter_ranges(self, start: int, end: int) -> Iterator[tuple[int, Bytes, int, int]]:
        for base, data in self._segments:
            first, last = max(start - base, 0), min(end - base, len(data))
            if first < last:
                yield base, data, first, last

    def drop_first(self) -> None:
        self._segments.pop(0)


class LogBuilder:
    """Writes records one after another into segments, as an appender would."""

    def __init__(
        self, segment_bytes: int = 1 << 20, *, first_ms: int = 1_700_000_000_000, step_ms: int = 1
    ) -> None:
        self.segment_bytes = segment_bytes
        self.now_ms = first_ms
        self.step_ms = step_ms
        self.records: list[
            tuple[int, int, AppendRequest, int]
        ] = []  # offset, size, request, number
        self._segments: list[bytearray] = [bytearray()]
        self._next: dict[tuple[str, int], int] = {}

    @property
    def end(self) -> int:
        return (len(self._segments) - 1) * self.segment_bytes + len(self._segments[-1])

    def add(self, request: AppendRequest, queue_offset: int | None = None) -> int:
        """Append one record; return its log offset."""
        queue = request.topic, request.queue_id
        transaction = request.sys_flag & SysFlag.TRANSACTION
        counted = transaction not in (SysFlag.PREPARED, SysFlag.ROLLBACK)
        if queue_offset is None:
            queue_offset = self._next.get(queue, 0) if counted else 0
        if counted:
            count = int(find_property(request.properties, Property.INNER_NUM) or 1)
            self._next[queue] = queue_offset + count
        record = self._encode(request, queue_offset)
        room = self.segment_bytes - len(self._segments[-1])
        if len(record) + 8 > room:
            self._segments[-1] += encode_blank(room).ljust(room, b"\0")
            self._segments.append(bytearray())
            record = self._encode(request, queue_offset)
        self.records.append((self.end, len(record), request, queue_offset))
        self._segments[-1] += record
        self.now_ms += self.step_ms
        return self.records[-1][0]

    def _encode(self, request: AppendRequest, queue_offset: int) -> bytes:
        return encode_record(
            request,
            log_offset=self.end,
            queue_offset=queue_offset,
            store_ms=self.now_ms,
            store_host=LOOPBACK,
        )

    def add_all(self, requests: Iterable[AppendRequest]) -> "LogBuilder":
        for request in requests:
            self.add(request)
        return self

    def log(self) -> SegmentsLog:
        """Return the log as it is now."""
        made = []
        for number, data in enumerate(self._segments):
            whole = np.zeros(self.segment_bytes, np.uint8)
            whole[: len(data)] = np.frombuffer(bytes(data), np.uint8)
            made.append((number * self.segment_bytes, whole))
        return SegmentsLog(made, self.end)


@dataclass
class World:
    """Everything that stands on a commit log."""

    layout: StoreLayout
    log: SegmentsLog
    files: FileCache
    queues: ConsumeQueues
    batch_queues: BatchQueues
    ext: ExtQueues | None
    index: IndexFiles
    dispatcher: Dispatcher
    service: DispatchService
    reader: QueueReader
    keys: KeyQuery

    def write_all(self) -> None:
        if self.ext is not None:
            self.ext.write_out()
        self.queues.write_out(thorough=True)
        self.batch_queues.write_out()
        self.index.flush()


def make_world(
    layout: StoreLayout,
    log: SegmentsLog,
    *,
    kernels: Kernels | None = None,
    clock: Clock | None = None,
    disk: Disk | None = None,
    with_ext: bool = False,
    index_enabled: bool = True,
    options: ScanOptions | None = None,
    **dispatcher_options: Any,
) -> World:
    """Join the parts over a directory; nothing is loaded yet."""
    kernels = kernels if kernels is not None else kernel_sets.plain()
    clock = clock if clock is not None else SystemClock()
    disk = disk if disk is not None else Disk()
    files = FileCache(disk, 32)
    names = QueueNames(kernels)
    queues = ConsumeQueues(layout, files, names)
    batch_queues = BatchQueues(layout, files, names)
    ext = ExtQueues(layout, files, names) if with_ext else None
    index = IndexFiles(layout, files, disk, kernels, clock, enabled=index_enabled)
    dispatcher = Dispatcher(kernels, queues, batch_queues, index, ext=ext, **dispatcher_options)
    service = DispatchService(
        log, dispatcher, kernels, start=log.min_offset, options=options, clock=clock
    )
    config = StoreConfig(root=layout.root, segment_bytes=layout.segment_bytes)
    reader = QueueReader(config, queues, batch_queues, log, ext=ext)
    finder = RecordFinder(
        log,
        queues,
        batch_queues,
        dispatched_offset=lambda: service.dispatched_offset,
    )
    keys = KeyQuery(index, finder.find)
    return World(
        layout, log, files, queues, batch_queues, ext, index, dispatcher, service, reader, keys
    )


def small_layout(root: Path, **sizes: int) -> StoreLayout:
    """Return a layout whose files are full after a few messages."""
    defaults = {
        "segment_bytes": 1 << 20,
        "cq_file_bytes": 10 * 20,
        "ext_file_bytes": 256,
        "batch_cq_file_bytes": 5 * 46,
        "index_slots": 20,
        "index_items": 30,
    }
    return StoreLayout(root, **{**defaults, **sizes})


def load_simple_queues(queues: ConsumeQueues) -> None:
    """Take all simple queues as their files show them, as adoption does with those that have no record."""
    for files in queues.layout.list_queues(QueueKind.SIMPLE):
        load_queue(queues, queues.add(files.topic, files.queue_id), files)


def packed(units: list[tuple[int, int, int, int]]) -> PackedUnits:
    """Pack (queue number, queue offset, log offset, size) as the kernel does."""
    rows = np.zeros(len(units), dtype=ROW)
    for made, (_, queue_offset, log_offset, size) in zip(rows, units, strict=True):
        made["queue_offset"], made["log_offset"], made["size"] = queue_offset, log_offset, size
        made["tag_hash"] = log_offset + 1
    numbers = np.array([unit[0] for unit in units], dtype=np.int32)
    return kernel_sets.plain().pack_units(rows, numbers)


def verify_all(world: World, options: ScanOptions | None = None) -> AdoptionReport:
    """Adopt the store of a world: dispatch its whole log, comparing."""
    kernels, log = kernel_sets.plain(), world.log
    world.dispatcher.begin_verify(log.min_offset)
    for base, data, start, end in log.iter_ranges(log.min_offset, log.end):
        result = kernels.scan(data, start, end, base, options or ScanOptions())
        world.dispatcher.apply(Chunk(data, result.rows), verify=True)
    return world.dispatcher.finish_verify()


def golden_config(name: str, root: Path) -> StoreConfig:
    return StoreConfig.from_settings(root, settings(name))


def golden_world(name: str, root: Path, target: Path | None = None, **options: Any) -> World:
    """Join the parts over an unpacked golden store, or over its log and an empty `target`."""
    config = golden_config(name, root)
    end = row(name, "opened")["maxPhyOffset"]
    log = SegmentsLog.of_store(config.layout(), end)
    layout = golden_config(name, target).layout() if target is not None else config.layout()

    def topic_type(topic: str) -> QueueType:
        return QueueType.BATCH if topic == BATCH_TOPIC else QueueType.SIMPLE

    return make_world(
        layout,
        log,
        with_ext=config.enable_cq_ext,
        topic_type=topic_type,
        options=ScanOptions(delay_ms=config.delay_ms),
        **options,
    )
