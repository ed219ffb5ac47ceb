"""What the log asks of messages that kernels write as records, all of them at once."""

from collections.abc import Sequence
from typing import Protocol

from orbitmq.format.columns import Bytes, Ints


class RunQueue(Protocol):
    """What goes to one queue."""

    @property
    def topic(self) -> str:
        """Its topic."""

    @property
    def queue_id(self) -> int:
        """Its number."""

    @property
    def messages(self) -> int:
        """How many go there."""

    @property
    def waiting(self) -> int:
        """So many of them wait for their time before."""


class Run(Protocol):
    """Messages that are appended together, or not at all."""

    @property
    def count(self) -> int:
        """How many there are; a client batch is one."""

    @property
    def record_bytes(self) -> int:
        """Size of all records together."""

    @property
    def queues(self) -> Sequence[RunQueue]:
        """The queues they go to, each once."""

    @property
    def waiting(self) -> int:
        """So many messages wait for their time."""

    waiting_offset: int
    """Queue offset of the first of these; set by the log."""

    def write(
        self,
        out: Bytes,
        position: int,
        log_offset: int,
        store_ms: int,
        hosts: bytes,
        next_offsets: Sequence[int],
    ) -> int:
        """Write the records into `out`, still without size and magic; return where they end."""

    def publish(self) -> None:
        """Give the records that were written size and magic, in their order."""


class TimedRun(Run, Protocol):
    """Messages of which some may ask for a time."""

    @property
    def times(self) -> tuple[Ints, Ints]:
        """What these say: see `wire.fast`."""

    def wait_in(self, slots: Ints) -> None:
        """Say in which slots of the timer wheel these wait."""
