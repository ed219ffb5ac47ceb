"""Handling messages at the same time, in any order: a fixed number of workers, retries by the broker."""

import asyncio
import logging
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.handling import Handler, Outcome
from orbitmq.client.consumer.process_queue import ProcessQueue, batches
from orbitmq.client.consumer.send_back import FIRST_RETRY_LEVEL, SendBack
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.units import SECOND_MS

_log = logging.getLogger(__name__)

TRY_AGAIN_MS: Final = 5 * SECOND_MS
"""When to handle a message again that nobody took back."""
OVERDUE_PER_QUEUE: Final = 16

_Job = tuple[ProcessQueue, list[ReceivedMessage]]


class ConcurrentConsumption:
    """Workers that take what was pulled. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext, handler: Handler, send_back: SendBack) -> None:
        self._context, self._handler, self._send_back = context, handler, send_back
        self._jobs: asyncio.Queue[_Job] = asyncio.Queue()
        self._workers: list[asyncio.Task[None]] = []
        self._busy = 0
        self._stopping = False
        self._all_idle = asyncio.Event()

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        count = self._context.config.workers
        self._workers = [loop.create_task(self._work(), name="consume") for _ in range(count)]

    def open_queue(self, held: ProcessQueue) -> None:
        """Nothing to do: workers take from all queues."""

    def submit(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
        """Have messages handled."""
        for batch in batches(messages, self._context.config.batch_size):
            self._jobs.put_nowait((held, batch))

    async def stop(self, wait_ms: float) -> bool:
        """Start nothing more; wait for what is running. Return whether all of it ended."""
        self._stopping = True
        ended = True
        if self._busy:
            self._all_idle.clear()
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._all_idle.wait()
            except TimeoutError:
                ended = False
        for worker in self._workers:
            worker.cancel()
        if self._workers:
            await asyncio.wait(self._workers)
        return ended

    async def _work(self) -> None:
        while True:
            held, messages = await self._jobs.get()
            if self._stopping or held.dropped:
                continue
            self._busy += 1
            try:
                await self._consume(held, messages)
            except Exception:
                _log.exception("%s: a message was not handled", held.queue)
            finally:
                self._busy -= 1
                if not self._busy:
                    self._all_idle.set()

    async def _consume(self, held: ProcessQueue, messages: list[ReceivedMessage]) -> None:
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
        self, held: ProcessQueue, messages: list[ReceivedMessage], outcome: Outcome
    ) -> None:
        left: list[ReceivedMessage] = []
        for message in outcome.failed:
            if held.holds(message) and not await self._give_back(message, outcome):
                message.reconsume_times += 1
                left.append(message)
        kept = {message.queue_offset for message in left}
        done = [message for message in messages if message.queue_offset not in kept]
        offset = held.remove(done)
        if not held.handed_over:
            self._context.offsets.update(held.queue, offset)
        if left:
            loop = asyncio.get_running_loop()
            loop.call_later(TRY_AGAIN_MS / 1000, self.submit, held, left)

    async def _give_back(self, message: ReceivedMessage, outcome: Outcome) -> bool:
        config = self._context.config
        if not config.clustering:
            _log.warning("message %s: failed, and broadcasting has no retries", message.message_id)
            return True
        level = config.retry_level if outcome.level is None else outcome.level
        return await self._send_back.give_back(message, level)

    async def give_back_overdue(self, held: ProcessQueue) -> None:
        """Give back what handlers have had for longer than the consume timeout."""
        timeout_ms = self._context.config.consume_timeout_ms
        for message in held.overdue(timeout_ms, OVERDUE_PER_QUEUE):
            _log.warning("message %s: handled for more than %d ms", message.message_id, timeout_ms)
            if await self._send_back.give_back(message, FIRST_RETRY_LEVEL):
                self._context.offsets.update(held.queue, held.remove([message]))
