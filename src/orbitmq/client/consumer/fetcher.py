"""Fetcher: keeps the messages of one queue coming, with one pull on its way at a time.

Under every reader of queues: the push consumer and the pull consumer (`QueueFetcher`, here), and the
reader of ranges in `spark/streams/pull.py`. What they share: ask where the last answer said, wait while
there is no room, back off after a failure, log the 1st, 2nd, 4th, 8th in a row. What differs is the four
methods that a kind of fetcher gives itself.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Self

from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.delivery import Delivery, decode_answer
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.subscription import wanted
from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.client.core.core import ClientCore
from orbitmq.errors import FormatError, RequestTimeoutError, ResponseError, WireError
from orbitmq.net.tasks import log_failure, stop_tasks
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

_log = logging.getLogger(__name__)

FLOW_CONTROL_WAIT_MS: Final = 20
LITE_BYTES_MAX: Final = 0x7FFFFFFF
_UNKNOWN_TO_BROKER: Final = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
}
_NO_LITE: Final = {ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION}


class Fetcher(ABC):
    """Pulls one queue until it is told to end. Belongs to its loop's thread."""

    lite = False  # whether request 361 is used
    timeout_ms: float = 30_000

    def __init__(self, core: ClientCore, queue: MessageQueue) -> None:
        self._core, self.queue = core, queue
        self._broker_id = 0  # of the replica that the last answer recommends
        self._failures = 0  # in a row
        self.pull_ms = 0.0

    async def run(self) -> None:
        """Pull until there is nothing more to be asked for."""
        while (header := await self._next_request()) is not None:
            try:
                wait_ms = self._take(await self._pull(header))
                self._failures = 0
            except (WireError, FormatError) as failure:
                wait_ms = await self._failed(failure)
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)

    async def _pull(self, header: PullHeader) -> PullResult:
        address, clock = await self._address(), self._core.clock
        started_ms = clock.monotonic_ms()
        result = await self._core.brokers.pull(
            address, header, timeout_ms=self.timeout_ms, lite=self.lite
        )
        self.pull_ms = clock.monotonic_ms() - started_ms
        self._broker_id = result.suggested_broker_id
        return result

    async def _address(self) -> str:
        """Return which broker to ask: the one that the last answer recommends, else any of this name."""
        queue = self.queue
        return await self._core.routes.find_address(queue.broker_name, queue.topic, self._broker_id)

    async def _failed(self, failure: Exception) -> float:
        """Log it and return how many milliseconds to wait."""
        wait_ms = await self._wait_ms(failure)
        if wait_ms:
            self._failures += 1
            if self._failures & (self._failures - 1) == 0:
                _log.warning("%s: pull failed (%d): %s", self.queue, self._failures, failure)
        return wait_ms

    @abstractmethod
    async def _next_request(self) -> PullHeader | None:
        """Wait until there is room, and return what to ask for next; None: nothing more."""

    @abstractmethod
    def _take(self, result: PullResult) -> float:
        """Keep what came; return how many milliseconds to wait. WireError, FormatError: it failed."""

    @abstractmethod
    async def _wait_ms(self, failure: Exception) -> float:
        """Return how many milliseconds to wait after a failure, or raise it: it is final."""


