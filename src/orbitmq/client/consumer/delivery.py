"""Messages in the hands of a loop: `for message in consumer` and `async for message in consumer`.

A Delivery waits to be taken, is taken by one loop, and is settled once: acknowledged, given back, or
withdrawn because its queue went to another member before anybody saw it.

event                                            | the message taken last is
the loop asks for the next message               | acknowledged
`break` or `return` in the loop's body           | acknowledged
an exception leaves the loop                     | given back: it comes again later
message.ack(), message.retry()                   | settled by that
the loop ends in a way that cannot be recognized | given back
"""

import asyncio
import dis
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import FrameType
from typing import Final, Protocol

from orbitmq.client.consumer.handling import Outcome
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.core.message import ReceivedMessage

_LEAVING: Final = {
    dis.opmap[name] for name in ("POP_TOP", "POP_ITER") if name in dis.opmap
}  # POP_ITER since 3.14
_NAMES: Final = tuple(item.name for item in fields(ReceivedMessage))
_ABANDONED: Final = Outcome(abandoned=True)

_state_lock = threading.Lock()  # guards the state of all deliveries; held for a few instructions


@dataclass(slots=True, eq=False)
class Delivery(ReceivedMessage):
    """A received message that can be settled. Any thread may do that; only the first time counts."""

    _taken: bool = field(default=False, repr=False)
    _settled: bool = field(default=False, repr=False)
    _answer: Callable[[Outcome], None] = field(default=lambda outcome: None, repr=False)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def answers_to(self, answer: Callable[[Outcome], None]) -> None:
        """Say who is told how it was settled."""
        self._answer = answer

    def ack(self) -> None:
        """The message was handled: it does not come again."""
        self._settle(Outcome())

    def retry(self, *, level: int | None = None, suspend_ms: int = -1) -> None:
        """The message was not handled: it comes again later; see `RetryLater`."""
        self._settle(Outcome([self], level, suspend_ms))

    @property
    def is_settled(self) -> bool:
        return self._settled

    def take(self) -> bool:
        """Mark it as seen; False: it was withdrawn."""
        with _state_lock:
            if self._settled:
                return False
            self._taken = True
            return True

    def withdraw(self) -> None:
        """Settle it as abandoned unless somebody has it."""
        with _state_lock:
            if self._taken or self._settled:
                return
            self._settled = True
        self._answer(_ABANDONED)

    def _settle(self, outcome: Outcome) -> None:
        with _state_lock:
            if self._settled:
                return
            self._taken = self._settled = True
        self._answer(outcome)


class ReadySink(Protocol):
    """Where deliveries wait to be taken."""

    def put(self, delivery: Delivery) -> None: ...


class Deliveries:
    """A handler whose messages are taken by loops. Belongs to its loop's thread."""

    def __init__(
        self, sink: ReadySink, call: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        self._sink, self._call = sink, call
        self._open: set[Delivery] = set()
        self._closed = False

    async def handle(self, messages: list[ReceivedMessage], held: ProcessQueue | None) -> Outcome:
        """Wait until somebody took the message and settled it."""
        if self._closed:
            return _ABANDONED
        settled: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        message = messages[0]
        values = (getattr(message, name) for name in _NAMES)
        delivery = Delivery(*values)
        delivery.answers_to(self._answer_to(settled))
        self._open.add(delivery)
        if held is not None:
            held.on_drop.add(delivery.withdraw)
        self._sink.put(delivery)
        try:
            outcome = await settled
        finally:
            self._open.discard(delivery)
            if held is not None:
                held.on_drop.discard(delivery.withdraw)
        if outcome.failed:
            outcome.failed = messages  # the very objects that the queue holds
        return outcome

    def _answer_to(self, settled: "asyncio.Future[Outcome]") -> Callable[[Outcome], None]:
        def in_loop(outcome: Outcome) -> None:
            if not settled.done():
                settled.set_result(outcome)

        call = self._call
        if call is None:
            return in_loop
        return lambda outcome: call(lambda: in_loop(outcome))

    def close(self) -> None:
        """Withdraw what nobody has taken; give nothing out any more."""
        self._closed = True
        for delivery in list(self._open):
            delivery.withdraw()

    def retry_taken(self) -> None:
        """Give back what was taken and never settled."""
        for delivery in list(self._open):
            delivery.retry()


def settle_left(delivery: Delivery | None, loop_frame: FrameType | None) -> None:
    """Settle the message of a loop that was left: see the table of this module."""
    if delivery is None or delivery.is_settled:
        return
    if _was_left_on_purpose(loop_frame):
        delivery.ack()
    else:
        delivery.retry()


def _was_left_on_purpose(frame: FrameType | None) -> bool:
    """Tell whether the frame is just throwing its loop's iterator away, as break and return do.

    An exception throws it away too, but while the frame stands at the instruction that failed, and
    those that only take something off the stack cannot fail. Everything else, other interpreters too,
    counts as not on purpose: a message that comes twice is better than one that is lost.
    """
    if frame is None or sys.implementation.name != "cpython" or frame.f_lasti < 0:
        return False
    return frame.f_code.co_code[frame.f_lasti] in _LEAVING
