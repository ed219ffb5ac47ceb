"""PulledQueue: one queue of a pull consumer, read ahead a little, at a position that may jump."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.subscription import wanted
from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import FormatError, ResponseError, WireError
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

_log = logging.getLogger(__name__)

_NO_LITE: Final = {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION}


class PulledQueue:
    """Reads one queue ahead. Belongs to its loop's thread.

    pull offset: what is asked for next. position: what is given out next. A jump (`seek`) throws away
    what was read ahead, and the answer of the pull that is on its way.
    """

    def __init__(
        self,
        context: ConsumerContext,
        queue: MessageQueue,
        subscription: Subscription,
        offset: int,
        on_ready: Callable[[], None],
    ) -> None:
        self.queue, self.subscription = queue, subscription
        self._context, self._on_ready = context, on_ready
        self._buffer: deque[ReceivedMessage] = deque()
        self._bytes = 0
        self._pull_offset = offset
        self._jumps = 0
        self._broker_id = 0
        self._lite = True
        self._failures = 0
        self._may_pull = asyncio.Event()
        self._paused = False
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"pull {queue}")

    # --- what is there ---

    @property
    def position(self) -> int:
        """The offset of the message that is given out next."""
        return self._buffer[0].queue_offset if self._buffer else self._pull_offset

    @property
    def ready(self) -> int:
        """How many messages can be had at once."""
        return 0 if self._paused else len(self._buffer)

    def take(self, count: int) -> list[ReceivedMessage]:
        """Return up to `count` messages in their order."""
        taken = [self._buffer.popleft() for _ in range(min(count, self.ready))]
        self._bytes -= sum(len(message.body) for message in taken)
        self._look()
        return taken

    def put_back(self, message: ReceivedMessage) -> None:
        """Have the message that was taken last given out again."""
        if message.queue_offset < self.position:
            self._buffer.appendleft(message)
            self._bytes += len(message.body)
            self._on_ready()

    # --- control ---

    def seek(self, offset: int) -> None:
        """Go on at this offset."""
        self._buffer.clear()
        self._bytes = 0
        self._pull_offset = offset
        self._jumps += 1
        # The pull that waits at the broker asks for the old place: give it up.
        self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"pull {self.queue}")

    def pause(self) -> None:
        self._paused = True
        self._look()

    def resume(self) -> None:
        self._paused = False
        self._look()
        if self._buffer:
            self._on_ready()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    def _look(self) -> None:
        config = self._context.config
        full = len(self._buffer) >= config.held_count_max or self._bytes >= config.held_bytes_max
        if full or self._paused:
            self._may_pull.clear()
        else:
            self._may_pull.set()

    # --- pulling ---

    async def _run(self) -> None:
        self._look()
        while True:
            await self._may_pull.wait()
            jumps = self._jumps
            try:
                result = await self._pull()
                found = result.messages() if result.status is PullStatus.FOUND else []
            except (WireError, FormatError) as failure:
                await asyncio.sleep(await self._failed(failure) / 1000)
                continue
            self._failures = 0
            if jumps == self._jumps:
                self._put(result, found)

    async def _pull(self) -> PullResult:
        context, queue = self._context, self.queue
        flags = PullFlag.SUSPEND | PullFlag.SUBSCRIPTION
        header = pull_header(context, queue, self.subscription, self._pull_offset, flags)
        address = context.core.routes.address(queue.broker_name, self._broker_id)
        if address is None:
            address = await context.primary(queue.broker_name, queue.topic)
        if self._lite:
            header.sys_flag |= PullFlag.LITE
        timeout_ms = context.config.pull_timeout_ms
        result = await context.core.brokers.pull(
            address, header, timeout_ms=timeout_ms, lite=self._lite
        )
        self._broker_id = result.suggested_broker_id
        return result

    def _put(self, result: PullResult, found: list[ReceivedMessage]) -> None:
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s: offset %d is not there, going on at %d",
                self.queue,
                self._pull_offset,
                result.next_offset,
            )
            self._pull_offset = result.next_offset
            return
        for message in wanted(found, self.subscription):
            if message.queue_offset >= self._pull_offset:
                self._buffer.append(message)
                self._bytes += len(message.body)
        self._pull_offset = max(self._pull_offset, result.next_offset)
        self._look()
        if self._buffer:
            self._on_ready()

    async def _failed(self, failure: Exception) -> float:
        """Return how many milliseconds to wait before the next pull."""
        if isinstance(failure, ResponseError) and failure.code in _NO_LITE and self._lite:
            self._lite = False  # an older broker, or one that was told not to
            return 0
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            _log.warning("%s: pull failed (%d): %s", self.queue, self._failures, failure)
        self._broker_id = 0
        return self._context.config.pull_failed_wait_ms


def pull_header(
    context: ConsumerContext,
    queue: MessageQueue,
    subscription: Subscription,
    offset: int,
    flags: PullFlag,
) -> PullHeader:
    """Return a pull that carries its own filter, as pull consumers send it."""
    config = context.config
    return PullHeader(
        consumer_group=config.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=config.pull_count,
        max_msg_bytes=0x7FFFFFFF,
        sys_flag=int(flags),
        commit_offset=0,
        suspend_timeout_millis=config.suspend_ms,
        sub_version=0,
        subscription=subscription.sub_string,
        expression_type=subscription.expression_type,
        bname=queue.broker_name,
    )
