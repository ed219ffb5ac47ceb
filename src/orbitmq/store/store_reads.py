"""The reading side of an open store: messages by queue offset, log offset, id, key and time."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from orbitmq.errors import FormatError, StoreClosedError
from orbitmq.format.columns import ScanOptions
from orbitmq.format.cq_unit import PADDING_SIZE, UNIT, CqUnit, decode_units
from orbitmq.format.message_id import decode_offset_id
from orbitmq.format.record import Record, decode_record, store_ms_at
from orbitmq.log_read.reader import Skip, chunks
from orbitmq.log_read.segment import Segment
from orbitmq.message import Boundary, GetStatus, SysFlag
from orbitmq.store.assembly import StoreParts
from orbitmq.store.config import StoreConfig
from orbitmq.store.index.key_query import COUNT_MAX, TIME_MAX, KeyQuery
from orbitmq.store.log.log_reader import store_ms_of
from orbitmq.store.log.mapped_file import LogSpan
from orbitmq.store.queues.batch_queue import BatchQueues
from orbitmq.store.queues.consume_queue import ConsumeQueues
from orbitmq.store.queues.time_search import batch_offset_by_time, offset_by_time
from orbitmq.store.reads.count import Counted, count_matching
from orbitmq.store.reads.get_result import GetResult
from orbitmq.store.reads.read import TOTAL_BYTES_MAX, QueueReader
from orbitmq.store.reads.record_finder import RecordFinder, record_shaped
from orbitmq.store.reads.tag_filter import MessageFilter, TagFilter

NO_TIME = -1
_SCAN_ROWS: Final = 1 << 16  # at a time


class StoreReads:
    """What an open store tells about its messages. Any thread may ask."""

    def __init__(self, config: StoreConfig, parts: StoreParts) -> None:
        self.config = config
        self._parts = parts
        self._log, self._counters = parts.log, parts.counters
        self._closed = False
        self._make_readers()

    def _make_readers(self) -> None:
        config, parts = self.config, self._parts
        dispatcher, log = parts.dispatcher, parts.log
        self._reader = QueueReader(
            config, dispatcher.queues, dispatcher.batch_queues, log, ext=dispatcher.ext
        )
        self._finder = RecordFinder(
            log,
            dispatcher.queues,
            dispatcher.batch_queues,
            dispatched_offset=lambda: parts.dispatch.dispatched_offset,
        )
        self._query = KeyQuery(
            dispatcher.index, self._finder.find, count_max=config.query_count_max
        )

    # Messages

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

    def count_matching(
        self,
        topic: str,
        queue_id: int,
        start: int,
        end: int,
        wanted: MessageFilter | None,
        *,
        scan_max: int,
        matches_max: int,
    ) -> Counted:
        """Return how many messages of a queue between two offsets a filter lets through.

        Looks at `scan_max` units at most, and up to `matches_max` matches; then it is an estimate.
        """
        self._require_open()
        read = partial(self._reader.get, topic, queue_id)
        start = max(start, self.min_offset(topic, queue_id))
        return count_matching(read, start, end, wanted, scan_max, matches_max)

    def record_bytes(self, log_offset: int) -> memoryview | None:
        """Return the bytes of the record that starts at this log offset, or None if none does.

        Any offset may be asked for: bytes that only look like a record are not returned. They are a view
        of the log: copy what is kept for longer than a moment.
        """
        self._require_open()
        return self._finder.find(log_offset)

    def record_of(self, log_offset: int, size: int) -> memoryview | None:
        """Return the bytes that a unit of this store's own files leads to, None if they are gone.

        Nobody proves that a record starts there: see `record_bytes` for offsets that others name.
        """
        return self._log.read(log_offset, size)

    def record_at(self, log_offset: int) -> Record | None:
        """Return the record that starts at this log offset, or None if none does."""
        raw = self.record_bytes(log_offset)
        if raw is None:
            return None
        try:
            return decode_record(raw)
        except FormatError:
            return None

    def committed_from(self, log_offset: int) -> Iterator[Record]:
        """Yield the committed messages of transactions from this record on, in log order.

        The whole log from there on is read: call it in a thread of its own.
        """
        self._require_open()
        options, end = ScanOptions(max_rows=_SCAN_ROWS), self._log.visible_offset()
        for base, data, first, last in self._log.iter_ranges(log_offset, end):
            segment = Segment(base, Path(), data)
            for chunk in chunks(
                segment,
                base + first,
                kernels=self._parts.kernels,
                options=options,
                limit=base + last,
                bad=Skip(),
            ):
                types = chunk.rows["sys_flag"] & SysFlag.TRANSACTION.value
                for row in chunk.rows[types == SysFlag.COMMIT.value]:
                    yield decode_record(data.data, int(row["log_offset"]) - base, check_crc=False)

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

    def index_end(self) -> tuple[int, int]:
        """Return store time and log offset of the last message in the key index; 0, 0: none."""
        self._require_open()
        headers = self._parts.dispatcher.index.headers()
        if not headers:
            return 0, 0
        _, last = headers[-1]
        return last.end_ms, last.end_log_offset

    def store_time(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Return when the message at this queue offset was stored, in ms; -1 if there is none."""
        queues, number = self._find(topic, queue_id)
        if number < 0:
            return NO_TIME
        if isinstance(queues, BatchQueues):
            units = queues.read_units(number, queue_offset, 1)
            return units[0].store_ms if units else NO_TIME
        data = queues.read_units(number, queue_offset, 1)
        if not data:
            return NO_TIME
        log_offset, size, _ = UNIT.unpack(data)
        if size == PADDING_SIZE:
            return NO_TIME
        store_ms = store_ms_of(self._log, log_offset, size)
        return store_ms if store_ms is not None else NO_TIME

    def earliest_time(self) -> int:
        """Return when the oldest message of the log was stored, in ms; -1 if the log is empty."""
        self._require_open()
        raw = record_shaped(self._log, self._log.min_offset)
        if raw is None:
            return NO_TIME
        try:
            return store_ms_at(raw)
        except FormatError:
            return NO_TIME

    def is_in_memory(self, log_offset: int) -> bool:
        """Tell whether `get` takes this place of the log to be in the page cache."""
        self._require_open()
        return self._reader.is_in_memory(log_offset)

    def spans(self, result: GetResult) -> list[LogSpan]:
        """Return where the records of a read lie in files; neighbours in the log are one span."""
        spans: list[LogSpan] = []
        end = -1
        for log_offset, record in zip(result.log_offsets, result.records, strict=True):
            segment = self._log.segments.find(log_offset)
            position = 0 if segment is None else log_offset - segment.base_offset
            last = spans[-1] if spans else None
            if last is not None and end == log_offset and position and segment is not None:
                joined = segment.slice(last.position, len(last.view) + len(record))
                if joined is not None:
                    spans[-1], end = last._replace(view=joined), log_offset + len(record)
                    continue
            # A segment that is gone by now has no file; its view is as good as ever.
            path = segment.path if segment is not None else Path()
            spans.append(LogSpan(path, position, record))
            end = log_offset + len(record)
        return spans

    # Queues

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
        queues, number = self._find(topic, queue_id)
        if number < 0:
            return 0
        if isinstance(queues, BatchQueues):
            return batch_offset_by_time(queues, number, time_ms, boundary)
        return offset_by_time(queues, self._log, number, time_ms, boundary)

    def units(self, topic: str, queue_id: int, offset: int, count: int) -> list[CqUnit]:
        """Return units of a queue from a queue offset on, to the end of one file at most."""
        queues, number = self._find(topic, queue_id)
        if number < 0 or count <= 0:
            return []
        if isinstance(queues, BatchQueues):
            batch = queues.read_units(number, offset, count)
            return [CqUnit(unit.log_offset, unit.size, unit.tag_hash) for unit in batch]
        return decode_units(queues.read_units(number, offset, count))

    def raw_units(self, topic: str, queue_id: int, offset: int, count: int) -> bytes:
        """Return the same as `units` as bytes; none if the queue has units of another kind."""
        queues, number = self._find(topic, queue_id)
        if number < 0 or count <= 0 or isinstance(queues, BatchQueues):
            return b""
        return queues.read_units(number, offset, count)

    def queues(self) -> list[tuple[str, int]]:
        """Return topic and id of every queue."""
        self._require_open()
        dispatcher = self._parts.dispatcher
        numbers = [*dispatcher.queues.numbers(), *dispatcher.batch_queues.numbers()]
        return sorted(dispatcher.queues.names.name(number) for number in numbers)

    def queue_number(self, topic: str, queue_id: int) -> int:
        """Return the number that `on_dispatched` has for this queue; -1 if it never had a message.

        A number never changes and is never given to another queue while the store is open. A queue
        that was deleted and came again has its old number.
        """
        return self._parts.dispatcher.queues.names.find(topic, queue_id)

    def queue_name(self, number: int) -> tuple[str, int]:
        """Return topic and id of the queue with this number."""
        return self._parts.dispatcher.queues.names.name(number)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        """Return the queue offset that the next append gets; dispatch may not have come so far yet."""
        self._require_open()
        return self._log.queue_offsets.next_offset(topic, queue_id)

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
