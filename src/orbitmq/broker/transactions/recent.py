"""RecentHalves: half messages that were just stored, kept in memory because most are ended within moments.

Whoever ends one of these needs nothing read from the log, and no proof that a record lies where it says.
"""

from typing import Final

from orbitmq.format.record import MAGIC_V1, Record
from orbitmq.message import AppendRequest, AppendResult, Host
from orbitmq.units import MiB

BYTES_MAX: Final = 32 * MiB


class RecentHalves:
    """Half messages by log offset, the oldest first. Belongs to the event loop's thread."""

    def __init__(self, store_host: Host, bytes_max: int = BYTES_MAX) -> None:
        self._store_host, self._bytes_max = store_host, bytes_max
        self._halves: dict[int, tuple[AppendRequest, AppendResult]] = {}
        self._bytes = 0

    def add(self, half: AppendRequest, result: AppendResult) -> None:
        """Keep a half message that was stored; the oldest ones go when it is too much."""
        self._halves[result.log_offset] = half, result
        self._bytes += result.size
        while self._bytes > self._bytes_max:
            self.drop(next(iter(self._halves)))

    def drop(self, log_offset: int) -> None:
        """Forget a half message."""
        known = self._halves.pop(log_offset, None)
        if known is not None:
            self._bytes -= known[1].size

    def get(self, log_offset: int) -> Record | None:
        """Return the half message at this log offset as it was stored, None if it is not kept."""
        known = self._halves.get(log_offset)
        if known is None:
            return None
        half, result = known
        return Record(
            log_offset,
            result.size,
            MAGIC_V1,
            0,  # nobody asks for the checksum
            half.queue_id,
            half.flag,
            result.queue_offset,
            half.sys_flag,
            half.born_ms,
            half.born_host,
            result.store_ms,
            self._store_host,
            half.reconsume_times,
            half.prepared_offset,
            half.body,
            half.topic,
            half.properties,
        )
