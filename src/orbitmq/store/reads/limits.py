"""How much one answer may hold: of messages that are taken to be in memory, and of older ones."""

import os

from orbitmq.store.config import StoreConfig


class TransferLimits:
    """The limits of a store's reads."""

    def __init__(self, config: StoreConfig) -> None:
        # So much of the log's end is taken to be in the page cache.
        memory_bytes = config.memory_bytes or physical_memory()
        self._recent_bytes = memory_bytes * config.in_memory_ratio // 100
        self._in_memory = config.transfer_count_in_memory, config.transfer_bytes_in_memory
        self._on_disk = config.transfer_count_on_disk, config.transfer_bytes_on_disk
        self.count_max = max(self._in_memory[0], self._on_disk[0])
        """No answer has more messages."""

    def in_memory_from(self, log_end: int) -> int:
        """Return the log offset from which on records are taken to be in the page cache."""
        return log_end - self._recent_bytes

    def of(self, in_memory: bool) -> tuple[int, int]:
        """Return how many messages and how many bytes an answer may have."""
        return self._in_memory if in_memory else self._on_disk


def physical_memory() -> int:
    """Return how many bytes of memory the machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
