"""The log of a replica: bytes of another log, written at exactly their offsets.

Bytes arrive in pieces that end anywhere. Each piece is looked at before any of it is written: where a record
starts, there must be a size that fits the segment, a known magic and the record's own offset. They go
through the file, and the log grows only by whole records: what is cut is written and not shown. A kill
leaves it behind the end, where recovery cuts it off, and the replica asks for it again.
"""

import struct
from typing import Final, NamedTuple

import numpy as np

from orbitmq.errors import FormatError
from orbitmq.format.kernels import Kernels
from orbitmq.format.record import (
    BLANK,
    BLANK_BYTES,
    BLANK_MAGIC,
    LOG_OFFSET_AT,
    MAGIC_V1,
    MAGIC_V2,
    OVERHEAD_BYTES,
    store_ms_at,
)
from orbitmq.store.flags import RunningFlags
from orbitmq.store.log.appender import Appender
from orbitmq.store.log.segment_list import SegmentList
from orbitmq.store.log.write_head import WriteHead
from orbitmq.units import KiB

_OFFSET: Final = struct.Struct(">q")
HEAD_BYTES: Final = LOG_OFFSET_AT + _OFFSET.size
"""So much of a record is looked at: size, magic, and its own offset."""
_MANY_BYTES: Final = 16 * KiB
"""Records of so many bytes are looked at by a kernel; a call of it costs as much as some records."""
_SAME_SIZE: Final = "both brokers need the same mappedFileSizeCommitLog"


class Walk(NamedTuple):
    """Where a walk over records is. All offsets are log offsets."""

    end: int  # behind the last byte that came
    start: int  # of the record that is under way: everything before it is whole
    record_end: int = 0  # where that record ends; 0: its head is not whole yet
    head: bytes = b""  # what there is of that head
    last: int = -1  # where the last whole message starts; -1: there was none

    def over(self, data: memoryview, segment_bytes: int, kernels: Kernels) -> "Walk":
        """Return the walk behind these bytes. FormatError: no log goes on like this."""
        at, stop = self.end, self.end + len(data)
        if data and at // segment_bytes != (stop - 1) // segment_bytes:
            raise FormatError(f"a frame of {len(data)} bytes ends in another segment; {_SAME_SIZE}")
        _, start, record_end, head, last = self
        while True:
            if record_end:
                if record_end > stop:
                    return Walk(stop, start, record_end, b"", last)
                if record_end % segment_bytes:  # else it is a blank
                    last = start
                start, record_end, head = record_end, 0, b""
            if stop - start >= _MANY_BYTES and not head:
                start, skipped = _skip(data, at, start, segment_bytes, kernels)
                last = skipped if skipped >= 0 else last
            if start == stop:
                return Walk(stop, start, 0, b"", last)
            seen: bytes | memoryview
            if head:
                seen, position = head + bytes(data[: HEAD_BYTES - len(head)]), 0
            else:
                seen, position = data, start - at
            record_end = _record_end(seen, position, start, segment_bytes)
            if not record_end:
                head = bytes(seen[position : position + HEAD_BYTES])
                return Walk(stop, start, 0, head, last)


def _skip(
    data: memoryview, at: int, start: int, segment_bytes: int, kernels: Kernels
) -> tuple[int, int]:
    """Go over ordinary records by a kernel; return where the first other one, and the last of them, start."""
    room_end = _segment_end(start, segment_bytes) - BLANK_BYTES
    end = min(len(data), room_end - at)
    stopped, last = kernels.skip_records(np.frombuffer(data, dtype=np.uint8), start - at, end, at)
    return at + stopped, at + last if last >= 0 else -1


def _segment_end(offset: int, segment_bytes: int) -> int:
    return offset - offset % segment_bytes + segment_bytes


def _record_end(seen: bytes | memoryview, position: int, start: int, segment_bytes: int) -> int:
    """Return where the record ends that starts at log offset `start`; 0: too little of it is there."""
    there, room = len(seen) - position, _segment_end(start, segment_bytes) - start
    if there < BLANK_BYTES:
        return 0
    size: int
    magic: int
    size, magic = BLANK.unpack_from(seen, position)
    if magic == BLANK_MAGIC:
        if size != room:
            what = f"a segment ends {size - room} bytes behind where it ends here; {_SAME_SIZE}"
            raise FormatError(what, start)
        return start + size
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise FormatError(f"no record starts with the magic {magic & 0xFFFFFFFF:#010x}", start)
    if size < OVERHEAD_BYTES:
        raise FormatError(f"a record cannot have {size} bytes", start)
    if size + BLANK_BYTES > room:
        what = f"a record of {size} bytes in the last {room} of a segment; {_SAME_SIZE}"
        raise FormatError(what, start)
    if there < HEAD_BYTES:
        return 0
    (own_offset,) = _OFFSET.unpack_from(seen, position + LOG_OFFSET_AT)
    if own_offset != start:
        raise FormatError(f"a record says that it belongs to log offset {own_offset}", start)
    return start + size


class ReplicatedLog:
    """Writes what a primary sends. One thread writes; the log's readers see whole records."""

    def __init__(
        self, appender: Appender, head: WriteHead, segments: SegmentList, flags: RunningFlags
    ) -> None:
        self._appender, self._head, self._segments, self._flags = appender, head, segments, flags
        self._walk = Walk(0, 0)

    @property
    def is_empty(self) -> bool:
        return self._head.written_offset == 0

    @property
    def next_offset(self) -> int:
        """Where the next byte belongs."""
        return self._walk.end

    def begin(self) -> int:
        """Forget the record that was cut; return where the log goes on."""
        end = self._head.written_offset
        self._walk = Walk(end, end)
        return end

    def take(self, log_offset: int, data: memoryview) -> None:
        """Write bytes of the primary's log, all or none.

        FormatError: they cannot be what comes next. StoreError: the disk does not take them.
        """
        with self._appender.alone():
            if self._flags.failure is not None:
                raise self._flags.failure
            came = self._start_at(log_offset)
            walk = came.over(data, self._segments.segment_bytes, self._appender.kernels)
            if self._head.written_offset != came.start:  # the first bytes of an empty log
                self._head.resume(log_offset)
            if self._head.segment is None:
                self._head.next_segment()
            self._head.write_ahead(log_offset, data)
            self._walk = walk
            if walk.start > self._head.written_offset:
                self._show(walk)

    def _start_at(self, log_offset: int) -> Walk:
        """Return the walk that bytes of this offset go on with."""
        walk = self._walk
        if self.is_empty and not walk.end and len(self._segments) == 0:
            if log_offset % self._segments.segment_bytes or log_offset < 0:
                what = f"a log cannot begin at {log_offset}, in the middle of a segment"
                raise FormatError(f"{what}; {_SAME_SIZE}")
            walk = Walk(log_offset, log_offset)
        if log_offset != walk.end:
            raise FormatError(f"bytes of log offset {log_offset} came where {walk.end} follows")
        return walk

    def _show(self, walk: Walk) -> None:
        segment = self._head.segment
        assert segment is not None
        self._head.show(walk.start)
        if walk.last >= segment.base_offset:
            store_ms = store_ms_at(segment.view, walk.last - segment.base_offset)
            self._appender.last_store_ms = max(self._appender.last_store_ms, store_ms)
