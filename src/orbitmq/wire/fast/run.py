"""The sends of one read, from their frames to their records and answers without an object for each."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from orbitmq.wire.fast.layout import (
    ANSWER_BYTES_MAX,
    HANDLE_TEXT_MAX,
    ID_START,
    PARTS,
    QUEUE,
    SEND,
    Bytes,
    Ints,
    SendKernels,
)

SENDS_MAX: Final = 256
"""So many sends are taken together."""
_QUEUES_MAX: Final = 64
_TEXT_BYTES: Final = 256 * 1024
_NO_BYTES: Final[Bytes] = np.empty(0, dtype=np.uint8)
_NO_DATA: Final[Bytes] = np.frombuffer(b"", dtype=np.uint8)  # read-only, as all data is


class SentTo(NamedTuple):
    """What goes to one queue."""

    topic: str
    queue_id: int
    messages: int
    record_bytes: int
    waiting: int = 0  # so many of the messages wait for their time in the timer wheel


class SendRun:
    """Sends that came together. Used again for the next ones; belongs to one thread."""

    def __init__(self, kernels: SendKernels, *, frame_bytes_max: int, body_bytes_max: int) -> None:
        self._kernels = kernels
        self.count = 0
        self.end = 0  # position in the data behind the last of them
        self.record_bytes = 0  # of all their records together
        self.queues: list[SentTo] = []
        self.waiting = 0  # how many of the messages wait for their time
        self.waiting_offset = 0  # queue offset of the first of these; set by the caller
        self.language, self.version = "", 0  # of the last sender
        self._limits = frame_bytes_max, body_bytes_max
        self._rows = np.zeros(SENDS_MAX, dtype=SEND)
        self._queues = np.zeros(_QUEUES_MAX, dtype=QUEUE)
        self._text = np.zeros(_TEXT_BYTES, dtype=np.uint8)
        self._data = self._suffix = self._parts = _NO_DATA
        self._ends = np.zeros(PARTS, dtype=np.int64)
        self._id_bytes = self._answers_max = self._records_at = 0
        self._records = _NO_BYTES

    def use_texts(self, suffix: bytes, parts: Sequence[bytes]) -> None:
        """Set what the broker adds to properties, and the parts of an answer (see `layout`)."""
        assert len(parts) == PARTS
        self._suffix = np.frombuffer(suffix, dtype=np.uint8)
        self._parts = np.frombuffer(b"".join(parts), dtype=np.uint8)
        self._ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        self._id_bytes = len(parts[ID_START]) + 16 + 1  # and a comma

    def find(self, data: bytes, start: int = 0) -> int:
        """Look for ordinary sends from `start` on; return how many there are."""
        self._data = np.frombuffer(data, dtype=np.uint8)
        frame_max, body_max = self._limits
        self.count, queue_count, self.end, key_bytes, messages, *sender = self._kernels.find_sends(
            self._data,
            start,
            frame_max,
            body_max,
            len(self._suffix),
            self._rows,
            self._queues,
            self._text,
        )
        if not self.count:
            return 0  # what the rows say is of an earlier run
        self.queues = [
            SentTo(data[at : at + length].decode("ascii"), queue_id, count, size, waiting)
            for at, length, queue_id, count, size, _, waiting in self._queues[:queue_count].tolist()
        ]
        self.waiting = sum(queue.waiting for queue in self.queues)
        self.record_bytes = sum(queue.record_bytes for queue in self.queues)
        language_at, language_length, self.version = sender
        self.language = data[language_at : language_at + language_length].decode("ascii")
        self._answers_max = (
            self.count * (8 + len(self._parts) + ANSWER_BYTES_MAX)
            + key_bytes
            + messages * self._id_bytes
        )
        if self.waiting:  # base64 takes less than twice as much
            handles = self.waiting * (len(self._parts) + HANDLE_TEXT_MAX) + key_bytes
            self._answers_max += 2 * handles
        return self.count

    @property
    def times(self) -> tuple[Ints, Ints]:
        """What the messages say that ask for a time: by which of TIMED, and its number."""
        rows = self._rows[: self.count]
        timed = rows[rows["timed"] > 0]
        return timed["timed"], timed["time"]

    def wait_in(self, slots: Ints) -> None:
        """Say in which slots of the timer wheel these messages wait."""
        rows = self._rows[: self.count]
        rows["slot_ms"][rows["timed"] > 0] = slots

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

        `hosts` are the producer's and the broker's, packed; `next_offsets` the queues' next queue offsets.
        Of messages that ask for a time `wait_in` has said the slots.
        """
        assert 0 <= position <= len(out) - self.record_bytes
        assert len(next_offsets) == len(self.queues)
        self._queues["next_offset"][: len(next_offsets)] = next_offsets
        end = self._kernels.write_sends(
            out,
            position,
            log_offset,
            store_ms,
            np.frombuffer(hosts, dtype=np.uint8),
            self._data,
            self._text,
            self._suffix,
            self._rows,
            self.count,
            self._queues,
            self.waiting_offset,
        )
        assert end == position + self.record_bytes
        self._records, self._records_at = out, position
        return end

    def publish(self) -> None:
        """Give the records that were written size and magic, in their order."""
        self._kernels.publish_records(
            self._records, self._records_at, self._records_at + self.record_bytes
        )

    def answers(self) -> bytes:
        """Return the frames that answer the sends; the records are written and published."""
        out = np.empty(self._answers_max, dtype=np.uint8)
        used = self._kernels.write_answers(
            out,
            self._text,
            self._data,
            self._records,
            self._records_at,
            self._rows,
            self.count,
            self._parts,
            self._ends,
        )
        return out[:used].tobytes()

    def release(self) -> None:
        """Let go of what came and of the segment."""
        self._data, self._records = _NO_DATA, _NO_BYTES
