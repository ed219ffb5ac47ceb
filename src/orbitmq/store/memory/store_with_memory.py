"""StoreWithMemory: a store on disk and topics in memory, behind the methods of `MessageStore`.

Each method asks once where a topic, or a log offset, belongs. A broker without topics in memory has the
plain `MessageStore` and pays for none of this.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from orbitmq.clock import Clock
from orbitmq.files.disk import Disk
from orbitmq.format.cq_unit import CqUnit
from orbitmq.format.message_id import MEMORY_LOG_OFFSET
from orbitmq.message import AppendRequest, AppendResult, AppendStatus, Boundary, Host
from orbitmq.store.config import StoreConfig
from orbitmq.store.index.key_query import COUNT_MAX, TIME_MAX
from orbitmq.store.listeners import tell
from orbitmq.store.log.run import Run
from orbitmq.store.memory.memory_store import MemoryStore
from orbitmq.store.memory.reserve import STATE_FILE
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.read import TOTAL_BYTES_MAX, QueueReader
from orbitmq.store.reads.tag_filter import MessageFilter
from orbitmq.store.statistics import StoreStatistics
from orbitmq.store.store import MessageStore
from orbitmq.store.topic_types import TopicTypes

if TYPE_CHECKING:
    from orbitmq.wire.fast import SendRun

_NUMBERS: Final = 1 << 30
"""Numbers of queues in memory begin here; no store has so many on disk."""

IsMemory = Callable[[str], bool]


class _Reader(QueueReader):
    """Reads a queue where its topic is kept."""

    def __init__(self, disk: QueueReader, memory: MemoryStore, is_memory: IsMemory) -> None:
        self._disk, self._memory, self._is_memory = disk, memory, is_memory

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int,
        *,
        max_bytes: int = TOTAL_BYTES_MAX,
        filter: MessageFilter | None = None,  # noqa: A002
    ) -> GetResult:
        """Return up to `max_count` messages from queue offset `offset` on."""
        where: QueueReader | MemoryStore = self._memory if self._is_memory(topic) else self._disk
        return where.get(topic, queue_id, offset, max_count, max_bytes=max_bytes, filter=filter)

    def is_in_memory(self, log_offset: int) -> bool:
        return log_offset >= MEMORY_LOG_OFFSET or self._disk.is_in_memory(log_offset)


class StoreWithMemory(MessageStore):
    """An open store with topics in memory. Any thread may use it; `close` ends it."""

    memory: MemoryStore
    _is_memory: IsMemory

    @classmethod
    def open_with_memory(
        cls,
        config: StoreConfig,
        *,
        is_memory: IsMemory,
        bytes_max: int = 0,
        clock: Clock | None = None,
        disk: Disk | None = None,
        topic_types: TopicTypes | None = None,
        background: bool = True,
    ) -> Self:
        """Open like `open`; topics of which `is_memory` is true are kept in memory, up to `bytes_max`."""
        store = cls.open(
            config, clock=clock, disk=disk, topic_types=topic_types, background=background
        )
        try:
            store._attach(is_memory, bytes_max)
        except BaseException:
            MessageStore.close(store)
            raise
        return store

    def _attach(self, is_memory: IsMemory, bytes_max: int) -> None:
        self._is_memory = is_memory
        self.memory = MemoryStore(
            self.config,
            clock=self._clock,
            disk=self._deps.disk,
            kernels=lambda: self.kernels,
            state_file=self._deps.layout.config(STATE_FILE),
            bytes_max=bytes_max,
        )
        self._reader = _Reader(self._reader, self.memory, is_memory)

    def reconfigure(self, config: StoreConfig) -> None:
        """Follow settings that only change behaviour."""
        super().reconfigure(config)
        self.memory.use(config)
        self._reader = _Reader(self._reader, self.memory, self._is_memory)

    # Appending

    def append(self, request: AppendRequest) -> AppendResult:
        """Append one message where its topic is kept."""
        if self._is_memory(request.topic):
            return self.append_nowait(request)
        return super().append(request)

    def append_many(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append messages in this order, each where its topic is kept."""
        return self._split(requests, super().append_many)

    def append_client_batch(self, request: AppendRequest) -> list[AppendResult]:
        """Append a producer's batch where its topic is kept."""
        if self._is_memory(request.topic):
            return self.append_client_batch_nowait(request)
        return super().append_client_batch(request)

    def append_nowait(self, request: AppendRequest, *, flush: bool = True) -> AppendResult:
        """Append one message where its topic is kept, and do not wait for the disk."""
        if not self._is_memory(request.topic):
            return super().append_nowait(request, flush=flush)
        result = self.memory.append(request)
        if result.status is AppendStatus.PUT_OK:
            self._grew([self.memory.queue_number(request.topic, request.queue_id)])
        return result

    def append_many_nowait(
        self, requests: Sequence[AppendRequest], *, flush: bool = True
    ) -> list[AppendResult]:
        """Append messages in this order, each where its topic is kept."""
        disk = super().append_many_nowait
        return self._split(requests, lambda some: disk(some, flush=flush))

    def _split(
        self,
        requests: Sequence[AppendRequest],
        disk: Callable[[Sequence[AppendRequest]], list[AppendResult]],
    ) -> list[AppendResult]:
        there = [self._is_memory(request.topic) for request in requests]
        of_disk = [
            request for request, in_memory in zip(requests, there, strict=True) if not in_memory
        ]
        results = iter(disk(of_disk) if of_disk else ())
        return [
            self.append_nowait(request) if in_memory else next(results)
            for request, in_memory in zip(requests, there, strict=True)
        ]

    def append_client_batch_nowait(
        self, request: AppendRequest, *, flush: bool = True
    ) -> list[AppendResult]:
        """Append a producer's batch where its topic is kept, and do not wait for the disk."""
        if not self._is_memory(request.topic):
            return super().append_client_batch_nowait(request, flush=flush)
        results = self.memory.append_client_batch(request)
        if results[0].status is AppendStatus.PUT_OK:
            self._grew([self.memory.queue_number(request.topic, request.queue_id)])
        return results

    def append_sends_nowait(self, run: "SendRun", born_host: Host, *, flush: bool = True) -> bool:
        """Append a run of sends, all on disk or all to one topic in memory; False: one by one, then."""
        if not any(self._is_memory(queue.topic) for queue in run.queues):
            return super().append_sends_nowait(run, born_host, flush=flush)
        grown = self.memory.append_sends(run, born_host)
        if grown is None:
            return False
        self._grew(grown)
        return True

    def append_due_nowait(self, run: Run) -> bool:
        """Append a run of messages whose time has come, if all are of topics on disk."""
        if any(self._is_memory(queue.topic) for queue in run.queues):
            return False
        return super().append_due_nowait(run)

    def _grew(self, numbers: list[int]) -> None:
        """Tell those who wait for these queues in memory; what they have now can be read at once."""
        tell(self._dispatch.on_dispatched, [_NUMBERS + number for number in numbers])

    # Reading; `get` goes by way of `_Reader`

    def record_bytes(self, log_offset: int) -> memoryview | None:
        """Return the bytes of the record at this log offset, in memory or on disk, or None."""
        if log_offset >= MEMORY_LOG_OFFSET:
            return self.memory.record_bytes(log_offset)
        return super().record_bytes(log_offset)

    def query(
        self,
        topic: str,
        key: str,
        max_count: int = COUNT_MAX,
        begin_ms: int = 0,
        end_ms: int = TIME_MAX,
        *,
        exact: bool = False,
    ) -> list[memoryview]:
        """Return the newest records with this key or unique key, in log order."""
        if self._is_memory(topic):
            count = min(max_count, self.config.query_count_max)
            return self.memory.query(topic, key, count, begin_ms, end_ms)
        return super().query(topic, key, max_count, begin_ms, end_ms, exact=exact)

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        if self._is_memory(topic):
            return self.memory.store_time(topic, queue_id, queue_offset)
        return super().store_time(topic, queue_id, queue_offset)

    def min_offset(self, topic: str, queue_id: int) -> int:
        if self._is_memory(topic):
            return self.memory.min_offset(topic, queue_id)
        return super().min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> int:
        if self._is_memory(topic):
            return self.memory.max_offset(topic, queue_id)
        return super().max_offset(topic, queue_id)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        if self._is_memory(topic):
            return self.memory.max_offset(topic, queue_id)
        return super().next_queue_offset(topic, queue_id)

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        if self._is_memory(topic):
            return self.memory.offset_by_time(topic, queue_id, time_ms, boundary)
        return super().offset_by_time(topic, queue_id, time_ms, boundary)

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[CqUnit]:
        if self._is_memory(topic):
            return self.memory.units(topic, queue_id, offset, count)
        return super().units(topic, queue_id, offset, count)

    def queues(self) -> list[tuple[str, int]]:
        return sorted({*super().queues(), *self.memory.queues()})

    def queue_number(self, topic: str, queue_id: int) -> int:
        number = self.memory.queue_number(topic, queue_id)
        return _NUMBERS + number if number >= 0 else super().queue_number(topic, queue_id)

    def queue_name(self, number: int) -> tuple[str, int]:
        if number >= _NUMBERS:
            return self.memory.queue_name(number - _NUMBERS)
        return super().queue_name(number)

    def statistics(self) -> StoreStatistics:
        """Return counts, times and lags; what was sent and read counts wherever it is kept."""
        disk, memory = super().statistics(), self.memory
        return replace(
            disk,
            appended_messages=disk.appended_messages + memory.appended_messages,
            appended_bytes=disk.appended_bytes + memory.appended_bytes,
        )

    # Care

    def delete_topic(self, topic: str) -> None:
        """Remove a topic's queues; what it had in memory is free at once."""
        known = self.memory.delete_topic(topic)
        if not known or any(name == topic for name, _ in super().queues()):
            super().delete_topic(topic)

    def close(self) -> None:
        """Write down how far offsets in memory are, and close the store on disk."""
        if self._closed:
            return
        try:
            self.memory.close()
        finally:
            super().close()
