"""What a set of kernels of sends can do."""

from typing import Protocol

from orbitmq.wire.fast.layout import Bytes, Ints, Table


class SendKernels(Protocol):
    """One set of kernels."""

    name: str  # "plain" or "compiled"

    def find_sends(
        self,
        data: Bytes,
        start: int,
        frame_max: int,
        body_max: int,
        suffix_length: int,
        rows: Table,
        queues: Table,
        text: Bytes,
    ) -> tuple[int, int, int, int, int, int, int, int]:
        """Fill `rows` and `queues` with the ordinary sends from `start` on, `text` with their properties.

        Return how many of both, where the last send ends, how many bytes of keys and messages they have,
        and language (position, length) and version of the last sender.
        """

    def write_sends(
        self,
        out: Bytes,
        position: int,
        log_offset: int,
        store_ms: int,
        hosts: Bytes,
        data: Bytes,
        text: Bytes,
        suffix: Bytes,
        rows: Table,
        count: int,
        queues: Table,
    ) -> int:
        """Write the records of all sends from `position` on, each without size and magic; return the end.

        The caller has made sure that there is room. The queues' `next_offset` moves on.
        """

    def publish_records(self, out: Bytes, position: int, end: int) -> None:
        """Give the records of `write_sends` their size and magic, one after the other.

        A call of its own: whoever finds a size and a magic must find a whole record behind them.
        """

    def write_answers(
        self,
        out: Bytes,
        text: Bytes,
        records: Bytes,
        position: int,
        rows: Table,
        count: int,
        parts: Bytes,
        ends: Ints,
    ) -> int:
        """Write the frames that tell producers where their messages went; return how many bytes.

        `records` holds what was written from `position` on; `ends` says where each of the `parts` ends.
        """
