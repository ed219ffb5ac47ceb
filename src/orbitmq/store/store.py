"""A message store: everything of one store directory, joined. The only class that a broker sees.

with MessageStore.open(StoreConfig(root=Path("store"))) as store:
    store.append(AppendRequest("Orders", 0, b"hello"))
"""

import logging
import time
from collections.abc import Sequence
from typing import Self

from orbitmq.clock import Clock, SystemClock
from orbitmq.errors import FormatError, StoreClosedError, StoreError
from orbitmq.files.disk import Disk
from orbitmq.format.message_id import decode_offset_id
from orbitmq.format.record import Record, decode_record
from orbitmq.message import (
    AppendRequest,
    AppendResult,
    AppendStatus,
    Boundary,
    GetStatus,
    Property,
)
from orbitmq.store.background import Background
from orbitmq.store.clean import DiskRatio, disk_ratio
from orbitmq.store.closing import Closing
from orbitmq.store.config import StoreConfig
from orbitmq.store.dispatch import Extra
from orbitmq.store.flags import RunningFlags
from orbitmq.store.index.key_query import COUNT_MAX, TIME_MAX, KeyQuery
from orbitmq.store.log.append_rules import TopicTypes
from orbitmq.store.log.flush import GroupCommit
from orbitmq.store.opening import StoreParts, Surroundings, open_parts
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.batch_time_search import batch_offset_by_time
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.time_search import offset_by_time
from orbitmq.store.read import TOTAL_BYTES_MAX, GetResult, QueueReader, ReadLimits
from orbitmq.store.recovery.adopt import RecoveryReport
from orbitmq.store.statistics import StoreStatistics, snapshot
from orbitmq.store.tag_filter import MessageFilter, TagFilter
from orbitmq.units import SECOND_MS

_log = logging.getLogger(__name__)

_NO_WAIT = f"{Property.WAIT}\x01false\x02".encode()


