"""RebalanceReporter: calls a user's `on_rebalance` with what each rebalance changed for this member."""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Final

from orbitmq.client.core.core import ClientCore
from orbitmq.client.rebalance.report import (
    GainedQueue,
    QueueChanges,
    RebalanceListener,
    RebalanceReport,
)
from orbitmq.errors import WireError
from orbitmq.net.tasks import stop_tasks
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)

_CLOSE_WAIT_MS: Final = 5 * SECOND_MS
"""How long a consumer that closes waits for its user to take the last report."""


class RebalanceReporter:
    """Tells one consumer's user, one report after the other. Belongs to its loop's thread."""

    def __init__(
        self,
        core: ClientCore,
        group: str,
        changes: QueueChanges,
        listener: RebalanceListener | None,
        queues: Callable[[], Sequence[MessageQueue]],
        *,
        in_thread: bool,
    ) -> None:
        """`in_thread`: the listener may block, unless it is a coroutine function."""
        self._core, self._group, self._changes = core, group, changes
        self._listener, self._queues = listener, queues
        self._in_thread = in_thread and not inspect.iscoroutinefunction(listener)
        self._reports: asyncio.Queue[RebalanceReport] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def round_done(self, reasons: Iterable[str], started_ms: float) -> None:
        """Report what a round changed that began then (monotonic)."""
        gained, lost = self._changes.pop(started_ms)
        if self._listener is None or not (gained or lost):
            return
        clock = self._core.clock
        duration_ms = clock.monotonic_ms() - started_ms
        report = RebalanceReport(
            self._group,
            self._core.client_id,
            tuple(sorted(reasons)),
            round(clock.now_ms() - duration_ms),
            duration_ms,
            gained,
            lost,
            tuple(self._queues()),
        )
        self._reports.put_nowait(report)
        if self._task is None or self._task.done():
            tell = self._tell_all(self._listener)
            self._task = asyncio.get_running_loop().create_task(tell, name="report rebalance")

    async def close(self, started_ms: float) -> None:
        """Report what closing changed; a listener that hangs does not keep us for long."""
        self.round_done(["close"], started_ms)
        if self._task is not None:
            await asyncio.wait([self._task], timeout=_CLOSE_WAIT_MS / 1000)
            await stop_tasks([self._task])

    async def _tell_all(self, listener: RebalanceListener) -> None:
        while not self._reports.empty():
            report = self._reports.get_nowait()
            counted = await asyncio.gather(*(self._counted(one) for one in report.gained))
            report = replace(report, gained=tuple(counted))
            try:
                await self._tell(listener, report)
            except Exception:
                _log.exception("group %s: on_rebalance failed", self._group)

    async def _tell(self, listener: RebalanceListener, report: RebalanceReport) -> None:
        if self._in_thread:
            await asyncio.to_thread(listener, report)
        elif (rest := listener(report)) is not None:
            await rest

    async def _counted(self, one: GainedQueue) -> GainedQueue:
        """Return the queue with what waited in it, if its broker tells how long it is."""
        queue = one.queue
        try:
            address = await self._core.routes.find_address(queue.broker_name, queue.topic)
            end = await self._core.brokers.max_offset(address, queue)
        except WireError as failure:
            _log.info("%s: what waited in it is not known: %s", queue, failure)
            return one
        return replace(one, waiting=max(end - one.offset, 0))