class QueueFetcher(Fetcher):
    """Fetches a queue of a consumer into its `ProcessQueue`, as far ahead as the limits allow."""

    def __init__(
        self,
        context: ConsumerContext,
        held: ProcessQueue,
        *,
        resumed: asyncio.Event,
        queue_count: Callable[[str], int],
        on_messages: Callable[[ProcessQueue, list[Delivery]], None],
        on_illegal_offset: Callable[[ProcessQueue, int], None],
        lite: Subscription | None = None,
    ) -> None:
        super().__init__(context.core, held.queue)
        self._context, self.held, self.resumed = context, held, resumed
        self._queue_count = queue_count
        self._on_messages, self._on_illegal_offset = on_messages, on_illegal_offset
        self.own = lite  # what a pull consumer wants; a push consumer has told its broker
        self.lite = lite is not None
        self.timeout_ms = context.config.pull_timeout_ms

    def start(self) -> Self:
        """Fetch from now on, in a task."""
        self.task = asyncio.get_running_loop().create_task(self.run(), name=f"fetch {self.queue}")
        self.task.add_done_callback(log_failure)
        return self

    async def drop(self) -> None:
        """Fetch nothing more, for good, and have nothing more handled."""
        self.held.drop()
        await stop_tasks([self.task])

    @property
    def _subscription(self) -> Subscription | None:
        return self.own or self._context.subscriptions.get(self.queue.topic)

    async def _next_request(self) -> PullHeader | None:
        held = self.held
        while not held.dropped:
            held.note_pull()
            if not self.resumed.is_set():
                await self.resumed.wait()
            elif not self._has_room():
                await held.wait_until(lambda: held.dropped or self._has_room())
            elif not self._may_ask():
                await asyncio.sleep(self._context.config.pull_failed_wait_ms / 1000)
            else:
                return self._header()
        return None

    def _has_room(self) -> bool:
        config = self._context.config
        count, size = config.prefetch_count, config.prefetch_bytes
        if config.prefetch_topic_count > 0 or config.prefetch_topic_bytes > 0:
            queues = max(self._queue_count(self.queue.topic), 1)
            if config.prefetch_topic_count > 0:
                count = max(config.prefetch_topic_count // queues, 1)
            if config.prefetch_topic_bytes > 0:
                size = max(config.prefetch_topic_bytes // queues, 1)
        span = None if config.orderly or self.own is not None else config.prefetch_span
        return not self.held.exceeds(count, size, span)

    def _may_ask(self) -> bool:
        config = self._context.config
        needs_lock = config.orderly and config.clustering
        return self._subscription is not None and (self.held.lock_is_valid or not needs_lock)

    def _header(self) -> PullHeader:
        config, held = self._context.config, self.held
        subscription = self._subscription
        assert subscription is not None
        flags, done = PullFlag.SUSPEND, None
        if self.own is not None:
            flags |= PullFlag.SUBSCRIPTION | (PullFlag.LITE if self.lite else PullFlag(0))
            return pull_header(config, self.queue, subscription, held.next_offset, flags)
        if config.expression_in_pull:
            flags |= PullFlag.SUBSCRIPTION
        if config.clustering and (done := held.progress):
            flags |= PullFlag.COMMIT
        header = pull_header(config, self.queue, subscription, held.next_offset, flags)
        header.commit_offset, header.max_msg_bytes = done or 0, config.pull_bytes
        header.sub_version = subscription.sub_version
        return header

    def _take(self, result: PullResult) -> float:
        held, subscription = self.held, self._subscription
        found = result.status is PullStatus.FOUND
        context = self._context
        messages = (
            decode_answer(result, context.retry_topic, context.delivery_kind) if found else []
        )
        if held.dropped or subscription is None:
            return 0
        if result.status is PullStatus.OFFSET_ILLEGAL:
            _log.warning(
                "%s: offset %d is not there (from %d to %d), going on at %d",
                held.queue,
                held.next_offset,
                result.min_offset,
                result.max_offset,
                result.next_offset,
            )
            self._on_illegal_offset(held, result.next_offset)
            return 0
        if found:
            self._context.rates.pulled(self.queue.topic, len(messages), self.pull_ms)
        new = held.put(wanted(messages, subscription, result.body), result.next_offset)
        if new:
            self._on_messages(held, new)
        return self._context.config.pull_interval_ms

    async def _wait_ms(self, failure: Exception) -> float:
        if isinstance(failure, RequestTimeoutError) or self.own is not None:
            self._broker_id = 0
        if isinstance(failure, ResponseError):
            if self.lite and failure.code in _NO_LITE:
                self.lite = False  # an older broker, or one that was told not to
                return 0
            if failure.code == ResponseCode.FLOW_CONTROL:
                return FLOW_CONTROL_WAIT_MS
            if failure.code in _UNKNOWN_TO_BROKER:
                # A broker that was restarted does not know us until it hears from us.
                await self._core.heartbeat()
        return self._context.config.pull_failed_wait_ms


def pull_header(
    config: ConsumerConfig,
    queue: MessageQueue,
    subscription: Subscription,
    offset: int,
    flags: PullFlag,
) -> PullHeader:
    """Return a request for messages, with its own filter if the flags say so."""
    own = PullFlag.SUBSCRIPTION in flags
    return PullHeader(
        consumer_group=config.group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=config.pull_count,
        max_msg_bytes=LITE_BYTES_MAX,
        sys_flag=int(flags),
        commit_offset=0,
        suspend_timeout_millis=config.suspend_ms,
        sub_version=0,
        subscription=subscription.sub_string if own else None,
        expression_type=subscription.expression_type,
        bname=queue.broker_name,
    )
