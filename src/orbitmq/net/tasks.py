"""Tasks of an event loop: jobs that run every so many seconds, and how tasks end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

logger = logging.getLogger(__name__)

Job = Callable[[], Awaitable[object] | None]


class PeriodicJobs:
    """Jobs of one event loop. A job never runs twice at once, and one that fails runs again."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def add(
        self,
        name: str,
        every_ms: Callable[[], float] | float,
        job: Job,
        *,
        first_ms: float | None = None,
    ) -> None:
        """Run the job now and then; `every_ms` as a function is asked anew each time."""
        period = every_ms if callable(every_ms) else lambda: every_ms
        self._tasks.append(asyncio.create_task(_repeat(name, period, job, first_ms), name=name))

    def states(self) -> dict[str, str]:
        """Return whether each job is still repeated, by its name."""
        return {task.get_name(): "stopped" if task.done() else "running" for task in self._tasks}

    async def stop(self) -> None:
        """End all jobs; one that is running is told by cancellation."""
        tasks, self._tasks = self._tasks, []
        await stop_tasks(tasks)


async def _repeat(name: str, period: Callable[[], float], job: Job, first_ms: float | None) -> None:
    clock = asyncio.get_running_loop().time
    due = clock() + (period() if first_ms is None else first_ms) / 1000
    while True:
        await asyncio.sleep(max(due - clock(), 0))
        due = max(due, clock()) + period() / 1000  # counted from its beginning, not its end
        try:
            pending = job()
            if pending is not None:
                await pending
        except Exception:
            logger.exception("job %s failed; it runs again", name)


async def stop_tasks(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancel tasks and wait until they are gone."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running)


def log_failure(task: "asyncio.Task[None]") -> None:
    """Log why a task ended that should not have; for `add_done_callback`."""
    if not task.cancelled() and (failure := task.exception()) is not None:
        logger.error("%s failed", task.get_name(), exc_info=failure)
