"""Sends rows of a message table again, in order, at a rate, each of them once.

The originals of a queue go to one queue of the target, batch by batch, and the next batch goes when the one
before was answered. So what is there of a queue is a beginning of it: its last one says how far it is.

what happened                                | then
an answer                                    | noted; the state is saved every few seconds
busy, refused for the moment                 | the same batch again a little later
no answer, or the connection broke           | nobody knows: the replay ends, and a second run looks
killed                                       | a second run waits until no broker knows the first, and looks
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from orbitmq.client import Admin, Message, MessageQueue, Producer, SendResult
from orbitmq.errors import ClientError, JobFailedError, WireError
from orbitmq.message import RETRY_PREFIX
from orbitmq.spark.jobs.replay.messages import REPLAY, Origin, message_of, origin_of, told_origin
from orbitmq.spark.jobs.replay.state import ReplayState, StateFile
from orbitmq.spark.targets import ends_of, is_busy, messages_since
from orbitmq.units import KiB

BATCH_MESSAGES: Final = 64
BATCH_BYTES: Final = 512 * KiB
BATCHES_PER_SECOND: Final = 10
"""A low rate has small batches, so that messages come evenly."""
SAVE_SECONDS: Final = 2.0
BUSY_SECONDS: Final = 60.0
BUSY_PAUSE_SECONDS: Final = 0.2
AGAIN: Final = "Run the same command again: it goes on where this one stopped."

OnSent = Callable[[int, int], None]  # bytes, messages


@dataclass(slots=True)
class _Batch:
    """Messages for one queue of a target."""

    messages: list[Message] = field(default_factory=list)
    places: list[tuple[Origin, int]] = field(default_factory=list)
    size: int = 0


class Pace:
    """When so many messages may go, at a rate; None: at once. Not thread-safe."""

    def __init__(
        self,
        rate: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate, self._now, self._sleep = rate, now, sleep
        self._next = now()

    def wait(self, count: int) -> None:
        """Wait until the next messages may go, and count these."""
        if self._rate is None:
            return
        now = self._now()
        if self._next > now:
            self._sleep(self._next - now)
        self._next = max(self._next, now) + count / self._rate


class Sender:
    """Sends the rows of one replay. Not thread-safe."""

    def __init__(
        self,
        producer: Producer,
        state: ReplayState,
        file: StateFile,
        pace: Pace,
        *,
        batch_messages: int = BATCH_MESSAGES,
        on_sent: OnSent | None = None,
    ) -> None:
        self._producer, self._state, self._file, self._pace = producer, state, file, pace
        self._batch_messages, self._on_sent = batch_messages, on_sent
        self._queues: dict[str, list[MessageQueue]] = {}
        self._waiting: dict[MessageQueue, _Batch] = {}
        self._behind: dict[Origin, int] = {}  # the last one that waits or was sent in this run
        self._saved = time.monotonic()
        self.skipped = 0
        """Rows that an earlier run had sent."""

    def send_all(self, rows: Iterable[Any]) -> None:
        """Send all rows that are not there yet; the state is saved whatever happens."""
        try:
            for row in rows:
                self._add(row)
            for queue in list(self._waiting):
                self._flush(queue)
            self._state.finished = True
        finally:
            self._file.save(self._state)

    def _add(self, row: Any) -> None:
        origin, offset = origin_of(row), int(row.queue_offset)
        if offset <= self._behind.get(origin, -1):
            what = (
                f"{origin.topic} {origin.queue_id}:{offset} comes behind a later one of its queue"
            )
            raise JobFailedError(what, "Sort the table by store_host and log_offset.")
        if self._state.is_sent(origin, offset):
            self.skipped += 1
            return
        self._behind[origin] = offset
        queue, message = self._queue_of(row), message_of(row, self._state.replay)
        batch = self._waiting.setdefault(queue, _Batch())
        batch.messages.append(message)
        batch.places.append((origin, offset))
        batch.size += int(row.size)
        most = 1 if row.target.startswith(RETRY_PREFIX) else self._batch_messages
        if len(batch.messages) >= most or batch.size >= BATCH_BYTES:
            self._flush(queue)

    def _queue_of(self, row: Any) -> MessageQueue:
        """Return the queue of the target that all originals of a queue go to."""
        queues = self._queues.get(row.target)
        if queues is None:
            queues = self._queues[row.target] = sorted(self._producer.queues(row.target))
        return queues[int(row.queue_id) % len(queues)]

    def _flush(self, queue: MessageQueue) -> None:
        batch = self._waiting.pop(queue)
        self._pace.wait(len(batch.messages))
        results = self._send(batch.messages, queue)
        for origin, offset in batch.places:
            self._state.note(origin, offset)
        self._state.ends[queue] = results[-1].queue_offset + 1
        self._state.sent += len(batch.messages)
        if self._on_sent is not None:
            self._on_sent(batch.size, len(batch.messages))
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._file.save(self._state)
            self._saved = time.monotonic()

    def _send(self, messages: Sequence[Message], queue: MessageQueue) -> list[SendResult]:
        """Send a batch, as often as its broker says that it is busy."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                if len(messages) == 1:
                    return [self._producer.send(messages[0], queue=queue)]
                return list(self._producer.send_batch(messages, queue=queue))
            except (WireError, ClientError) as error:
                if not is_busy(error) or time.monotonic() > until:
                    what = f"{len(messages)} messages to {queue.topic} got no answer: {error}"
                    raise JobFailedError(what, AGAIN) from error
            time.sleep(BUSY_PAUSE_SECONDS)


def look_again(admin: Admin, state: ReplayState, topics: Iterable[str]) -> None:
    """Learn from the targets what was sent since the state was saved; a new state starts at their ends."""
    wanted = list(topics)
    ends = ends_of(admin, wanted)
    if state.ends:
        for message in messages_since(admin, wanted, state.ends):
            _look_at(message.properties, state)
    state.ends.update(ends)


def _look_at(properties: dict[str, str], state: ReplayState) -> None:
    place = told_origin(properties)
    if properties.get(REPLAY) != state.replay or place is None:
        return
    origin, offset = place
    if not state.is_sent(origin, offset):
        state.note(origin, offset)
        state.sent += 1
