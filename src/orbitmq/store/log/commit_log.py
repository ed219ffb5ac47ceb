"""The commit log: one sequence of records for all topics and queues, in segments.

Invariants:
  min_offset <= flushed_offset <= readable_end <= written_offset
  a record never spans two segments; the rest of a full segment is one blank record
  store times do not decrease along the log

Readers take no lock: they read an end offset once and never look past it.
"""

from collections.abc import Iterator

from orbitmq.clock import Clock
from orbitmq.format.columns import Bytes
from orbitmq.format.kernels import Kernels
from orbitmq.store.config import StoreConfig
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.allocate import SegmentAllocator
from orbitmq.store.log.append_rules import AppendRules
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.mapped_file import LogSpan, MappedFile
from orbitmq.store.log.queue_offsets import QueueOffsets
from orbitmq.store.log.replicated import ReplicatedLog
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.log.transient_pool import TransientPool
from orbitmq.store.log.write_head import WriteHead
from orbitmq.store.statistics import Counters


class CommitLog:
    """The log of a store. Any thread may append and read."""

    def __init__(
        self,
        config: StoreConfig,
        segments: SegmentList,
        rules: AppendRules,
        *,
        clock: Clock,
        kernels: Kernels,
        flags: RunningFlags | None = None,
        counters: Counters | None = None,
    ) -> None:
        counters = counters if counters is not None else Counters()
        self.segments = segments
        self.pool = (
            TransientPool(config.transient_pool_size, config.segment_bytes)
            if config.uses_pool
            else None
        )
        self.allocator = SegmentAllocator(
            self._create_segment,
            config.segment_bytes,
            wait_ms=config.allocate_wait_ms,
            timing=counters.allocate_time,
        )
        flags = flags if flags is not None else RunningFlags()
        self._head = WriteHead(
            segments,
            self.allocator,
            self.pool,
            by_file=config.sync_flush and self.pool is None,
            on_failure=flags.fail,
        )
        self.appender = Appender(
            config,
            self._head,
            rules,
            clock=clock,
            kernels=kernels,
            flags=flags,
            counters=counters,
        )
        self.replicated = ReplicatedLog(self.appender, self._head, segments, flags)
        # Bound here, so that a call of the log is a call of the appender and nothing in between.
        self.append_one = self.appender.append_one
        self.append_many = self.appender.append_many
        self.append_sends = self.appender.append_sends
        self.append_due = self.appender.append_due
        self.append_client_batch = self.appender.append_client_batch
        self._config = config
        self.follows_flush = config.sync_flush and not config.read_uncommitted

    def resume(self, end_offset: int, last_store_ms: int = 0) -> None:
        """Cut the log at `end_offset`, where recovery found its end, and go on writing there."""
        self.segments.truncate(end_offset)
        self._advise()
        last = self.segments.last
        if self.pool is not None and last is not None and not last.is_full:
            last.buffer = self.pool.borrow()
        self.appender.resume(end_offset, last_store_ms)

    def use(self, config: StoreConfig) -> None:
        """Follow these settings from the next append, and the next segment, on."""
        self._config = config
        self.appender.use(config)
        self._advise()

    def _advise(self) -> None:
        for segment in self.segments:
            segment.read_ahead(self._config.read_ahead)

    def prepare(self) -> None:
        """Have the segment that the next record needs preallocated, if the log has none to go on in."""
        if self.segments.last is None:
            first = self.segments.next_base_offset(self.written_offset)
            self.allocator.request_after(first - self.segments.segment_bytes)

    def close(self) -> None:
        """Refuse appends and remove the preallocated segments. Flushing is done before."""
        self.appender.close()
        self.allocator.stop()
        self.segments.close()
        if self.pool is not None:
            self.pool.close()

    # Offsets

    @property
    def min_offset(self) -> int:
        return self.segments.min_offset

    @property
    def written_offset(self) -> int:
        return self._head.written_offset

    @property
    def readable_end(self) -> int:
        """How far the bytes can be read; behind `written_offset` only with a transient pool."""
        return self.written_offset if self.pool is None else self.segments.readable_end

    @property
    def flushed_offset(self) -> int:
        return self.segments.flushed_offset

    def visible_offset(self) -> int:
        """Return how far dispatch and readers may look: with sync flush, what is on disk."""
        return self.flushed_offset if self.follows_flush else self.readable_end

    @property
    def last_store_ms(self) -> int:
        return self.appender.last_store_ms

    @property
    def queue_offsets(self) -> QueueOffsets:
        return self.appender.offsets

    # Reading

    def read(self, log_offset: int, size: int) -> memoryview | None:
        """Return these bytes, or None if they are not, or no longer, in the log."""
        segment = self.segments.find(log_offset)
        if segment is None:
            return None
        return segment.slice(log_offset - segment.base_offset, size)

    def read_span(self, log_offset: int, bytes_max: int) -> LogSpan | None:
        """Return what is visible from this offset on, within one segment; None: nothing is there."""
        segment = self.segments.find(log_offset)
        if segment is None:
            return None
        end = min(self.visible_offset(), segment.end_offset, log_offset + bytes_max)
        position = log_offset - segment.base_offset
        view = segment.slice(position, end - log_offset) if end > log_offset else None
        return None if view is None else LogSpan(segment.path, position, view)

    def iter_ranges(self, start: int, end: int) -> Iterator[tuple[int, Bytes, int, int]]:
        """Yield (base offset, segment bytes, start position, end position) for each segment of a range."""
        offset = max(start, self.min_offset)
        end = min(end, self.readable_end)
        while offset < end:
            segment = self.segments.find(offset)
            if segment is None:  # cleaned meanwhile
                return
            position = offset - segment.base_offset
            stop = min(end - segment.base_offset, segment.size)
            yield segment.base_offset, segment.array, position, stop
            offset = segment.base_offset + stop

    # Segments

    def _create_segment(self, base_offset: int) -> MappedFile:
        config = self._config
        path = self.segments.path_for(base_offset)
        segment = MappedFile.create(self.segments.disk, path, base_offset, config.segment_bytes)
        if config.warm_segments:
            segment.warm(sync_every_pages=config.warm_flush_pages if config.sync_flush else 0)
        segment.read_ahead(config.read_ahead)
        return segment
