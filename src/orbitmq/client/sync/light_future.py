"""LightFuture: a concurrent.futures.Future that costs little until somebody waits for it.

The plain one makes a condition with all its parts at once, a dozen objects for each message; with
thousands on their way that is most of the work, and of the garbage collector's. Here the condition
is made by the first who waits.
"""

import threading
from concurrent.futures import Future
from typing import Any, Final, TypeVar

T = TypeVar("T")

_FINISHED: Final = "FINISHED"
_PENDING: Final = "PENDING"
_DONE: Final = frozenset({_FINISHED, "CANCELLED", "CANCELLED_AND_NOTIFIED"})

_lock: Final = threading.Lock()  # guards the making of conditions, and results set without one


class LightFuture(Future[T]):
    """Any thread may use it, with everything that takes a Future."""

    _own_condition: threading.Condition | None = None

    def __init__(self) -> None:
        # Not the base's: it would make the condition, which is a property here.
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
        if self._state == _FINISHED and self._exception is None:
            return self._result  # type: ignore[return-value]
        return super().result(timeout)

    def set_result(self, result: T) -> None:
        # Whoever makes a condition later sees the state; whoever has made one is told by the base.
        with _lock:
            if self._own_condition is None and self._state == _PENDING:
                self._result = result
                self._state = _FINISHED
                return
        super().set_result(result)
