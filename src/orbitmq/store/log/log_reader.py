"""What the read and dispatch side needs of a commit log."""

from collections.abc import Iterator
from typing import Protocol

from orbitmq.errors import FormatError
from orbitmq.format.columns import Bytes
from orbitmq.format.record import store_ms_at


class RecordReader(Protocol):
    """Records by their log offsets, on disk or in memory."""

    def visible_offset(self) -> int:
        """Return the log offset up to which readers and dispatch may look."""

    def read(self, log_offset: int, size: int) -> memoryview | None:
        """Return these bytes, None if they are not (or no longer) in the log."""


class LogReader(RecordReader, Protocol):
    """A commit log as its readers see it. Any thread may read."""

    @property
    def min_offset(self) -> int:
        """The log offset of the first byte that is still there."""

    def iter_ranges(self, start: int, end: int) -> Iterator[tuple[int, Bytes, int, int]]:
        """Yield the parts of [start, end) that lie in each segment: its base, its bytes, two positions."""


def store_ms_of(log: RecordReader, log_offset: int, size: int) -> int | None:
    """Return the store time of a record, None if it is not in the log."""
    record = log.read(log_offset, size)
    if record is None:
        return None
    try:
        return store_ms_at(record)
    except FormatError:
        return None
