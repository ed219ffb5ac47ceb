"""PeriodicJob: a coroutine function that runs again and again, and at once when it is woken."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

_log = logging.getLogger(__name__)


class PeriodicJob:
    """Runs never overlap; an error is logged and does not end the job. Belongs to its loop's thread."""

    def __init__(
        self,
        name: str,
        job: Callable[[], Awaitable[object]],
        *,
        period_ms: float,
        first_ms: float = 0,
    ) -> None:
        self._name, self._job = name, job
        self._period_ms, self._first_ms = period_ms, first_ms
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> "PeriodicJob":
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=self._name)
        return self

    def wake(self) -> None:
        """Run as soon as possible; wakes during a run make one more run."""
        self._woken.set()

    async def stop(self) -> None:
        """End the job; a run that is going on is cancelled."""
        task, self._task = self._task, None
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait([task])

    async def _run(self) -> None:
        wait_ms = self._first_ms
        while True:
            await self._wait(wait_ms)
            self._woken.clear()
            try:
                await self._job()
            except Exception:
                _log.exception("%s failed; it runs again", self._name)
            wait_ms = self._period_ms

    async def _wait(self, milliseconds: float) -> None:
        try:
            async with asyncio.timeout(milliseconds / 1000):
                await self._woken.wait()
        except TimeoutError:
            pass
