"""ProcessQueue: the messages of one queue that were fetched and are not done with yet.

    next_offset     behind everything that was fetched, whatever became of it
    consumer_offset = the smallest offset still held, or next_offset when nothing is held

A message is held from `put` until it is done with, in whatever order that comes. So the consumer offset
never passes a message that was not handled, and never goes back. It is worked out when somebody needs
it (a pull, the job that stores offsets): handling a message writes one byte and tells nobody.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from operator import attrgetter
from typing import Final

from orbitmq.client.consumer.delivery import (
    DONE,
    FINISH,
    FORGET,
    GIVE_OUT_AGAIN,
    START,
    STOP,
    TAKEN,
    WAITING,
    Batch,
    Delivery,
)
from orbitmq.clock import Clock
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue

LOCK_VALID_MS: Final = 30 * SECOND_MS
"""How long we trust a lock without renewal; the broker keeps it for 60 s."""

Call = Callable[[Callable[[], None]], None]
"""Calls a function in the loop's thread, soon."""


def call_now(function: Callable[[], None]) -> None:
    """Call a function: for those who are in the loop's thread already."""
    function()


class ProcessQueue:
    """What one queue holds at the moment. Belongs to its loop's thread; messages are settled by any."""

    def __init__(
        self, queue: MessageQueue, next_offset: int, clock: Clock, call: Call = call_now
    ) -> None:
        self.queue, self.next_offset = queue, next_offset
        self.dropped = False  # nothing more is fetched or handled
        self.handed_over = False  # what still runs no longer counts: another member may have it
        self.locked = False
        self.locked_ms = 0.0  # monotonic
        self.pulled_ms = self.consumed_ms = clock.now_ms()  # what tools are told
        self._clock, self._call = clock, call
        self._batches: list[Batch] = []
        self._first_offset, self._last_offset = next_offset, next_offset - 1
        self._was_fetched = False
        self._done_ahead: list[
            tuple[int, int]
        ] = []  # first offset, count: done behind a pending one
        self._changed = asyncio.Event()
        self._waiters = 0
        self._told = False
        self.on_give_back: Callable[[Delivery], None] = lambda message: self.wake()
        """Called when somebody gives a message back."""
        self.on_done: Callable[[Batch], None] = lambda batch: None
        """Called when all messages of a batch are done with."""

    # --- what is there ---

    @property
    def count(self) -> int:
        return sum(batch.pending for batch in self._batches)

    @property
    def body_bytes(self) -> int:
        """Bytes of the bodies that are held."""
        return sum(batch.pending_bytes for batch in self._batches)

    @property
    def first_offset(self) -> int | None:
        """The smallest offset still held."""
        self._trim()
        if not self._batches:
            return None
        batch = self._batches[0]
        index = batch.first_pending
        # Done with since the line before: what follows is looked at the next time.
        return batch.messages[min(index, len(batch.messages) - 1)].queue_offset

    @property
    def last_offset(self) -> int | None:
        return self._last_offset if self.count else None

    def exceeds(self, count: int, size: int, span: int | None) -> bool:
        """Tell whether more messages or bytes, or a longer span, is held than this."""
        first = self.first_offset
        if first is None:
            return False
        if span is not None and self._last_offset - first > span:
            return True
        return self.count > count or self.body_bytes > size

    @property
    def consumer_offset(self) -> int:
        """The offset that may be told to the broker: everything before it is done with."""
        first = self.first_offset
        return self.next_offset if first is None else first

    @property
    def progress(self) -> int | None:
        """The consumer offset, if it says more than where we began."""
        offset = self.consumer_offset
        is_new = offset != self._first_offset or (self._was_fetched and not self._batches)
        return offset if is_new else None

    @property
    def position(self) -> int:
        """The offset of the message that is taken next."""
        following = next(self._in_state(WAITING), None)
        return self.next_offset if following is None else following.queue_offset

    @property
    def running(self) -> int:
        """How many messages somebody has."""
        return sum(batch.running for batch in self._batches)

    @property
    def repeated(self) -> int:
        """How many messages a handler had that come again to whoever begins at the consumer offset."""
        self._trim()
        count = sum(done for _, done in self._done_ahead)
        for number, batch in enumerate(self._batches):
            passed = batch.first_pending if number == 0 else 0  # before the consumer offset
            count += len(batch.state) - passed - batch.state.count(WAITING)
        return count

    def _in_state(self, state: int) -> Iterator[Delivery]:
        for batch in self._batches:
            at = batch.state.find(state)
            while at >= 0:
                yield batch.messages[at]
                at = batch.state.find(state, at + 1)

    def _trim(self) -> None:
        """Let go of batches that are done with."""
        done = [batch for batch in self._batches if not batch.pending]
        for batch in done:
            self._batches.remove(batch)
            self.on_done(batch)
        if done:
            ahead = [(batch.messages[0].queue_offset, len(batch.messages)) for batch in done]
            first = self._batches[0].messages[0].queue_offset if self._batches else None
            known = [*self._done_ahead, *ahead] if first is not None else []
            self._done_ahead = [one for one in known if first is not None and one[0] > first]

    # --- locks ---

    @property
    def lock_is_valid(self) -> bool:
        return self.locked and self._clock.monotonic_ms() - self.locked_ms <= LOCK_VALID_MS

    def set_locked(self, locked: bool) -> None:
        """Remember what the broker said of our lock."""
        self.locked = locked
        if locked:
            self.locked_ms = self._clock.monotonic_ms()
        self.wake()

    # --- fetched ---

    def put(self, messages: list[Delivery], next_offset: int) -> list[Delivery]:
        """Hold what a pull brought, which began at `next_offset` before; return what is new of it."""
        self._was_fetched = True
        if messages and messages[0].queue_offset <= self._last_offset:
            # A pull that was repeated: held or done with already.
            messages = [one for one in messages if one.queue_offset > self._last_offset]
        if messages:
            self._batches.append(Batch(self, messages))
            self._last_offset = messages[-1].queue_offset
        self.next_offset = max(self.next_offset, next_offset, self._last_offset + 1)
        if messages:
            self.wake()
        return messages

    def note_pull(self) -> None:
        """Remember that the queue was pulled now."""
        self.pulled_ms = self._clock.now_ms()

    # --- handled ---

    def take(self, count: int) -> list[Delivery]:
        """Return the oldest messages that nobody has."""
        taken = list(islice(self._in_state(WAITING), count))
        self.start(taken)
        return taken

    def start(self, messages: Sequence[Delivery]) -> None:
        """Note that somebody got these messages."""
        self._move(messages, START, self._clock.monotonic_ms())

    def stop(self, messages: Sequence[Delivery]) -> None:
        """Note that nobody has these messages any more; those that are not settled wait again."""
        self._move(messages, STOP)
        self.wake()

    def remove(self, messages: Sequence[Delivery], *, given_back: bool = False) -> None:
        """Let go of messages that are done with; those that are being given back only after that."""
        self.consumed_ms = self._clock.now_ms()
        self._move(messages, FORGET if given_back else FINISH)
        self.wake()

    def put_back(self, messages: Sequence[Delivery]) -> None:
        """Have messages taken again, whoever has them, that are not done with."""
        self._move(messages, GIVE_OUT_AGAIN)
        self.wake()

    def _move(
        self, messages: Sequence[Delivery], table: bytes, spent_ms: float | None = None
    ) -> None:
        """Change the states of messages, run by run."""
        for batch, group in groupby(messages, attrgetter("_batch")):
            if batch is None or batch.held is not self:
                continue
            run = list(group)
            first, end = run[0]._index, run[-1]._index + 1
            if end - first != len(run):  # not one behind the other
                for message in run:
                    batch.state[message._index] = table[batch.state[message._index]]
            else:
                batch.state[first:end] = batch.state[first:end].translate(table)
            if spent_ms is not None:
                batch.spent_ms[first:end] = [spent_ms] * (end - first)

    def holds(self, message: Delivery) -> bool:
        batch = message._batch
        return batch is not None and batch.held is self and batch.state[message._index] != DONE

    def taken(self) -> list[Delivery]:
        """Return the messages that somebody has."""
        return list(self._in_state(TAKEN))

    def overdue(self, timeout_ms: float, count: int) -> list[Delivery]:
        """Return up to `count` messages that somebody has had for longer than this."""
        limit_ms = self._clock.monotonic_ms() - timeout_ms
        late = [message for message in self.taken() if _since_ms(message) < limit_ms]
        return late[:count]

    # --- what any thread may do ---

    def begin(self, messages: Sequence[Delivery]) -> bool:
        """Note that the caller got these messages; False: the queue went to another member."""
        self._move(messages, START, self._clock.monotonic_ms())
        # Looked at after the states were written: who drops the queue looks the other way round.
        if self.dropped:
            self._move(messages, STOP)
        return not self.dropped

    def finish(self, messages: Sequence[Delivery], spent_ms: float) -> None:
        """Let go of messages that the caller is done with."""
        self._move(messages, FINISH, spent_ms / max(len(messages), 1))
        self.notify()

    def monotonic_ms(self) -> float:
        return self._clock.monotonic_ms()

    def notify(self) -> None:
        """Let those look again who wait for messages to be settled, if there are any."""
        # Written before is what became of the message; a waiter counts itself before it looks.
        if self._waiters and not self._told:
            self._told = True
            self._call(self.wake)

    def give_back(self, message: Delivery) -> None:
        """Have a message given back."""
        self._call(lambda: self.on_give_back(message))

    # --- waiting ---

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that changes with messages, the lock, or the end of this queue."""
        self._waiters += 1
        try:
            while not condition():
                # No turn of the loop lies between the look and this line.
                self._changed.clear()
                await self._changed.wait()
        finally:
            self._waiters -= 1

    async def wait_until_or(self, condition: Callable[[], bool], milliseconds: float) -> bool:
        """Wait until it holds, but not longer than this; return whether it does."""
        try:
            async with asyncio.timeout(milliseconds / 1000):
                await self.wait_until(condition)
        except TimeoutError:
            return condition()
        return True

    async def wait_idle(self, timeout_ms: float) -> bool:
        """Wait until nobody has a message of this queue; return whether that came."""
        return await self.wait_until_or(lambda: not self.running, timeout_ms)

    def drop(self) -> None:
        """The queue is no longer ours: nothing more is fetched or handled."""
        self.dropped = True
        self.wake()

    def wake(self) -> None:
        """Let everybody look again who waits for a change."""
        self._told = False
        self._changed.set()


def _since_ms(message: Delivery) -> float:
    batch = message._batch
    return batch.spent_ms[message._index] if batch is not None else 0.0
