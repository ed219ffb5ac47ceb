"""OpBatch: ends of transactions, on their way into op messages.

As RocketMQ does, the queue offsets of half messages that have ended are collected for up to
transactionOpBatchInterval, or until they fill transactionOpMsgMaxSize. A kill in between loses them: a
committed message is itself the proof of its end (`recovery.py`), and after any other its producer is asked
again. A rollback whose producer waits for the answer is written in the same turn of the loop.

The end of a committed message is written when the disk has that message: a power cut may lose it and leave
what was written behind it, and nobody is asked about a transaction that an op message lists.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.broker.context import BrokerContext
from orbitmq.broker.transactions.forms import OP_SEPARATOR, op_message
from orbitmq.errors import StoreError
from orbitmq.message import OP_HALF_TOPIC, AppendResult, AppendStatus

logger = logging.getLogger(__name__)

RETRY_MS: Final = 500  # when the store takes nothing

OnWritten = Callable[[AppendResult, list[int]], None]
"""Called with each op message and the queue offsets that it lists."""
Done = Callable[[AppendResult], None]
"""Called once with the result of the op message that was waited for."""


class OpBatch:
    """Ends that are not in the log yet. Belongs to the event loop's thread."""

    def __init__(self, context: BrokerContext, on_written: OnWritten) -> None:
        self._context, self._on_written = context, on_written
        self._offsets: list[int] = []
        self._size = 0
        # Ends whose messages are not on disk: log offset behind the message, half messages.
        self._held: deque[tuple[int, list[int]]] = deque()
        self._waiting: list[Done] = []
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self._is_soon = False
        self.collects = False
        """Whether ends may wait: while the broker serves clients."""

    @property
    def count(self) -> int:
        return len(self._offsets) + sum(len(offsets) for _, offsets in self._held)

    def add(self, offsets: list[int], behind: int = 0) -> None:
        """Have op messages say that these half messages have ended, some time later.

        `behind`: the log offset up to which the log has to be on disk before that.
        """
        if not offsets:
            return
        self._release()
        if behind > self._context.store.flushed_offset:
            self._held.append((behind, offsets))
        else:
            self._take(offsets)
        config = self._context.config
        if not self.collects or self._size > config.op_message_bytes_max:
            self._write_soon()
        elif self._timer is None:
            self._set_timer(config.op_batch_ms)

    def _release(self) -> None:
        """Take those that were held whose messages are on disk by now."""
        flushed = self._context.store.flushed_offset
        while self._held and self._held[0][0] <= flushed:
            self._take(self._held.popleft()[1])

    def _take(self, offsets: list[int]) -> None:
        self._offsets += offsets
        self._size += sum(len(str(offset)) + 1 for offset in offsets)

    def write_then(self, done: Done) -> None:
        """Write what was added in this turn of the loop, and tell."""
        self._waiting.append(done)
        self._write_soon()

    def _write_soon(self) -> None:
        if not self._is_soon:
            self._is_soon = True
            self._cancel_timer()
            self._timer = self._context.loop.call_soon(self._on_time)

    def _set_timer(self, wait_ms: float) -> None:
        self._timer = self._context.loop.call_later(wait_ms / 1000, self._on_time)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = None
        self.write()

    def write(self) -> bool:
        """Write what may be; False: something is left, and is tried again."""
        self._is_soon = False
        self._cancel_timer()
        self._release()
        waiting, self._waiting = self._waiting, []
        result = AppendResult(AppendStatus.PUT_OK, log_offset=0)
        while self._offsets:
            result = self._write_one()
            if not result.status.stored:
                logger.warning("ends of %d transactions wait: %s", self.count, result.reason)
                self._set_timer(RETRY_MS)
                break
        for done in waiting:
            done(result)
        if self._held and self._timer is None:
            self._set_timer(RETRY_MS)
        return not self._offsets and not self._held

    def _write_one(self) -> AppendResult:
        """Append one op message with as much as it may hold."""
        context, limit = self._context, self._context.config.op_message_bytes_max
        body, count = "", 0
        for offset in self._offsets:
            if len(body) >= limit and count:
                break
            body += f"{offset}{OP_SEPARATOR}"
            count += 1
        request = op_message(body, context.clock.now_ms(), context.store_host)
        try:
            result = context.store.append_nowait(request)
        except StoreError as error:
            return AppendResult(AppendStatus.SERVICE_NOT_AVAILABLE, reason=str(error))
        if result.status.stored:
            listed, self._offsets = self._offsets[:count], self._offsets[count:]
            self._size -= len(body)
            context.statistics.on_put(OP_HALF_TOPIC, 1, result.size)
            self._on_written(result, listed)
        return result
