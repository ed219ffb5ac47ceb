"""What a read needs of simple queues, wherever their units lie."""

from typing import Protocol


class UnitSource(Protocol):
    """Queues of 20-byte units, by number."""

    @property
    def file_units(self) -> int:
        """How many units a file has: a read ends with its file."""

    def find(self, topic: str, queue_id: int) -> int:
        """Return the number of a queue, -1 if there is none."""

    def min_offset(self, number: int) -> int:
        """Return the queue offset of the first live unit."""

    def next_offset(self, number: int) -> int:
        """Return the queue offset that the next message gets."""

    def read_units(self, number: int, first: int, count: int) -> bytes:
        """Return up to `count` units from queue offset `first` on; empty: there is none."""
