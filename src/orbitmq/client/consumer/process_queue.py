"""ProcessQueue: the messages of one queue that were pulled and are not done with yet.

    next_offset    behind everything that was pulled, whatever became of it
    consumer offset = the smallest offset still held, or next_offset when nothing is held

A message is held from `put` until `remove` (concurrent) or `finish_taken` (orderly). So the consumer
offset never passes a message that was not handled, and never goes back.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from orbitmq.client.core.message import ReceivedMessage
from orbitmq.clock import Clock
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue

LOCK_VALID_MS = 30 * SECOND_MS
"""How long we trust a lock without renewal; the broker keeps it for 60 s."""


class ProcessQueue:
    """What one queue holds at the moment. Belongs to its loop's thread."""

    def __init__(self, queue: MessageQueue, next_offset: int, clock: Clock) -> None:
        self.queue, self.next_offset = queue, next_offset
        self.dropped = False  # nothing more is pulled or handled
        self.handed_over = False  # what still runs no longer counts: another member may have it
        self.locked = False
        self.locked_ms = 0.0  # monotonic
        self.pulled_ms = self.consumed_ms = clock.now_ms()  # what tools are told
        self.pulled_at_ms = clock.monotonic_ms()
        self.held_bytes = 0
        self._clock = clock
        self._held: OrderedDict[int, ReceivedMessage] = OrderedDict()  # by offset, ascending
        self._started_ms: OrderedDict[int, float] = OrderedDict()  # being handled: since when
        self._last_offset = next_offset - 1
        self._changed = asyncio.Event()
        self.on_drop: set[Callable[[], None]] = set()
        """Called when the queue is dropped."""

    # --- what is there ---

    @property
    def count(self) -> int:
        return len(self._held)

    @property
    def first_offset(self) -> int | None:
        """The smallest offset still held."""
        return next(iter(self._held), None)

    @property
    def span(self) -> int:
        """How far the newest held message is ahead of the oldest."""
        first = self.first_offset
        return 0 if first is None else self._last_offset - first

    @property
    def last_offset(self) -> int | None:
        return self._last_offset if self._held else None

    @property
    def consumer_offset(self) -> int:
        """The offset that may be told to the broker: everything before it is done with."""
        first = self.first_offset
        return self.next_offset if first is None else first

    @property
    def running(self) -> int:
        """How many messages a handler is working on."""
        return len(self._started_ms)

    @property
    def lock_is_valid(self) -> bool:
        return self.locked and self._clock.monotonic_ms() - self.locked_ms <= LOCK_VALID_MS

    def set_locked(self, locked: bool) -> None:
        """Remember what the broker said of our lock."""
        self.locked = locked
        if locked:
            self.locked_ms = self._clock.monotonic_ms()
        self.wake()

    # --- pulled ---

    def put(self, messages: Iterable[ReceivedMessage], next_offset: int) -> list[ReceivedMessage]:
        """Hold what a pull brought, which began at `next_offset` before; return what is new of it."""
        new = []
        for message in messages:
            offset = message.queue_offset
            if offset <= self._last_offset:
                continue  # a pull that was repeated; held or done with already
            self._held[offset] = message
            self.held_bytes += len(message.body)
            self._last_offset = offset
            new.append(message)
        self.next_offset = max(self.next_offset, next_offset, self._last_offset + 1)
        if new:
            self.wake()
        return new

    def note_pull(self) -> None:
        """Remember that the queue was pulled now."""
        self.pulled_ms, self.pulled_at_ms = self._clock.now_ms(), self._clock.monotonic_ms()

    # --- handled, in any order ---

    def start(self, messages: Iterable[ReceivedMessage]) -> None:
        """Note that a handler got these messages."""
        now = self._clock.monotonic_ms()
        for message in messages:
            self._started_ms[message.queue_offset] = now

    def stop(self, messages: Iterable[ReceivedMessage]) -> None:
        """Note that no handler has these messages any more; they stay held."""
        self.consumed_ms = self._clock.now_ms()
        for message in messages:
            self._started_ms.pop(message.queue_offset, None)
        self.wake()

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """Let go of messages that are done with; return the consumer offset."""
        for message in messages:
            self._started_ms.pop(message.queue_offset, None)
            held = self._held.pop(message.queue_offset, None)
            if held is not None:
                self.held_bytes -= len(held.body)
        self.wake()
        return self.consumer_offset

    def holds(self, message: ReceivedMessage) -> bool:
        return message.queue_offset in self._held

    def overdue(self, timeout_ms: float, count: int) -> list[ReceivedMessage]:
        """Return up to `count` messages that a handler has had for longer than this."""
        limit = self._clock.monotonic_ms() - timeout_ms
        late = [offset for offset, started_ms in self._started_ms.items() if started_ms < limit]
        return [self._held[offset] for offset in late[:count] if offset in self._held]

    # --- handled one after the other ---

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return the oldest messages for an orderly handler; they stay held."""
        taken = []
        for message in self._held.values():
            taken.append(message)
            if len(taken) >= count:
                break
        self.start(taken)
        return taken

    # --- waiting ---

    async def wait_changed(self) -> None:
        """Wait until messages came or went, or the queue was locked, dropped or woken."""
        # Cleared here and not by the one who sets it: no turn of the loop lies between a caller's
        # look at the queue and this line.
        self._changed.clear()
        await self._changed.wait()

    async def wait_changed_for(self, milliseconds: float) -> None:
        """Wait for a change, but not longer than this."""
        try:
            async with asyncio.timeout(milliseconds / 1000):
                await self.wait_changed()
        except TimeoutError:
            pass

    async def wait_idle(self, timeout_ms: float) -> bool:
        """Wait until no handler works on a message of this queue; return whether that came."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._started_ms:
                    await self.wait_changed()
        except TimeoutError:
            return False
        return True

    def drop(self) -> None:
        """The queue is no longer ours: nothing more is pulled or handled."""
        self.dropped = True
        for callback in list(self.on_drop):
            callback()
        self.wake()

    def clear(self) -> None:
        """Forget what is held."""
        self._held.clear()
        self._started_ms.clear()
        self.held_bytes = 0
        self.wake()

    def wake(self) -> None:
        """Let everybody look again who waits for a change."""
        self._changed.set()


def batches(messages: Sequence[ReceivedMessage], size: int) -> list[list[ReceivedMessage]]:
    """Return the messages in lists of at most `size`."""
    return [list(messages[at : at + size]) for at in range(0, len(messages), size)]
