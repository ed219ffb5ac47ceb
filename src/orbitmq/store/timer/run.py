"""Timer messages, many at once: their records read by kernels, and those written that deliver them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from orbitmq.format.columns import Bytes, Ints
from orbitmq.format.plain.waiting import Table
from orbitmq.format.waiting import WAITED_FOR, WAITING

if TYPE_CHECKING:
    from orbitmq.store.store import MessageStore

LEAST: Final = 8
"""Fewer are handled one by one: that is as fast."""
RUN_MAX: Final = 4096
_QUEUES_MAX: Final = 64
_NO_BYTES: Final[Bytes] = np.empty(0, dtype=np.uint8)


class Places(NamedTuple):
    """Where records lie, and when each message was put into the wheel."""

    offsets: Ints
    sizes: Ints
    enqueue_ms: Ints

    def first(self, count: int) -> "Places":
        """Return the first so many of them."""
        return Places(*(column[:count] for column in self))


class WaitedFor(NamedTuple):
    """What waits for one queue."""

    topic: str
    queue_id: int
    messages: int
    cancels: int  # so many of them cancel others
    waiting: int = 0  # when they are delivered none waits any more


class WaitingRun:
    """Records of timer messages that lie in one segment. Used again for the next; belongs to one thread."""

    def __init__(self, store: "MessageStore") -> None:
        self._store, self._kernels = store, store.kernels
        self.count = 0
        self.record_bytes = 0  # of all that would be delivered, together
        self.queues: list[WaitedFor] = []
        self.waiting = self.waiting_offset = 0  # none waits any more when it is delivered
        self._rows = np.zeros(RUN_MAX, dtype=WAITING)
        self._queues = np.zeros(_QUEUES_MAX, dtype=WAITED_FOR)
        self._data = self._out = _NO_BYTES
        self._now_ms = self._out_at = 0

    @property
    def is_quick(self) -> bool:
        """Tell whether there are kernels that make it worth while: the plain ones are only a reference."""
        return self._store.kernels.name != "plain"

    @property
    def rows(self) -> Table:
        """What was found of each; see `format.waiting`."""
        return self._rows[: self.count]

    def read(self, places: Places, now_ms: int, *, check_crc: bool) -> int:
        """Read the first of the records at these places; return how many.

        It ends at the first that is not simple, or lies in another segment.
        """
        self.count, self.record_bytes, self.queues = 0, 0, []
        offsets, sizes, enqueue_ms = places.first(min(self._together(places.offsets), RUN_MAX))
        if not len(offsets) or int(sizes.min()) < 0:
            return 0
        start = int(offsets.min())
        span = self._store.record_of(start, int((offsets + sizes).max()) - start)
        if span is None:
            return 0
        self._kernels, self._now_ms = self._store.kernels, now_ms
        self._data = np.frombuffer(span, dtype=np.uint8)
        self.count, queue_count = self._kernels.read_waiting(
            self._data,
            offsets - start,
            sizes,
            enqueue_ms,
            now_ms,
            self._store.config.message_bytes_max,
            self._rows,
            self._queues,
            check_crc=check_crc,
        )
        self.record_bytes = int(self.rows["bytes"].sum())
        self.queues = [
            WaitedFor(self._text(at, length), queue_id, messages, cancels)
            for at, length, queue_id, messages, cancels, _ in self._queues[:queue_count].tolist()
        ]
        return self.count

    def _together(self, offsets: Ints) -> int:
        """Return how many lie in the segment of the first."""
        size = self._store.config.segment_bytes
        is_elsewhere = offsets // size != offsets[:1] // size
        return int(np.argmax(is_elsewhere)) if is_elsewhere.any() else len(offsets)

    def _text(self, at: int, length: int) -> str:
        return self._data[at : at + length].tobytes().decode("utf-8", "replace")

    def names(self) -> list[tuple[str, str]]:
        """Return topic and unique key of each message: by these a recall names it."""
        columns = (self.rows[name].tolist() for name in ("queue", "key_at", "key_length"))
        return [
            (self.queues[queue].topic, self._text(at, length))
            for queue, at, length in zip(*columns, strict=True)
        ]

    # What the log asks for: see `store.log.run`

    def write(
        self,
        out: Bytes,
        position: int,
        log_offset: int,
        store_ms: int,
        hosts: bytes,
        next_offsets: Sequence[int],
    ) -> int:
        """Write the records that are delivered into `out`; `hosts` is the broker's, packed."""
        assert 0 <= position <= len(out) - self.record_bytes
        assert len(next_offsets) == len(self.queues)
        self._queues["next_offset"][: len(next_offsets)] = next_offsets
        end = self._kernels.write_due(
            out,
            position,
            log_offset,
            store_ms,
            np.frombuffer(hosts, dtype=np.uint8),
            self._now_ms,
            self._data,
            self._rows,
            self.count,
            self._queues,
        )
        assert end == position + self.record_bytes
        self._out, self._out_at = out, position
        return end

    def publish(self) -> None:
        """Give the records that were written size and magic, in their order."""
        self._kernels.publish_due(self._out, self._out_at, self._rows, self.count)
        self._out = _NO_BYTES

    def release(self) -> None:
        """Let go of the segment."""
        self._data = self._out = _NO_BYTES
