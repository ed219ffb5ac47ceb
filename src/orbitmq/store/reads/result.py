"""What a read of a queue may look at, and what it gives back."""

import os
from dataclasses import dataclass, field

from orbitmq.message import GetStatus
from orbitmq.units import KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much one read may return and look at."""

    memory_bytes: int = 0  # physical memory; 0: ask the machine
    in_memory_ratio: int = 40  # accessMessageInMemoryMaxRatio, per cent
    bytes_in_memory: int = 256 * KiB  # maxTransferBytesOnMessageInMemory
    count_in_memory: int = 32  # maxTransferCountOnMessageInMemory
    bytes_on_disk: int = 64 * KiB  # maxTransferBytesOnMessageInDisk
    count_on_disk: int = 8  # maxTransferCountOnMessageInDisk
    filter_bytes: int = 16_000  # maxFilterMessageSize
    files_per_read: int = 1  # travelCqFileNumWhenGetMessage

    @property
    def recent_bytes(self) -> int:
        """So much of the log's end is taken to be in the page cache."""
        return (self.memory_bytes or physical_memory()) * self.in_memory_ratio // 100


def physical_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class GetResult:
    """What a read found. `next_offset` is where to go on, whatever the status."""

    status: GetStatus
    next_offset: int = 0
    min_offset: int = 0
    max_offset: int = 0
    records: list[memoryview] = field(default_factory=list)
    queue_offsets: list[int] = field(default_factory=list)  # of an inner batch: its first
    log_offsets: list[int] = field(default_factory=list)
    message_count: int = 0  # an inner batch counts as many as it holds
    total_bytes: int = 0
    suggest_replica: bool = False  # the reader is so far behind that a replica should serve it
    packed: bytes | None = (
        None  # all records, one after another, where somebody joined them already
    )
