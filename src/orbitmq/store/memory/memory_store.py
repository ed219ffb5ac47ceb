"""MemoryStore: appends and reads of topics in memory, below a limit of bytes.

Above the limit the oldest messages of the topic itself go; of a topic that has none, the oldest of all.

Two locks: appends come one after another (`_append_lock`), and whoever looks at records or units, or
changes them, holds `_lock` for that moment. The disk is waited for only with the first.
"""

import struct
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orbitmq.clock import Clock
from orbitmq.errors import FormatError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.format.cq_unit import UNIT_BYTES
from orbitmq.format.kernels import Kernels
from orbitmq.message import (
    TOPIC_BYTES_MAX,
    AppendRequest,
    AppendResult,
    AppendStatus,
    Host,
    QueueType,
    SysFlag,
)
from orbitmq.store.config import StoreConfig
from orbitmq.store.log.append_encode import ClientBatch, SingleRecord
from orbitmq.store.log.append_rules import AppendRules, Prepared, illegal, refuse
from orbitmq.store.memory.limit import default_limit
from orbitmq.store.memory.memory_reads import MemoryReads
from orbitmq.store.memory.queues import MemoryQueue, MemoryQueues, NoBatchQueues
from orbitmq.store.memory.reserve import OffsetReserve
from orbitmq.store.memory.slabs import Slab, TopicRecords
from orbitmq.store.reads.read import QueueReader
from orbitmq.units import KiB, MiB

if TYPE_CHECKING:
    from orbitmq.wire.fast import SendRun

_SLAB_BYTES_MAX: Final = 8 * MiB
_SLABS_LEAST: Final = 64  # the limit is so many slabs at least
_EVICT_AHEAD_MAX: Final = 512 * KiB
_HOSTS_BYTES: Final = 2 * (4 + 4)  # as a record has them: IPv4 and port, of producer and broker

_Target = tuple[MemoryQueue, int]  # and how many messages go there


