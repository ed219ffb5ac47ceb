"""One thread beside the caller's that does things in the order in which they were handed over."""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, Self

P = ParamSpec("P")

WAITING_MAX: Final = 4
"""So many calls may wait; who hands over more waits himself."""


class Aside:
    """A context: its end waits until everything is done. An error comes out of a later call, or there."""

    def __init__(self, name: str) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._waiting: deque[Future[object]] = deque()

    def call(self, act: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        while len(self._waiting) >= WAITING_MAX:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(act, *args, **kwargs))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._pool.shutdown(cancel_futures=error is not None)
        if error is None:
            while self._waiting:
                self._waiting.popleft().result()
