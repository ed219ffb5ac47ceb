"""The synchronous face of an async client: its life, and its coroutine methods as plain ones.

class Admin(SyncClient[AsyncAdmin]):
    topics = forward(AsyncAdmin.topics)      # same arguments, same result, waits for it
"""

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Self, TypeVar

from orbitmq.client.core.life import AsyncClient
from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.errors import ClientClosedError

A = TypeVar("A", bound=AsyncClient)
P = ParamSpec("P")
T = TypeVar("T")


class SyncClient(Generic[A]):
    """An async client for any code: enter it with `with`, or call `open` and `close`. Of any thread."""

    noun: ClassVar = "client"

    def __init__(self, inner: A) -> None:
        self._inner = inner
        self._loop: BackgroundLoop | None = None

    @property
    def client_id(self) -> str:
        return self._inner.client_id

    def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._loop is None:
            loop = acquire_loop()
            try:
                self._open_on(loop)
            except BaseException:
                release_loop()
                raise
            self._loop = loop
        return self

    def close(self) -> None:
        """Let what is on its way end, and close the connections."""
        self._end(None)

    def _end(self, kind: type[BaseException] | None) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                self._close_on(loop, kind)
            finally:
                release_loop()

    def _open_on(self, loop: BackgroundLoop) -> None:
        loop.run(self._inner.open())

    def _close_on(self, loop: BackgroundLoop, kind: type[BaseException] | None) -> None:
        """Close; `kind` of exception: that is why."""
        loop.run(self._inner.__aexit__(kind, None, None))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(kind)

    @property
    def opened_loop(self) -> BackgroundLoop:
        """The loop of the open client. ClientClosedError: it is not open."""
        if self._loop is None:
            raise ClientClosedError(
                f"the {self.noun} is not open: use it inside `with`, or call open() first"
            )
        return self._loop


def forward(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """Return a method that runs this one of the async client in the loop, and waits for its result."""

    @functools.wraps(method)
    def run(self: SyncClient[Any], /, *arguments: P.args, **named: P.kwargs) -> T:
        return self.opened_loop.run(method(self._inner, *arguments, **named))

    return run
