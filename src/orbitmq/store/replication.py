"""The log of an open store as plain bytes: what a primary sends, and what a replica is given."""

from collections.abc import Callable

from orbitmq.store.log.commit_log import CommitLog
from orbitmq.store.log.flush import LogFlusher
from orbitmq.store.log.mapped_file import LogSpan


class Replication:
    """Bytes of the log by their offsets. Any thread may read; one thread writes a replica's."""

    def __init__(self, log: CommitLog, flusher: LogFlusher, grown: Callable[[], None]) -> None:
        self._log, self._flusher, self._grown = log, flusher, grown

    # A primary's side

    @property
    def first_offset(self) -> int:
        return self._log.min_offset

    @property
    def visible_offset(self) -> int:
        """How far replicas may have the log: whole records, with sync flush those on disk."""
        return self._log.visible_offset()

    def read(self, log_offset: int, bytes_max: int) -> LogSpan | None:
        """Return what is visible from this offset on, within one segment; None: nothing is."""
        return self._log.read_span(log_offset, bytes_max)

    # A replica's side

    @property
    def is_empty(self) -> bool:
        return self._log.replicated.is_empty

    @property
    def next_offset(self) -> int:
        """Where the next byte belongs; a record that is cut there is not in the log yet."""
        return self._log.replicated.next_offset

    def begin(self) -> int:
        """Forget a record that was cut; return where the log goes on, which a primary is asked for."""
        return self._log.replicated.begin()

    def take(self, log_offset: int, data: memoryview) -> None:
        """Write bytes of the primary's log at their offset, all or none; whole records are dispatched.

        FormatError: they cannot be what comes next. StoreError: the disk does not take them.
        """
        self._log.replicated.take(log_offset, data)
        self._grown()

    def received_offset(self, *, flush: bool) -> int:
        """Return how far the log is whole; with `flush`, on disk, which may take its time."""
        if flush:
            return self._flusher.flush(0)
        return self._log.written_offset
