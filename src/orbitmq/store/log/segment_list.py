"""The segments of the commit log in order (RocketMQ: MappedFileQueue).

Invariants:
  base offsets grow by exactly the segment size; only the last segment may be not full
  min_offset <= flushed_offset <= readable_end <= written_offset
"""

import logging
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from orbitmq.clock import Clock
from orbitmq.errors import StoreError
from orbitmq.files.disk import Disk
from orbitmq.files.layout import StoreLayout
from orbitmq.store.log.mapped_file import MappedFile

_log = logging.getLogger(__name__)

TRUNCATE_FORCED_MS = 1_000  # how long a reader may keep a segment that recovery cut off
MAPPED_MAX = 256  # segments that are mapped at a time; each costs a descriptor


class SegmentList:
    """Segments by offset. Any thread may read; append, truncate and delete have one caller at a time.

    Readers take no lock: the tuple of segments is replaced as a whole.
    """

    def __init__(self, layout: StoreLayout, *, disk: Disk, clock: Clock) -> None:
        self.layout, self.disk, self.clock = layout, disk, clock
        self.segment_bytes = layout.segment_bytes
        self.full_paths: frozenset[Path] = frozenset()  # disks above the forced-clean ratio
        self._segments: tuple[MappedFile, ...] = ()
        self._mapped: deque[MappedFile] = deque()  # in the order in which they were mapped

    def load(self) -> None:
        """Find the segments on disk; all of them count as written up to the end until recovery."""
        segments: list[MappedFile] = []
        for base_offset, path, length in self.layout.list_segments():
            if length == 0:
                # A crash between creating and allocating the last segment leaves this; it holds nothing.
                self.disk.remove(path)
            else:
                segment = MappedFile(self.disk, path, base_offset, self.segment_bytes)
                segment.on_mapped = self._note_mapped
                segments.append(segment)
        self._segments = tuple(segments)

    # Looking up

    def __iter__(self) -> Iterator[MappedFile]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> MappedFile | None:
        segments = self._segments
        return segments[0] if segments else None

    @property
    def last(self) -> MappedFile | None:
        segments = self._segments
        return segments[-1] if segments else None

    def find(self, log_offset: int) -> MappedFile | None:
        """Return the segment that this offset lies in, or None."""
        segments = self._segments
        if not segments:
            return None
        index = (log_offset - segments[0].base_offset) // self.segment_bytes
        return segments[index] if 0 <= index < len(segments) else None

    @property
    def min_offset(self) -> int:
        """Where the log starts; a first segment that is being removed no longer counts."""
        segments = self._segments
        if not segments:
            return 0
        first = segments[0]
        return first.base_offset if first.is_available else first.end_offset

    @property
    def written_offset(self) -> int:
        last = self.last
        return last.base_offset + last.written if last is not None else 0

    @property
    def readable_end(self) -> int:
        """How far readers may look: behind `written_offset` only while a transient buffer is in use."""
        for segment in reversed(self._segments):
            if segment.readable > 0:
                return segment.base_offset + segment.readable
        return self.min_offset

    @property
    def flushed_offset(self) -> int:
        for segment in reversed(self._segments):
            if segment.flushed > 0:
                return segment.base_offset + segment.flushed
        first = self.first  # not min_offset: a closed one counts as gone there
        return first.base_offset if first is not None else 0

    # Growing

    def path_for(self, base_offset: int) -> Path:
        """Return where the segment with this base offset belongs, on one of several disks."""
        return self.layout.segment_path(base_offset, full=self.full_paths)

    def next_base_offset(self, wanted: int = 0) -> int:
        """Return the base offset of the segment that comes next."""
        last = self.last
        return last.end_offset if last else wanted - wanted % self.segment_bytes

    def add(self, segment: MappedFile) -> None:
        """Put a new segment behind the last one."""
        assert segment.base_offset == self.next_base_offset(segment.base_offset)
        segment.on_mapped = self._note_mapped
        self._segments = (*self._segments, segment)
        self._note_mapped(segment)

    def _note_mapped(self, segment: MappedFile) -> None:
        """Unmap the segment that was mapped longest ago if there are too many."""
        self._mapped.append(segment)
        for _ in range(len(self._mapped) - MAPPED_MAX):
            oldest = self._mapped.popleft()
            if not oldest.unmap() and not oldest.is_closed:
                self._mapped.append(oldest)  # still being written or flushed

    # Shrinking

    def truncate(self, log_offset: int) -> None:
        """Take `log_offset` as the end of the log: later segments are deleted, no bytes are changed.

        An empty segment stays if it is the only one left: where the log goes on is nowhere else.
        """
        kept: list[MappedFile] = []
        for segment in self._segments:
            if segment.end_offset <= log_offset:
                segment.set_positions(segment.size)
            elif segment.base_offset < log_offset or (
                segment.base_offset == log_offset and not kept
            ):
                segment.set_positions(log_offset - segment.base_offset)
            else:
                segment.destroy(self.clock, TRUNCATE_FORCED_MS)
                continue
            kept.append(segment)
        self._segments = tuple(kept)

    def remove_first(self, forced_after_ms: float) -> bool:
        """Delete the oldest segment, never the last one; False if it is in use or cannot be deleted."""
        if len(self._segments) < 2:
            return False
        segment = self._segments[0]
        try:
            if not segment.destroy(self.clock, forced_after_ms):
                return False
        except StoreError as error:
            _log.warning("segment %s: not deleted: %s", segment.path.name, error)
            return False
        self._segments = self._segments[1:]
        return True

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
