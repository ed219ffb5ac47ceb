"""LightFuture: a concurrent.futures.Future that costs little until somebody waits for it.

The plain one makes a condition with all its parts at once, a dozen objects for each message; with
thousands on their way that is most of the work, and of the garbage collector's. Here the condition
is made by the first who waits. Who waits for it may be let run the event loop meanwhile: see `Runner`.
"""

import threading
from concurrent.futures import Future
from typing import Any, Final, Protocol, TypeVar

T = TypeVar("T")

_FINISHED: Final = "FINISHED"
_PENDING: Final = "PENDING"
_DONE: Final = frozenset({_FINISHED, "CANCELLED", "CANCELLED_AND_NOTIFIED"})

_lock: Final = threading.Lock()  # guards the making of conditions, and results set without one


class Runner(Protocol):
    """What runs until a future is done, and wants to hear when it is."""

    def run_until(self, future: "LightFuture[Any]", timeout_s: float | None) -> None:
        """Return when the future is done, or after so long."""

    def on_done(self, future: "LightFuture[Any]") -> None:
        """The future is done. Called in the thread that did it."""


class LightFuture(Future[T]):
    """Any thread may use it, with everything that takes a Future."""

    _own_condition: threading.Condition | None = None

    def __init__(self, runner: Runner | None = None) -> None:
        # Not the base's: it would make the condition, which is a property here.
        self._runner = runner
        self._state = _PENDING
        self._result: T | None = None
        self._exception: BaseException | None = None
        self._waiters: list[Any] = []
        self._done_callbacks: list[Any] = []

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        condition = self._own_condition
        if condition is None:
            with _lock:
                condition = self._own_condition
                if condition is None:
                    condition = self._own_condition = threading.Condition()
        return condition

    def done(self) -> bool:
        return self._state in _DONE

    def result(self, timeout: float | None = None) -> T:
        if self._runner is not None and self._state not in _DONE:
            self._runner.run_until(self, timeout)
            timeout = 0  # it is done, or the time is over
        if self._state == _FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        if self._runner is not None and self._state not in _DONE:
            self._runner.run_until(self, timeout)
            timeout = 0
        return super().exception(timeout)

    def wait_beside(self, timeout_s: float | None) -> None:
        """Wait for another thread to finish it, at most so long."""
        with self._condition:
            if self._state not in _DONE:
                self._condition.wait(timeout_s)

    def cancel(self) -> bool:
        cancelled = super().cancel()
        self._tell_runner()
        return cancelled

    def set_result(self, result: T) -> None:
        # Whoever makes a condition later sees the state; whoever has made one is told by the base.
        with _lock:
            if self._own_condition is None and self._state == _PENDING:
                self._result = result
                self._state = _FINISHED
                finished = True
            else:
                finished = False
        if not finished:
            super().set_result(result)
        self._tell_runner()

    def set_exception(self, exception: BaseException | None) -> None:
        super().set_exception(exception)
        self._tell_runner()

    def _tell_runner(self) -> None:
        if self._runner is not None:
            self._runner.on_done(self)
