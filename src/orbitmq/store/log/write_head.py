"""Where the appender writes: the segment in use, the position in it, and the step to the next one.

A record's first eight bytes (size and magic) are written last, which publishes it: the process may be
killed while it copies, at a page fault for example, and whoever finds a size and a magic then finds a
whole record.
The body's CRC alone would not tell, because it does not cover the properties. Of several records that
are copied together, all get these bytes afterwards, in order: a record further on that could already be
recognised would look like one behind a damaged place.

A store that syncs before it answers writes through the file (`by_file`), not through the mapping: what
is written to a mapping makes the whole of a large page dirty, and every sync would write two megabytes
for one message. One call writes whole records from the first byte on; what a kill leaves of it is
records and the beginning of one, as after a power cut, and recovery cuts that off.
"""

import mmap
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.errors import StoreError
from orbitmq.format.record import BLANK, BLANK_BYTES, BLANK_MAGIC
from orbitmq.message import AppendResult, AppendStatus
from orbitmq.store.log.allocate import SegmentAllocator
from orbitmq.store.log.append_rules import illegal, refuse
from orbitmq.store.log.mapped_file import MappedFile
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.log.transient_pool import TransientPool
from orbitmq.units import MiB

PREFIX: Final = BLANK  # size and magic: the first two fields of a record too
_publish: Final = PREFIX.pack_into

_PREFAULT_BYTES: Final = 4 * MiB  # pages ahead of the write position are prefaulted in such steps