class MemoryStore(MemoryReads):
    """Topics in memory. Any thread may call it."""

    def __init__(
        self,
        config: StoreConfig,
        *,
        clock: Clock,
        disk: Disk,
        kernels: Callable[[], Kernels],
        state_file: Path,
        bytes_max: int = 0,
    ) -> None:
        self.bytes_max = bytes_max or default_limit()
        # At the limit every send makes older messages go: a little more at a time, one look for many sends.
        self._evict_ahead = min(self.bytes_max // MiB * KiB, _EVICT_AHEAD_MAX)
        self.appended_messages = self.appended_bytes = 0
        self.evicted_messages = 0
        self._kernels = kernels
        self._now_ms = clock.now_ms
        self._append_lock, lock = threading.Lock(), threading.Lock()
        self._held_bytes, self._last_ms, self._closed = 0, 0, False
        self._born_host: Host | None = None  # whose packed hosts `_hosts` are
        self._hosts = b""
        self._reserve = OffsetReserve(state_file, disk, lock, MemoryQueues(kernels))
        super().__init__(lock, self._reserve.queues, self._reserve.log)
        self._rules = AppendRules(config, lambda _: QueueType.SIMPLE)
        self._reserve.load()
        self.use(config)

    def use(self, config: StoreConfig) -> None:
        """Follow these settings."""
        self._config, self._born_host = config, None
        self._rules.use(config)
        # Everything here is in memory, however much that is.
        near = replace(config, memory_bytes=1 << 62)
        self._reader = QueueReader(near, self._queues, NoBatchQueues(), self._log)

    def close(self) -> None:
        """Take nothing more, and write down how far offsets are."""
        with self._append_lock:
            self._closed = True
        self._reserve.close()

    @property
    def held_bytes(self) -> int:
        """What counts against the limit: records, units, and what is lost between records."""
        return self._held_bytes

    @property
    def allocated_bytes(self) -> int:
        """What slabs and units really take."""
        with self._lock:
            units = sum(queue.units.__alloc__() for queue in self._queues)
            return self._log.allocated_bytes + units

    # Topics

    def add_topic(self, topic: str, queues: int) -> None:
        """Have offsets reserved for a topic, so that its first send need not wait for the disk."""
        with self._lock:
            for queue_id in range(queues):
                self._queues.add(topic, queue_id)
        self._reserve.write_soon()

    def delete_topic(self, topic: str) -> bool:
        """Forget a topic and its offsets; tell whether it was known."""
        with self._append_lock:
            with self._lock:
                self._queues.make_units()
                known = self._queues.remove_topic(topic)
                records = self._topics.pop(topic, None)
                if records is not None:
                    self._held_bytes -= records.held_bytes
                    records.clear()
            if known:
                self._reserve.write()
        return known

    # Appending

    def append(self, request: AppendRequest) -> AppendResult:
        """Append one message; the result says where it lies or why it was refused."""
        prepared = self._prepared(request)
        if isinstance(prepared, AppendResult):
            return prepared
        with self._append_lock:
            queue = self._queue(request.topic, request.queue_id)
            config, number = self._config, queue.next_offset
            own = config.store_host
            try:
                record = SingleRecord(prepared, own, number, (), property_crc=config.property_crc)
            except FormatError as error:
                return refuse(AppendStatus.PROPERTIES_SIZE_EXCEEDED, str(error))
            refusal = self._refusal([(queue, 1)], record.size)
            if refusal is not None:
                return refusal
            store_ms = self._store_ms()
            with self._lock:
                log_offset = self._make_room(request.topic, record.size, 1)
                try:
                    encoded = record.encode(log_offset=log_offset, store_ms=store_ms)
                except (struct.error, OverflowError) as error:
                    return illegal(f"a number of the message does not fit its field: {error}")
                slab, at = self._take([(queue, 1)], record.size, 1)
                slab.view[at : at + record.size] = encoded
                self._queues.written(request.topic, slab, record.size)
        return AppendResult(
            AppendStatus.PUT_OK, log_offset, record.size, number, store_ms, queue.queue_id
        )

    def append_client_batch(self, request: AppendRequest) -> list[AppendResult]:
        """Append the messages of a batch body together; one result for each, or one refusal."""
        prepared = self._prepared(request)
        if isinstance(prepared, AppendResult):
            return [prepared]
        config = self._config
        try:
            batch = ClientBatch(
                prepared, self._kernels(), config.store_host, property_crc=config.property_crc
            )
        except (FormatError, OverflowError) as error:
            return [illegal(f"the batch cannot be taken apart: {error}")]
        if not batch.sizes:
            return [illegal("the batch holds no message")]
        with self._append_lock:
            queue, size, count = (
                self._queue(request.topic, request.queue_id),
                batch.total_bytes,
                len(batch.sizes),
            )
            refusal = self._refusal([(queue, count)], size)
            if refusal is not None:
                return [refusal]
            store_ms = self._store_ms()
            with self._lock:
                number = queue.next_offset
                log_offset = self._make_room(request.topic, size, count)
                encoded = batch.encode(
                    log_offset=log_offset, queue_offset=number, store_ms=store_ms
                )
                slab, at = self._take([(queue, count)], size, count)
                slab.view[at : at + size] = encoded
                self._queues.written(request.topic, slab, size)
        return _batch_results(batch.sizes, log_offset, number, store_ms, queue.queue_id)

    def append_sends(self, run: "SendRun", born_host: Host) -> list[int] | None:
        """Append a run of sends to one topic; return its queues' numbers. None: one by one, then."""
        topic, config, size = run.queues[0].topic, self._config, run.record_bytes
        if config.property_crc or len(topic) > TOPIC_BYTES_MAX:
            return None
        if run.waiting or any(queue.topic != topic for queue in run.queues):
            return None
        with self._append_lock:
            if self._born_host is not born_host:
                self._born_host = born_host
                self._hosts = born_host.packed() + config.store_host.packed()
            if len(self._hosts) != _HOSTS_BYTES:
                return None
            targets = [(self._queue(topic, queue.queue_id), queue.messages) for queue in run.queues]
            if self._refusal(targets, size) is not None:
                return None
            store_ms = self._store_ms()
            with self._lock:
                offsets = [queue.next_offset for queue, _ in targets]
                count = sum([messages for _, messages in targets])
                self._make_room(topic, size, count)
                slab, at = self._take(targets, size, count)
                run.write(slab.data, at, slab.base + at, store_ms, self._hosts, offsets)
                run.publish()
                self._queues.written(topic, slab, size)
        return [queue.number for queue, _ in targets]

    def _prepared(self, request: AppendRequest) -> Prepared | AppendResult:
        """Return the message as it becomes a record, or why a topic in memory does not take it."""
        prepared = self._rules.prepare(request)
        if isinstance(prepared, AppendResult):
            return prepared
        where = f"topic {request.topic} is kept in memory"
        if prepared.request.topic != request.topic:
            return illegal(f"{where}: a delayed message would wait on disk; send it without DELAY")
        if request.sys_flag & SysFlag.TRANSACTION:
            return illegal(f"{where}: send without a transaction")
        if prepared.light_queues:
            return illegal(f"{where}: it has no light queues; send without INNER_MULTI_DISPATCH")
        return prepared

    # Below, up to the reads: only with the append lock held

    def _queue(self, topic: str, queue_id: int) -> MemoryQueue:
        number = self._queues.find(topic, queue_id)
        if number >= 0:
            return self._queues[number]
        with self._lock:
            return self._queues.add(topic, queue_id)

    def _store_ms(self) -> int:
        self._last_ms = max(self._now_ms(), self._last_ms)
        return self._last_ms

    def _refusal(self, targets: Sequence[_Target], size: int) -> AppendResult | None:
        """Return why so much cannot be taken; None: it can, and its offsets are reserved."""
        if self._closed:
            return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, "the store is closed")
        count = sum([messages for _, messages in targets])
        if size + count * UNIT_BYTES > self.bytes_max:
            limit = f"memoryTopicBytesMax is {self.bytes_max}"
            return illegal(f"the record takes {size + count * UNIT_BYTES} bytes, {limit}")
        if self._reserve.covers(targets, max(size, _SLAB_BYTES_MAX)):
            return None
        try:
            self._reserve.write()
        except StoreError as error:
            reason = f"no offsets left for topics in memory, and none could be reserved: {error}"
            return refuse(AppendStatus.SERVICE_NOT_AVAILABLE, reason)
        return None

    def _make_room(self, topic: str, size: int, count: int) -> int:
        """Have older messages go if they must; return the log offset of what is written next."""
        records = self._topics.get(topic)
        if records is None:
            slab_max = min(_SLAB_BYTES_MAX, self.bytes_max // _SLABS_LEAST)
            records = self._topics[topic] = TopicRecords(self._log, slab_max)
        while (over := self._held_bytes + records.growth(size, count) - self.bytes_max) > 0:
            oldest = topic if records.slabs else self._oldest_topic()
            self._evict(oldest, over + self._evict_ahead)
        return records.next_log_offset(size)

    def _take(self, targets: Sequence[_Target], size: int, count: int) -> tuple[Slab, int]:
        """Give offsets to so many messages, and return where to write them; there is room."""
        records = self._topics[targets[0][0].topic]
        for queue, messages in targets:
            queue.next_offset += messages
        before = records.held_bytes
        taken = records.take(size, count)
        self._held_bytes += records.held_bytes - before
        self.appended_messages += count
        self.appended_bytes += size
        return taken

    def _evict(self, topic: str, wanted: int) -> None:
        """Let go of so many bytes of a topic, at most of its oldest slab."""
        records = self._topics[topic]
        if records.slabs[0].with_units < records.slabs[0].used:
            self._queues.make_units()
        before = records.held_bytes
        for queue_id, count in records.drop(wanted, self._kernels()).items():
            self._queues.add(topic, queue_id).drop(count)
            self.evicted_messages += count
        self._held_bytes -= before - records.held_bytes

    def _oldest_topic(self) -> str:
        held = (name for name, records in self._topics.items() if records.slabs)
        return min(held, key=lambda name: self._topics[name].oldest_ms())


def _batch_results(
    sizes: list[int], log_offset: int, number: int, store_ms: int, queue_id: int
) -> list[AppendResult]:
    results = []
    for index, size in enumerate(sizes):
        at = number + index
        results.append(AppendResult(AppendStatus.PUT_OK, log_offset, size, at, store_ms, queue_id))
        log_offset += size
    return results