class MessageStore:
    """An open store. Any thread may use it; `close` ends it."""

    def __init__(self, around: Surroundings, parts: StoreParts, *, background: bool) -> None:
        """Use `MessageStore.open`."""
        config = around.config
        self.config = config
        self._around, self._parts = around, parts
        self._clock = around.clock
        self._log, self._dispatch, self._flusher = parts.log, parts.dispatch, parts.flusher
        self._counters = parts.counters
        self._opened_ms = self._clock.monotonic_ms()
        self._closed = False
        self._waits = config.sync_flush
        self._group = GroupCommit(parts.flusher, self._clock, config.sync_flush_timeout_ms)
        self._reader = QueueReader(
            parts.dispatcher.queues,
            parts.dispatcher.batch_queues,
            parts.log,
            ext=parts.dispatcher.ext,
            limits=_read_limits(config),
        )
        self._query = KeyQuery(parts.dispatcher.index, parts.log, count_max=config.query_count_max)
        self._background = Background(config, parts, self._clock)
        self._in_background = background
        self._append_one = parts.log.append_one
        self._appended = self._background.appended
        parts.flusher.on_flushed = parts.flusher.on_committed = self._dispatch.notify
        if background:
            self._background.start()

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Clock | None = None,
        disk: Disk | None = None,
        topic_types: TopicTypes | None = None,
        dispatchers: Sequence[Extra] = (),
        background: bool = True,
        disk_ratio: DiskRatio = disk_ratio,
    ) -> "MessageStore":
        """Open the store in `config.root`, a new one if there is none, and recover what it holds.

        `topic_types` tells BatchCQ topics; by default `config/topics.json` does. `dispatchers` see each
        record that is dispatched from now on. Without `background` there are no threads: the owner
        calls `tick`.
        """
        around = Surroundings(
            config=config,
            layout=config.layout(),
            clock=clock or SystemClock(),
            disk=disk or Disk(),
            topic_types=topic_types,
            dispatchers=dispatchers,
            disk_ratio=disk_ratio,
        )
        return cls(around, open_parts(around), background=background)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            self.close()
        except StoreError:
            if error is None:
                raise
            _log.exception("%s: not closed in order", self.config.root)

    # Appending

    def append(self, request: AppendRequest) -> AppendResult:
        """Append one message. With sync flush this returns when it is on disk (unless WAIT is false)."""
        result = self._append_one(request)
        if self._waits:
            return self._synced([result], [request])[0]
        self._appended()
        return result

    def append_many(self, requests: Sequence[AppendRequest]) -> list[AppendResult]:
        """Append messages in this order; one result for each. A refused one does not stop the rest."""
        results = self._log.append_many(requests)
        if self._waits:
            return self._synced(results, requests)
        self._appended()
        return results

    def append_client_batch(self, request: AppendRequest) -> list[AppendResult]:
        """Append a producer's batch as one unit; one result for each message, or one refusal."""
        results = self._log.append_client_batch(request)
        if self._waits:
            return self._synced(results, [request])
        self._appended()
        return results

    def _synced(
        self, results: list[AppendResult], requests: Sequence[AppendRequest]
    ) -> list[AppendResult]:
        """Wait until what was stored is on disk; a failure is told in every result."""
        stored = [result for result in results if result.status is AppendStatus.PUT_OK]
        if not stored:
            return results
        if all(_NO_WAIT in request.properties for request in requests):
            self._appended()
            return results
        last = stored[-1]
        status, reason = self._group.wait(last.log_offset + last.size)
        if status is AppendStatus.PUT_OK:
            return results
        return [
            result._replace(status=status, reason=reason)
            if result.status is AppendStatus.PUT_OK
            else result
            for result in results
        ]

    def wait_flushed(self, log_offset: int | None = None) -> bool:
        """Make everything before the offset durable, by default all; False if the disk did not in time."""
        target = self._log.written_offset if log_offset is None else log_offset
        if self._log.flushed_offset >= target:
            return True
        return self._group.wait(target)[0] is AppendStatus.PUT_OK

    # Reading

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_count: int = 32,
        *,
        subscription: str | None = None,
        message_filter: MessageFilter | None = None,
        max_bytes: int = TOTAL_BYTES_MAX,
    ) -> GetResult:
        """Return messages of a queue from `offset` on.

        `subscription` is a tag expression (`TagA || TagB`) that is checked by hash, as a broker does.
        The records are views of the log: copy what is kept for longer than a moment.
        """
        self._require_open()
        started = time.perf_counter_ns()
        if message_filter is None and subscription is not None:
            message_filter = TagFilter.parse(subscription)
        found = self._reader.get(
            topic, queue_id, offset, max_count, max_bytes=max_bytes, filter=message_filter
        )
        counters = self._counters
        counters.get_calls += 1
        if found.status is GetStatus.FOUND:
            counters.get_found += 1
            counters.got_messages += found.message_count
            counters.got_bytes += found.total_bytes
        else:
            counters.get_missed += 1
        counters.get_time.add(time.perf_counter_ns() - started)
        return found

    def record_at(self, log_offset: int) -> Record | None:
        """Return the record that starts at this log offset, or None if none does."""
        self._require_open()
        raw = self._log.read_record(log_offset)
        if raw is None or log_offset + len(raw) > self._log.visible_offset():
            return None
        try:
            return decode_record(raw)
        except FormatError:
            return None

    def by_id(self, message_id: str) -> Record | None:
        """Return the message with this offset id (the one that the store gave it), or None.

        FormatError: that is no offset id.
        """
        _, log_offset = decode_offset_id(message_id)
        return self.record_at(log_offset)

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
        """Return the newest records with this key or unique key, in log order; see `KeyQuery.query`."""
        self._require_open()
        return self._query.query(topic, key, max_count, begin_ms, end_ms, exact=exact)

    def min_offset(self, topic: str, queue_id: int) -> int:
        """Return the first queue offset that can be read; 0 for a queue that does not exist."""
        queues, number = self._find(topic, queue_id)
        return queues.min_offset(number) if number >= 0 else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset behind the last message that can be read."""
        queues, number = self._find(topic, queue_id)
        return queues.next_offset(number) if number >= 0 else 0

    def offset_by_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset that a store time stands for; 0 for a queue that does not exist."""
        dispatcher = self._parts.dispatcher
        number = dispatcher.queues.find(topic, queue_id)
        if number >= 0:
            return offset_by_time(dispatcher.queues, self._log, number, time_ms, boundary)
        number = dispatcher.batch_queues.find(topic, queue_id)
        if number < 0:
            return 0
        return batch_offset_by_time(dispatcher.batch_queues, number, time_ms, boundary)

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue."""
        self._require_open()
        dispatcher = self._parts.dispatcher
        numbers = [*dispatcher.queues.numbers(), *dispatcher.batch_queues.numbers()]
        return sorted(dispatcher.queues.names.name(number) for number in numbers)

    # How far everything is

    @property
    def min_log_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_log_offset(self) -> int:
        """Log offset behind the last record that was appended."""
        return self._log.written_offset

    @property
    def flushed_offset(self) -> int:
        return self._log.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        return self._dispatch.dispatched_offset

    @property
    def flags(self) -> RunningFlags:
        return self._parts.flags

    @property
    def recovery_report(self) -> RecoveryReport:
        """What recovery found and did when the store was opened."""
        return self._parts.report

    def wait_dispatched(self, log_offset: int | None = None, timeout: float = 60.0) -> bool:
        """Wait until everything before the offset is in queues and index, by default all; in seconds."""
        target = self._log.written_offset if log_offset is None else log_offset
        if not self._in_background:
            self._dispatch.dispatch_now()
            return self._dispatch.dispatched_offset >= target
        self._background.hurry()
        return self._dispatch.wait_dispatched(target, timeout * SECOND_MS)

    def wait_kernels(self) -> None:
        """Wait until the compiled kernels are in use; only for those who measure."""
        self._background.wait_kernels()

    def statistics(self) -> StoreStatistics:
        """Return counts, times and lags since the store was opened."""
        return snapshot(
            self._counters,
            uptime_ms=round(self._clock.monotonic_ms() - self._opened_ms),
            opened_offset=self._parts.report.end_offset,
            min_log_offset=self.min_log_offset,
            max_log_offset=self.max_log_offset,
            flushed_offset=self.flushed_offset,
            dispatched_offset=self.dispatched_offset,
            visible_offset=self._log.visible_offset(),
            queue_count=len(self._parts.dispatcher.queues.names),
            refusal=self.flags.refusal(),
        )

    # Care

    def tick(self) -> None:
        """Do one round of everything that is due by the clock (a store without threads)."""
        self._require_open()
        self._background.tick()

    def flush(self) -> None:
        """Make everything durable now: the log, then queues and index with snapshot and checkpoint."""
        self._require_open()
        self._flusher.flush(0)
        self._background.flush_queues()

    def delete_expired_now(self) -> None:
        """Delete expired segments now whatever the hour: a round now, and the next 19 rounds."""
        self._require_open()
        self._parts.cleaner.request_rounds()
        if self._in_background:
            self._background.wake_cleaner()
        else:
            self._parts.cleaner.tick()

    def delete_topic(self, topic: str) -> None:
        """Remove the queues of a topic. Its records stay in the log until their segments expire."""
        self._require_open()
        dispatcher, disk = self._parts.dispatcher, self._around.disk
        self._dispatch.dispatch_now()  # else its last records would make the queues anew
        with dispatcher.lock:
            self._log.appender.remove_topic(topic)
            dispatcher.delete_topic(topic, disk)
        # The last snapshot still names those queues: after a crash they would be taken for lost.
        self._background.flush_queues()

    def close(self) -> None:
        """Flush, dispatch and close. A store that failed stays marked as not cleanly stopped.

        StoreFailedError tells that, after everything was closed. A second call does nothing.
        """
        if self._closed:
            return
        self._closed = True
        Closing(self._around, self._parts, self._background).run()

    def _find(self, topic: str, queue_id: int) -> tuple[ConsumeQueues | BatchQueues, int]:
        self._require_open()
        dispatcher = self._parts.dispatcher
        number = dispatcher.queues.find(topic, queue_id)
        if number >= 0:
            return dispatcher.queues, number
        return dispatcher.batch_queues, dispatcher.batch_queues.find(topic, queue_id)

    def _require_open(self) -> None:
        if self._closed:
            raise StoreClosedError(self.config.root, "the store is closed", "Open it again.")


def _read_limits(config: StoreConfig) -> ReadLimits:
    return ReadLimits(
        memory_bytes=config.memory_bytes,
        in_memory_ratio=config.in_memory_ratio,
        bytes_in_memory=config.transfer_bytes_in_memory,
        count_in_memory=config.transfer_count_in_memory,
        bytes_on_disk=config.transfer_bytes_on_disk,
        count_on_disk=config.transfer_count_on_disk,
        filter_bytes=config.filter_bytes_max,
        files_per_read=config.cq_files_per_read,
    )