class WriteHead:
    """The end of the log. Guarded by the append lock; anybody may read `written_offset`."""

    def __init__(
        self,
        segments: SegmentList,
        allocator: SegmentAllocator,
        pool: TransientPool | None,
        *,
        by_file: bool = False,
        on_failure: Callable[[StoreError], None] | None = None,
    ) -> None:
        self.by_file = by_file
        self._on_failure = on_failure
        self.written_offset = 0
        self.segment: MappedFile | None = None
        self.target: mmap.mmap | None = None
        self.base = 0  # base offset of the segment
        self.position = 0
        self.limit = -1  # a record that ends behind this needs `make_room`; -1: there is no segment
        self._segments, self._allocator, self._pool = segments, allocator, pool

    def resume(self, end_offset: int) -> None:
        """Go on at `end_offset`, the end of the last segment's data."""
        self.written_offset = end_offset
        last = self._segments.last
        if last is None or last.is_full:
            self.stop()
        else:
            self._use(last)
        if last is not None:
            self._allocator.request_after(last.base_offset)

    def stop(self) -> None:
        """Let go of the segment; the next record needs `make_room`."""
        self.segment, self.target, self.limit = None, None, -1

    def write(
        self, unpublished: bytes | bytearray, prefixes: Sequence[tuple[int, int, int]]
    ) -> None:
        """Copy records to the write position and publish them; there is room for them.

        They have zeros in place of size and magic: these come from `prefixes`, with the position of each.
        """
        if not unpublished:
            return
        if self.by_file:
            self.write_by_file(_published(unpublished, prefixes, self.position))
            return
        target, segment, position = self.target, self.segment, self.position
        assert target is not None
        assert segment is not None
        end = position + len(unpublished)
        target[position:end] = unpublished
        for at, size, magic in prefixes:
            _publish(target, at, size, magic)
        self.position = segment.written = end
        self.written_offset = self.base + end

    def write_whole(self, records: bytes, sizes: Sequence[int]) -> None:
        """Write records that have their size and magic already; they too are published last."""
        if self.by_file:
            self.write_by_file(records)
            return
        unpublished, prefixes, at = bytearray(records), [], 0
        for size in sizes:
            prefixes.append((self.position + at, *PREFIX.unpack_from(records, at)))
            PREFIX.pack_into(unpublished, at, 0, 0)
            at += size
        self.write(unpublished, prefixes)

    def write_by_file(self, records: bytes | bytearray | memoryview) -> None:
        """Write whole records at the write position through the file; there is room for them.

        After a failure nothing more may be written: the queues have counted these records already.
        """
        self._write_by_file(records, self.position)
        self.advance(len(records))

    def _write_by_file(self, data: bytes | bytearray | memoryview, position: int) -> None:
        assert self.segment is not None
        try:
            self.segment.write(position, data)
        except StoreError as error:
            if self._on_failure is not None:
                self._on_failure(error)
            raise

    def advance(self, size: int) -> None:
        """Count bytes that were written at the write position."""
        assert self.segment is not None
        self.position = self.segment.written = self.position + size
        self.written_offset = self.base + self.position

    def fits(self, size: int) -> bool:
        """Tell whether so many bytes fit into this segment; if so, they may be written."""
        segment, end = self.segment, self.position + size
        if segment is None or end > segment.size - BLANK_BYTES:
            return False
        if end > self.limit:
            self._move_limit()
            self.limit = max(self.limit, end)
        return True

    def write_ahead(self, log_offset: int, data: memoryview) -> None:
        """Write bytes of a replica's log into the segment in use; `show` counts them."""
        assert self.segment is not None
        self._write_by_file(data, log_offset - self.base)

    def show(self, end_offset: int) -> None:
        """Take this for the end of the log: whole records, or a blank, lie before it."""
        segment = self.segment
        assert segment is not None
        self.position = segment.written = end_offset - self.base
        self.written_offset = end_offset
        if segment.is_full:
            self.stop()

    def next_segment(self) -> None:
        """Go on in a new segment. StoreError: there is none, and nothing has changed."""
        fresh = self._allocator.take(self._segments.next_base_offset(self.written_offset))
        self._segments.add(fresh)
        self._use(fresh)
        self._allocator.request_after(fresh.base_offset)

    def make_room(self, size: int) -> AppendResult | None:
        """Make sure that so many bytes fit, in a new segment if need be.

        A refusal if there is none; then nothing has changed. StoreError: the end of the full one could
        not be written, and nothing more may be.
        """
        segment_bytes = self._segments.segment_bytes
        if self.fits(size):
            return None
        if size + BLANK_BYTES > segment_bytes:
            room = segment_bytes - BLANK_BYTES
            return illegal(f"a record of {size} bytes does not fit a segment, which takes {room}")
        if self._pool is not None and self._pool.free_count == 0:
            reason = "all transient buffers are in use: the disk does not keep up"
            return refuse(AppendStatus.OS_PAGE_CACHE_BUSY, reason)
        try:
            fresh = self._allocator.take(self._segments.next_base_offset(self.written_offset))
        except StoreError as error:
            return refuse(AppendStatus.CREATE_MAPPED_FILE_FAILED, str(error))
        if self._pool is not None:
            fresh.buffer = self._pool.borrow()
        try:
            # Only now: without a next segment a smaller message may still fit into this one.
            self._seal()
        except StoreError:
            self._allocator.give_back(fresh)
            raise
        self._segments.add(fresh)
        self._use(fresh)
        self._allocator.request_after(fresh.base_offset)
        return None

    def _use(self, segment: MappedFile) -> None:
        self.segment, self.target = segment, segment.target
        self.base, self.position = segment.base_offset, segment.written
        segment.prefaulted = max(segment.prefaulted, segment.written)
        self._move_limit()

    def _move_limit(self) -> None:
        """Let appends go on for some pages, and have those behind them prefaulted meanwhile."""
        segment, position = self.segment, self.position
        assert segment is not None
        end = segment.size - BLANK_BYTES
        if self._pool is not None or segment.size < 2 * _PREFAULT_BYTES:
            self.limit = end
            return
        self.limit = min(end, position + _PREFAULT_BYTES)
        self._allocator.prefault(segment, position + 4 * _PREFAULT_BYTES)

    def _seal(self) -> None:
        """Fill the rest of the segment with a blank record."""
        segment, target, position = self.segment, self.target, self.position
        if segment is None or target is None:
            return
        if self.by_file:
            self._write_by_file(PREFIX.pack(segment.size - position, BLANK_MAGIC), position)
        else:
            PREFIX.pack_into(target, position, segment.size - position, BLANK_MAGIC)
        segment.data_end = position + BLANK_BYTES
        segment.written = segment.size
        self.written_offset = segment.end_offset


def _published(
    unpublished: bytes | bytearray, prefixes: Sequence[tuple[int, int, int]], position: int
) -> bytearray:
    """Return records that will lie from `position` on with size and magic put in."""
    records = bytearray(unpublished)
    for at, size, magic in prefixes:
        PREFIX.pack_into(records, at - position, size, magic)
    return records
