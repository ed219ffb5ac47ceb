"""AsyncClient: what producers, consumers and admin clients have in common, their life."""

from types import TracebackType
from typing import ClassVar, Self

from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import ClientCore
from orbitmq.clock import Clock
from orbitmq.errors import ClientClosedError


class AsyncClient:
    """Enter it with `async with`, or call `open` and `close`. Belongs to the loop in which it was opened."""

    noun: ClassVar[str]

    def __init__(self, config: ClientConfig, clock: Clock | None = None) -> None:
        self._config, self._clock = config.named(), clock
        self._core: ClientCore | None = None  # while it is open
        self._owns_core = True

    @property
    def client_id(self) -> str:
        return self._config.client_id

    async def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._core is None:
            core = await ClientCore.acquire(self._config, self._clock)
            try:
                await self._start(core)
            except BaseException:
                await core.release()
                raise
            self._core = core
        return self

    async def close(self) -> None:
        """Let what is on its way end, and close the connections."""
        core, self._core = self._core, None
        if core is not None:
            await self._stop(core)
            if self._owns_core:
                await core.release()

    async def _start(self, core: ClientCore) -> None:
        """Do what has to be done at `open`; leave nothing behind where that fails."""

    async def _stop(self, core: ClientCore) -> None:
        """Do what has to be done at `close`."""

    def _failed(self) -> None:
        """Do what has to be done when an exception ends the `async with` block, before `close`."""

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None and self._core is not None:
            self._failed()
        await self.close()

    def require_open(self) -> ClientCore:
        """Return the core of the open client. ClientClosedError: it is not open."""
        if self._core is None:
            raise ClientClosedError(
                f"the {self.noun} is not open: use it inside `async with`, or call open() first"
            )
        return self._core
