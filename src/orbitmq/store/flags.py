"""What the store may do right now (RocketMQ: RunningFlags), and why not.

bit | RocketMQ name          | set when
  1 | NOT_READABLE           | an operator forbids reads
  2 | NOT_WRITEABLE          | an operator forbids appends, or a sync of the commit log failed
  4 | WRITE_LOGICS_QUEUE_ERROR | a consume queue cannot be written
  8 | WRITE_INDEX_FILE_ERROR | an index file cannot be written
 16 | DISK_FULL              | the disk of the commit log or the queues is over its limit
 32 | FENCED                 | no lease says that this broker is the primary (failover)
 64 | LOGIC_DISK_FULL        | the part of a shared disk that belongs to this store is used up
"""

import threading
from collections.abc import Callable
from enum import IntFlag
from typing import Final

from orbitmq.errors import StoreError
from orbitmq.store.listeners import tell


class Flag(IntFlag):
    """One reason for not reading or not writing."""

    NOT_READABLE = 1
    NOT_WRITABLE = 2
    QUEUE_ERROR = 4
    INDEX_ERROR = 8
    DISK_FULL = 16
    FENCED = 32
    LOGICAL_DISK_FULL = 64


_NO_APPENDS: Final = Flag(2 | 4 | 8 | 16 | 32 | 64)

_REASONS: Final = {
    Flag.NOT_WRITABLE: "appends are switched off",
    Flag.QUEUE_ERROR: "a consume queue could not be written",
    Flag.INDEX_ERROR: "an index file could not be written",
    Flag.DISK_FULL: "the disk is fuller than diskSpaceWarningLevelRatio allows; free some space "
    "or lower fileReservedTime",
    Flag.FENCED: "this broker has no lease of the primary: it ended, or another broker took over",
    Flag.LOGICAL_DISK_FULL: "this store's share of the disk is used up",
}


class RunningFlags:
    """The flags of a store. Any thread may read and set them.

    `writable` is a plain attribute because every append reads it.
    """

    def __init__(self) -> None:
        self.bits = Flag(0)
        self.writable = True
        self.failure: StoreError | None = None
        self.waits_for = ""  # who keeps old segments from being deleted (waitForReaders)
        self.on_failure: list[Callable[[], None]] = []  # called once, after appends are refused
        self._lock = threading.Lock()  # guards bits and writable together

    def set(self, flag: Flag) -> None:
        self._change(flag, Flag(0))

    def clear(self, flag: Flag) -> None:
        self._change(Flag(0), flag)

    def fail(self, error: StoreError, flag: Flag = Flag.NOT_WRITABLE) -> None:
        """Refuse appends from now on; the first error is the one that is told.

        There is no way back but a restart: after a failed sync the kernel may have dropped the dirty
        pages, so a second sync that succeeds proves nothing.
        """
        with self._lock:
            is_first = self.failure is None
            if is_first:
                self.failure = error
        self.set(flag)
        if is_first:
            tell(self.on_failure)

    @property
    def readable(self) -> bool:
        return not self.bits & Flag.NOT_READABLE

    def refusal(self) -> str:
        """Say in words why appends are refused; empty when they are not."""
        if self.writable:
            return ""
        if self.failure is not None:
            return f"an earlier write failed and appends stopped: {self.failure}"
        reasons = [reason for flag, reason in _REASONS.items() if self.bits & flag]
        if self.waits_for and self.bits & (Flag.DISK_FULL | Flag.LOGICAL_DISK_FULL):
            reasons.append(f"old segments are kept for {self.waits_for} (waitForReaders)")
        return "; ".join(reasons)

    def _change(self, added: Flag, removed: Flag) -> None:
        with self._lock:
            self.bits = (self.bits | added) & ~removed
            self.writable = not self.bits & _NO_APPENDS
