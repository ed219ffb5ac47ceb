"""Dispatch: what the commit log holds goes into queues and index (RocketMQ: reput).

One call takes many records. The kernels do the work per record; here is only what decides where it goes:

  kind of record                     queue unit    index
  plain, committed                   yes           yes
  prepared (half message)            no            yes
  rolled back                        no            no
  filler                             yes           it has no keys

A chunk that was dispatched before changes nothing. After an error the same chunk is given again.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orbitmq.errors import FormatError
from orbitmq.files.disk import Disk
from orbitmq.format.batch_unit import BatchUnit
from orbitmq.format.columns import Mark, PackedUnits
from orbitmq.format.cq_unit import UNIT_DTYPE
from orbitmq.format.kernels import Kernels
from orbitmq.format.properties import find_property
from orbitmq.log_read import Chunk
from orbitmq.message import LMQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC, Property, QueueType
from orbitmq.store.index.files import IndexFiles
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues, Replace
from orbitmq.store.queues.cq_ext import ExtQueues
from orbitmq.store.queues.names import BATCH, SIMPLE
from orbitmq.store.queues.trim import delete_topic
from orbitmq.store.topic_types import TopicTypes, all_simple
from orbitmq.store.verify.adopt_index import IndexVerifier, IndexVerifyReport
from orbitmq.store.verify.adopt_queues import (
    BatchVerifier,
    QueueDifference,
    QueueVerifier,
    QueueVerifyReport,
)

log = logging.getLogger(__name__)

_SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_NEW_ROWS = 256

QueueNumbers = npt.NDArray[np.int32]
Extra = Callable[[Chunk], None]
"""Sees every record once, in log order, after it is in queues and index."""
Bitmap = Callable[[Chunk, int], bytes | None]
"""(chunk, row) -> the filter bitmap of a message, for its ext unit."""


@dataclass(frozen=True, slots=True)
class AdoptionReport:
    """How queues and index differed from the log; everything was put right."""

    queues: QueueVerifyReport = field(default_factory=QueueVerifyReport)
    batch_queues: list[QueueDifference] = field(default_factory=list)
    index: IndexVerifyReport = field(default_factory=IndexVerifyReport)

    @property
    def is_clean(self) -> bool:
        queues = self.queues.differences or self.queues.bad_files or self.batch_queues
        return not queues and self.index.is_clean


@dataclass(slots=True)
class _Adoption:
    log_min: int
    queues: QueueVerifier
    batch_queues: BatchVerifier
    index: IndexVerifier | None


class Dispatcher:
    """Puts chunks where they belong. One thread at a time dispatches; `lock` says who."""

    def __init__(
        self,
        kernels: Kernels,
        queues: ConsumeQueues,
        batch_queues: BatchQueues,
        index: IndexFiles,
        *,
        ext: ExtQueues | None = None,
        topic_type: TopicTypes = all_simple,
        extra: Sequence[Extra] = (),
        multi_dispatch: bool = False,
        bitmap: Bitmap | None = None,
    ) -> None:
        self.lock = threading.RLock()  # held while a chunk is applied, and to capture a snapshot
        self.dispatched_ms = 0  # store time of the newest dispatched record
        self.extra = list(extra)
        self.bitmap = bitmap
        self.topic_type = topic_type
        self.queues = queues
        self.batch_queues = batch_queues
        self.index = index
        self.ext = ext
        self._kernels = kernels
        self._names = queues.names
        self._multi_dispatch = multi_dispatch  # enableMultiDispatch
        self._adoption: _Adoption | None = None

    def use(self, kernels: Kernels) -> None:
        """Work with other kernels from now on."""
        with self.lock:
            self._names.use(kernels)
            self.index.use(kernels)
            self._kernels = kernels

    def apply(self, chunk: Chunk, *, verify: bool = False) -> list[QueueNumbers]:
        """Dispatch the records of a chunk; `verify` while a store is adopted.

        Returns the numbers of the queues that got units, in parts, with repeats.
        """
        if not len(chunk.rows):
            return []
        with self.lock:
            assert verify == (self._adoption is not None)
            filled = self._build_queues(chunk)
            self._build_index(chunk)
            self._spill()
            self.dispatched_ms = int(chunk.rows["store_ms"][-1])
            for dispatch in self.extra:
                dispatch(chunk)
        return filled

    def _spill(self) -> None:
        if self.ext is not None:
            self.ext.spill()
        self.queues.spill()
        self.batch_queues.spill()

    # --- queues ---

    def _build_queues(self, chunk: Chunk) -> list[QueueNumbers]:
        filled: list[QueueNumbers] = []
        numbers = self._numbers(chunk)
        if not self._names.all_simple:
            numbers = self._split_off_batches(chunk, numbers, filled)
        packed = self._kernels.pack_units(chunk.rows, numbers)
        verify = self._adoption is not None
        self.queues.apply(packed, verify=verify, replace=self._replace(chunk, packed))
        if self._multi_dispatch:
            for row in np.flatnonzero(chunk.rows["marks"] & Mark.MULTI_DISPATCH).tolist():
                filled.append(np.array(self._dispatch_to_many(chunk, row), dtype=np.int32))
        filled.append(packed.runs["queue_no"])
        return filled

    def _numbers(self, chunk: Chunk) -> QueueNumbers:
        """Return the queue number of each row; queues that were not known are added."""
        rows = chunk.rows
        numbers = self._names.table.resolve(chunk.buffer, rows)
        unknown = np.flatnonzero(numbers < 0)
        unknown = unknown[rows["marks"][unknown] & Mark.NO_UNIT == 0]
        while len(unknown):
            # A first chunk is full of new queues, but the first rows of it name nearly all of them.
            some = unknown[:_NEW_ROWS].tolist()
            named = ((_topic(chunk, row), int(rows["queue_id"][row])) for row in some)
            for queue in dict.fromkeys(named):
                self._add_queue(*queue)
            numbers[unknown] = self._names.table.resolve(chunk.buffer, rows[unknown])
            unknown = unknown[numbers[unknown] < 0]
        return numbers

    def _add_queue(self, topic: bytes, queue_id: int) -> int:
        known = self._names.table.find(topic, queue_id)
        if known >= 0:
            return known
        kind = self.topic_type(topic.decode("utf-8", "replace"))
        return self._names.add_raw(topic, queue_id, BATCH if kind is QueueType.BATCH else SIMPLE)

    def _split_off_batches(
        self, chunk: Chunk, numbers: QueueNumbers, filled: list[QueueNumbers]
    ) -> QueueNumbers:
        """Hand rows of BatchCQ topics to their queues; return the numbers of the others."""
        kinds = self._names.kinds[numbers]
        simple = np.where((numbers >= 0) & (kinds == SIMPLE), numbers, -1).astype(np.int32)
        has_unit = chunk.rows["marks"] & Mark.NO_UNIT == 0
        batch_rows = np.flatnonzero((numbers >= 0) & (kinds == BATCH) & has_unit)
        for row in batch_rows.tolist():
            self._put_batch(chunk.rows[row], int(numbers[row]))
        filled.append(numbers[batch_rows])
        return simple

    def _put_batch(self, row: np.void, number: int) -> None:
        unit = BatchUnit(
            int(row["log_offset"]),
            int(row["size"]),
            int(row["tag_hash"]),
            int(row["store_ms"]),
            int(row["queue_offset"]),
            int(row["batch_count"]),
        )
        try:
            self.batch_queues.put(number, unit)
        except FormatError as error:
            log.warning("record at %d: left out of its batch queue: %s", unit.log_offset, error)

    def _replace(self, chunk: Chunk, packed: PackedUnits) -> Replace | None:
        """Return what gives each unit its ext unit; None without ext files."""
        if self.ext is None:
            return None
        ext, bitmap, adoption = self.ext, self.bitmap, self._adoption
        store_ms = chunk.rows["store_ms"]

        def note(number: int, first: int, count: int, units: bytes) -> bytes:
            # While comparing it is not known yet whether the file has an ext unit for it.
            assert adoption is not None
            adoption.queues.note_times(number, store_ms[packed.row_index[first : first + count]])
            return units

        def replace(number: int, first: int, count: int, units: bytes) -> bytes:
            replaced = np.frombuffer(units, UNIT_DTYPE).copy()
            for index, row in enumerate(packed.row_index[first : first + count].tolist()):
                bits = bitmap(chunk, row) if bitmap is not None else None
                tag_hash = int(replaced["tag_hash"][index])
                replaced["tag_hash"][index] = ext.put(
                    number, tag_hash, int(store_ms[row]), bits or b""
                )
            return replaced.tobytes()

        return note if adoption is not None else replace

    def _dispatch_to_many(self, chunk: Chunk, row: int) -> list[int]:
        """Add the units of a light message queue record; return the numbers of the queues."""
        record = chunk.rows[row]
        queues = light_queues(chunk, row)
        if queues is None:
            log.error("record at %d: names and offsets of its queues differ", record["log_offset"])
            return []
        filled: list[int] = []
        for topic, queue_id, offset in queues:
            number = self._add_queue(topic, queue_id)
            if self._names.kind(number) == SIMPLE:
                place = int(record["log_offset"]), int(record["size"]), int(record["tag_hash"])
                self.queues.put_unit(number, offset, *place)
                filled.append(number)
        return filled

    # --- index ---

    def _build_index(self, chunk: Chunk) -> None:
        if not self.index.enabled or not chunk.rows["key_count"].any():
            return
        items = chunk.items
        if items is None:
            items = self._kernels.index_items(chunk.buffer, chunk.rows)
        adoption = self._adoption
        if adoption is not None and adoption.index is not None:
            adoption.index.take(items)
        else:
            self.index.insert(items)

    def write_and_sync(self) -> None:
        """Bring everything that was dispatched to the disk."""
        self.sync_queues()
        self.index.flush()

    def sync_queues(self) -> None:
        """Bring the queues to the disk, without the index."""
        # Ext units before the queue units that point to them.
        if self.ext is not None:
            self.ext.write_out()
            self.ext.sync()
        self.queues.write_out(thorough=True)
        self.batch_queues.write_out()
        self.queues.sync()
        self.batch_queues.sync()

    # --- topics that go away ---

    def delete_topic(self, topic: str, disk: Disk) -> None:
        """Remove all queues of a topic, of every family, with their files."""
        with self.lock:
            if self.ext is not None:
                for number in self._names.of_topic(topic):
                    self.ext.delete_queue(number)
            delete_topic(self.queues, topic, disk)
            self.batch_queues.delete_topic(topic, disk)

    # --- adopting a store ---

    def begin_verify(self, log_min: int) -> None:
        """From now on compare with the files; dispatch the whole log, then call `finish_verify`."""
        with self.lock:
            index = IndexVerifier(self.index, log_min) if self.index.enabled else None
            self._adoption = _Adoption(
                log_min,
                QueueVerifier(self.queues, self.ext),
                BatchVerifier(self.batch_queues),
                index,
            )
            self._adoption.queues.begin()
            self._adoption.batch_queues.begin()

    def finish_verify(self) -> AdoptionReport:
        """Put right what differs; return what that was. Everything still has to be flushed."""
        with self.lock:
            adoption = self._adoption
            assert adoption is not None
            self._adoption = None
            return AdoptionReport(
                adoption.queues.finish(adoption.log_min),
                adoption.batch_queues.finish(adoption.log_min),
                adoption.index.finish() if adoption.index is not None else IndexVerifyReport(),
            )


def light_queues(chunk: Chunk, row: int) -> list[tuple[bytes, int, int]] | None:
    """Return (topic, queue id, queue offset) for each light message queue that a record is in.

    None: the record names them, but does not say where it is in each.
    """
    topic = _topic(chunk, row).decode("utf-8", "replace")
    if topic == SCHEDULE_TOPIC or topic.startswith((RETRY_PREFIX, _SYSTEM_TOPIC_PREFIX)):
        return []
    start = int(chunk.rows["properties_at"][row])
    raw = chunk.buffer[start : start + int(chunk.rows["properties_length"][row])].tobytes()
    names = (find_property(raw, Property.MULTI_DISPATCH) or "").split(",")
    offsets = (find_property(raw, Property.MULTI_QUEUE_OFFSET) or "").split(",")
    if len(names) != len(offsets) or not all(text.isdecimal() for text in offsets):
        return None
    own_id = int(chunk.rows["queue_id"][row])
    return [
        (name.encode(), 0 if name.startswith(LMQ_PREFIX) else own_id, int(offset))
        for name, offset in zip(names, offsets, strict=True)
        if "/" not in name
    ]


def _topic(chunk: Chunk, row: int) -> bytes:
    start = int(chunk.rows["topic_at"][row])
    return chunk.buffer[start : start + int(chunk.rows["topic_length"][row])].tobytes()
