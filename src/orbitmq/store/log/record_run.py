"""What the log asks of records that somebody else writes: the sends that kernels found in frames."""

from collections.abc import Sequence
from typing import Protocol

from orbitmq.format.columns import Bytes


class RunQueue(Protocol):
    """What goes to one queue."""

    @property
    def topic(self) -> str: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def messages(self) -> int: ...


class RecordRun(Protocol):
    """Ordinary messages that are appended together."""

    @property
    def count(self) -> int:
        """How many requests they came in."""

    @property
    def record_bytes(self) -> int:
        """Of all their records together."""

    @property
    def queues(self) -> Sequence[RunQueue]: ...

    def write(
        self,
        out: Bytes,
        position: int,
        log_offset: int,
        store_ms: int,
        hosts: bytes,
        next_offsets: Sequence[int],
    ) -> int:
        """Write the records into `out`, still without size and magic; return where they end.

        `hosts` are the producer's and the store's, packed; `next_offsets` the queues' next queue offsets.
        """

    def publish(self) -> None:
        """Give the records that were written size and magic, in their order."""
