"""Handling messages at the same time, in any order; what fails is given back to the broker.

Tasks take what was fetched and await the handler. Loops, and threads that call a handler, take messages by
themselves: only what they give back comes here again.
"""

import asyncio
import logging
import weakref
from collections.abc import Callable, Sequence
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Batch, Delivery, Outcome
from orbitmq.client.consumer.handling import Handler
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.send_back import FIRST_RETRY_LEVEL, SendBack
from orbitmq.net.tasks import stop_tasks
from orbitmq.units import SECOND_MS

_log = logging.getLogger(__name__)

TRY_AGAIN_MS: Final = 5 * SECOND_MS
"""When to handle a message again that nobody took back."""
OVERDUE_PER_QUEUE: Final = 16

Ready = Callable[[list[Delivery]], None]
"""Puts messages where loops take them from."""

_Job = tuple[ProcessQueue, list[Delivery]]


class ConcurrentConsumption:
    """Workers that take what was fetched. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext, handler: Handler, send_back: SendBack) -> None:
        self._context, self._handler, self._send_back = context, handler, send_back
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: weakref.WeakSet[ProcessQueue] = weakref.WeakSet()
        self._stopping = False

    def start(self) -> None:
        for _ in range(self._context.config.workers):
            self._tasks.add(asyncio.get_running_loop().create_task(self._work(), name="consume"))

    def open_queue(self, held: ProcessQueue) -> None:
        """Handle what this queue will hold."""
        self._open.add(held)
        held.on_give_back = lambda message: self._give_back_soon(held, message)

    def submit(self, held: ProcessQueue, messages: list[Delivery]) -> None:
        """Have messages handled."""
        size = self._context.config.batch_size
        for at in range(0, len(messages), size):
            self._jobs.put_nowait((held, messages[at : at + size]))

    async def stop(self, wait_ms: float) -> bool:
        """Start nothing more; wait for what is running. Return whether all of it ended."""
        self._stopping = True
        ended = await asyncio.gather(*(held.wait_idle(wait_ms) for held in list(self._open)))
        await stop_tasks(self._tasks)
        return all(ended)

    async def _work(self) -> None:
        while True:
            held, messages = await self._jobs.get()
            if self._stopping or held.dropped:
                continue
            try:
                await self._consume(held, messages)
            except Exception:
                _log.exception("%s: a message was not handled", held.queue)

    async def _consume(self, held: ProcessQueue, messages: list[Delivery]) -> None:
        clock = self._context.core.clock
        held.start(messages)
        started_ms = clock.monotonic_ms()
        try:
            outcome = await self._handler(messages, held)
            if outcome.abandoned:
                return
            spent_ms = clock.monotonic_ms() - started_ms
            failed = len(outcome.failed)
            self._context.rates.handled(held.queue.topic, len(messages), failed, spent_ms)
            # A queue that was handed over is another member's matter, with all that it held.
            if not held.handed_over:
                await self._finish(held, messages, outcome)
        finally:
            held.stop(messages)

    async def _finish(
        self, held: ProcessQueue, messages: Sequence[Delivery], outcome: Outcome
    ) -> None:
        if outcome.ok:
            held.remove(messages)  # but for what the handler itself gave back
            return
        failed, left = {id(message) for message in outcome.failed}, []
        for message in messages:
            must_go = id(message) in failed and held.holds(message)
            if must_go and not await self._give_back(message, outcome):
                message.reconsume_times += 1
                left.append(message)
        held.remove([message for message in messages if message not in left], given_back=True)
        if left:
            held.put_back(left)
            loop = asyncio.get_running_loop()
            loop.call_later(TRY_AGAIN_MS / 1000, self.submit, held, left)

    async def _give_back(self, message: Delivery, outcome: Outcome) -> bool:
        config = self._context.config
        if not config.clustering:
            _log.warning("message %s: failed, and broadcasting has no retries", message.message_id)
            return True
        level = config.retry_level if outcome.level is None else outcome.level
        return await self._send_back.give_back(message, level)

    def _give_back_soon(self, held: ProcessQueue, message: Delivery) -> None:
        """Give back what somebody gave back before, or without, its handler's end."""
        if not held.handed_over:
            work = self._finish(held, [message], message.outcome)
            task = asyncio.get_running_loop().create_task(work, name="give back")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def give_back_overdue(self, held: ProcessQueue) -> None:
        """Give back what handlers have had for longer than the consume timeout."""
        timeout_ms = self._context.config.consume_timeout_ms
        for message in held.overdue(timeout_ms, OVERDUE_PER_QUEUE):
            _log.warning("message %s: handled for more than %d ms", message.message_id, timeout_ms)
            if await self._send_back.give_back(message, FIRST_RETRY_LEVEL):
                held.remove([message])


class LoopConsumption(ConcurrentConsumption):
    """Hands messages over to loops, which settle each of them. Belongs to its loop's thread."""

    def __init__(
        self, context: ConsumerContext, ready: Ready, handler: Handler, send_back: SendBack
    ) -> None:
        super().__init__(context, handler, send_back)
        self._ready = ready

    def start(self) -> None:
        """Nothing to do: the loops are the workers."""

    def open_queue(self, held: ProcessQueue) -> None:
        super().open_queue(held)
        held.on_done = lambda batch: self._count(held, batch)

    def submit(self, held: ProcessQueue, messages: list[Delivery]) -> None:
        """Have messages handled."""
        self._ready(messages)

    async def stop(self, wait_ms: float) -> bool:
        for held in self._open:
            held.drop()
        return await super().stop(wait_ms)

    def _count(self, held: ProcessQueue, batch: Batch) -> None:
        count, spent_ms = len(batch.messages), sum(batch.spent_ms)
        self._context.rates.handled(held.queue.topic, count, batch.failed, spent_ms)
        held.consumed_ms = self._context.core.clock.now_ms()
