"""Handling the messages of a queue one after the other, while its lock is held.

A message that fails keeps the queue waiting: it is handled again after a moment, and nothing behind it
before. One that failed too often is sent to the retry topic, from where the broker takes it to the dead
letters.
"""

import asyncio
import logging
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery, Outcome
from orbitmq.client.consumer.handling import DEAD_LETTERS, Handler
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.net.tasks import log_failure, stop_tasks

_log = logging.getLogger(__name__)

SUSPEND_MIN_MS: Final = 10
SUSPEND_MAX_MS: Final = 30_000
_LOCK_WAIT_MS: Final = 100


class OrderlyConsumption:
    """One task for each queue, a fixed number of them at work. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext, handler: Handler, send_back: SendBack) -> None:
        self._context, self._handler, self._send_back = context, handler, send_back
        self._slots = asyncio.Semaphore(context.config.workers)
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._open: set[ProcessQueue] = set()

    def start(self) -> None:
        """Nothing to do: queues are started one by one."""

    def open_queue(self, held: ProcessQueue) -> None:
        """Begin to handle a queue; that ends by itself when the queue is dropped."""
        task = asyncio.get_running_loop().create_task(self._run(held), name=f"consume {held.queue}")
        self._tasks.add(task)
        self._open.add(held)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: self._open.discard(held))
        task.add_done_callback(log_failure)

    def submit(self, held: ProcessQueue, messages: list[Delivery]) -> None:
        """Nothing to do: the queue's task saw them come."""

    async def stop(self, wait_ms: float) -> bool:
        """Start nothing more; wait for what is running. Return whether all of it ended."""
        self._stopping = True
        for held in self._open:
            held.wake()
        if not self._tasks:
            return True
        _, late = await asyncio.wait(self._tasks, timeout=wait_ms / 1000)
        await stop_tasks(late)
        return not late

    async def give_back_overdue(self, held: ProcessQueue) -> None:
        """Nothing to do: the next message must wait for this one, however long it takes."""

    async def _run(self, held: ProcessQueue) -> None:
        while not self._has_ended(held):
            if not held.count:
                await held.wait_until(lambda: held.count > 0 or self._has_ended(held))
            elif self._context.config.clustering and not held.lock_is_valid:
                await self._rest(held, _LOCK_WAIT_MS)
            else:
                await self._rest(held, await self._consume(held))

    async def _consume(self, held: ProcessQueue) -> float:
        """Handle the next messages; return how long the queue has to rest."""
        async with self._slots:
            if self._has_ended(held):
                return 0
            clock = self._context.core.clock
            messages = held.take(self._context.config.batch_size)
            started_ms = clock.monotonic_ms()
            try:
                outcome = await self._handler(messages, held)
                if outcome.abandoned:
                    return _LOCK_WAIT_MS
                spent_ms = clock.monotonic_ms() - started_ms
                failed = len(outcome.failed)
                self._context.rates.handled(held.queue.topic, len(messages), failed, spent_ms)
                if held.handed_over:
                    return 0
                return await self._finish(held, messages, outcome)
            finally:
                held.put_back(messages)

    async def _finish(
        self, held: ProcessQueue, messages: list[Delivery], outcome: Outcome
    ) -> float:
        if outcome.failed and await self._must_wait(messages, outcome):
            wish = outcome.suspend_ms
            suspend_ms = self._context.config.suspend_queue_ms if wish < 0 else wish
            return min(max(suspend_ms, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
        held.remove(messages)
        return 0

    async def _must_wait(self, messages: list[Delivery], outcome: Outcome) -> bool:
        """Send away what failed too often; return whether something is left to be handled again.

        As everything of a batch stays in its place, all of it counts as tried.
        """
        limit = self._context.config.reconsume_limit
        wait = False
        for message in messages:
            given_up = message.reconsume_times >= limit or outcome.level == DEAD_LETTERS
            if given_up and not self._context.config.clustering:
                _log.warning("message %s: failed too often, left out", message.message_id)
                continue
            times = max(message.reconsume_times, limit) if given_up else 0
            if given_up and await self._send_back.send_to_retry_topic(message, times):
                continue
            message.reconsume_times += 1
            wait = True
        return wait

    async def _rest(self, held: ProcessQueue, milliseconds: float) -> None:
        if milliseconds:
            await held.wait_until_or(lambda: self._has_ended(held), milliseconds)

    def _has_ended(self, held: ProcessQueue) -> bool:
        return held.dropped or self._stopping
