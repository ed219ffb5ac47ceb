"""The synchronous face of an async client: its life, and its coroutine methods as plain ones.

class Admin(SyncClient[AsyncAdmin]):
    topics = forward(AsyncAdmin.topics)      # same arguments, same result, waits for it
"""

import functools
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, ClassVar, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from orbitmq.client.sync.background_loop import BackgroundLoop, acquire_loop, release_loop
from orbitmq.errors import ClientClosedError


class AsyncClient(Protocol):
    """What has a life in an event loop."""

    async def open(self) -> Any: ...
    async def close(self) -> None: ...


A = TypeVar("A", bound=AsyncClient)
P = ParamSpec("P")
T = TypeVar("T")


class SyncClient(Generic[A]):
    """An async client for any code: enter it with `with`, or call `open` and `close`. Of any thread."""

    noun: ClassVar = "client"

    def __init__(self, inner: A) -> None:
        self._inner = inner
        self._loop: BackgroundLoop | None = None

    def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._loop is None:
            loop = acquire_loop()
            try:
                loop.run(self._inner.open())
            except BaseException:
                release_loop()
                raise
            self._loop = loop
        return self

    def close(self) -> None:
        """Let what is on its way end, and close the connections."""
        loop, self._loop = self._loop, None
        if loop is not None:
            try:
                loop.run(self._inner.close())
            finally:
                release_loop()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

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
