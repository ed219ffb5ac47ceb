"""PullLoop: keeps one queue's messages coming, with one pull on its way at a time."""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.send_back import RETRY_TOPIC
from orbitmq.client.consumer.subscription import wanted
from orbitmq.client.core.broker_api import PullResult, PullStatus
from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import FormatError, RequestTimeoutError, ResponseError, WireError
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.pull_flags import PullFlag

_log = logging.getLogger(__name__)

FLOW_CONTROL_WAIT_MS: Final = 20
MIN_OFFSET: Final = "MIN_OFFSET"
MAX_OFFSET: Final = "MAX_OFFSET"
_UNKNOWN_TO_BROKER: Final = {
    ResponseCode.SUBSCRIPTION_NOT_EXIST,
    ResponseCode.SUBSCRIPTION_NOT_LATEST,
    ResponseCode.FILTER_DATA_NOT_EXIST,
    ResponseCode.FILTER_DATA_NOT_LATEST,
}


class PullLoop:
    """Pulls one queue until it is dropped. Belongs to its loop's thread."""

    def __init__(
        self,
        context: ConsumerContext,
        held: ProcessQueue,
        *,
        resumed: asyncio.Event,
        queue_count: Callable[[str], int],
        on_messages: Callable[[ProcessQueue, list[ReceivedMessage]], None],
        on_illegal_offset: Callable[[ProcessQueue, int], None],
    ) -> None:
        self._context, self._held, self._resumed = context, held, resumed
        self._queue_count = queue_count
        self._on_messages, self._on_illegal_offset = on_messages, on_illegal_offset
        self._broker_id = 0
        self._failures = 0
        self._pull_ms = 0.0

    async def run(self) -> None:
        """Pull until the queue is dropped."""
        while not self._held.dropped:
            wait_ms = await self._turn()
            if wait_ms > 0:
                await asyncio.sleep(wait_ms / 1000)

    async def _turn(self) -> float:
        """Do one step; return how many milliseconds to wait before the next."""
        context, held = self._context, self._held
        if not self._resumed.is_set():
            held.note_pull()
            await self._resumed.wait()
            return 0
        if self._is_full():
            held.note_pull()
            await held.wait_changed()
            return 0
        if context.config.orderly and context.config.clustering and not held.lock_is_valid:
            return context.config.pull_failed_wait_ms
        subscription = context.subscriptions.get(held.queue.topic)
        if subscription is None:
            return context.config.pull_failed_wait_ms
        try:
            result = await self._pull(subscription)
            messages = self._messages(result, subscription)
        except (WireError, FormatError) as failure:
            return await self._failed(failure)
        self._failures = 0
        if held.dropped:
            return 0
        return self._take(result, messages)

    def _is_full(self) -> bool:
        config, held = self._context.config, self._held
        count_max, bytes_max = config.held_count_max, config.held_bytes_max
        if config.topic_count_max > 0 or config.topic_bytes_max > 0:
            queues = max(self._queue_count(held.queue.topic), 1)
            if config.topic_count_max > 0:
                count_max = max(config.topic_count_max // queues, 1)
            if config.topic_bytes_max > 0:
                bytes_max = max(config.topic_bytes_max // queues, 1)
        if held.count > count_max or held.held_bytes > bytes_max:
            return True
        return not config.orderly and held.span > config.held_span_max

    async def _pull(self, subscription: Subscription) -> PullResult:
        context, config, held = self._context, self._context.config, self._held
        queue = held.queue
        done = context.offsets.get(queue) if config.clustering else None
        flags = PullFlag.SUSPEND
        if done:
            flags |= PullFlag.COMMIT
        if config.expression_in_pull:
            flags |= PullFlag.SUBSCRIPTION
        header = PullHeader(
            consumer_group=config.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=held.next_offset,
            max_msg_nums=config.pull_count,
            max_msg_bytes=config.pull_bytes,
            sys_flag=int(flags),
            commit_offset=done or 0,
            suspend_timeout_millis=config.suspend_ms,
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string if config.expression_in_pull else None,
            expression_type=subscription.expression_type,
            bname=queue.broker_name,
        )
        address = context.core.routes.address(queue.broker_name, self._broker_id)
        if address is None:
            address = await context.primary(queue.broker_name, queue.topic)
        held.note_pull()
        started_ms = context.core.clock.monotonic_ms()
        result = await context.core.brokers.pull(address, header, timeout_ms=config.pull_timeout_ms)
        self._pull_ms = context.core.clock.monotonic_ms() - started_ms
        self._broker_id = result.suggested_broker_id
        return result

    def _messages(self, result: PullResult, subscription: Subscription) -> list[ReceivedMessage]:
        if result.status is not PullStatus.FOUND:
            return []
        found = result.messages()
        retry_topic = self._context.retry_topic
        bounds = {MIN_OFFSET: str(result.min_offset), MAX_OFFSET: str(result.max_offset)}
        for message in found:
            message.properties.update(bounds)
        kept = wanted(found, subscription)
        for message in kept:
            if message.topic == retry_topic and RETRY_TOPIC in message.properties:
                message.topic = message.properties[RETRY_TOPIC]
        self._context.rates.pulled(self._held.queue.topic, len(found), self._pull_ms)
        return kept

    def _take(self, result: PullResult, messages: list[ReceivedMessage]) -> float:
        held = self._held
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
        new = held.put(messages, result.next_offset)
        if held.count == 0:
            # Everything up to here was filtered out or handled before.
            self._context.offsets.update(held.queue, held.consumer_offset)
        if new:
            self._on_messages(held, new)
        return self._context.config.pull_interval_ms

    async def _failed(self, failure: Exception) -> float:
        """Return how long to wait; log the 1st, 2nd, 4th, 8th failure in a row, not every one."""
        config, held = self._context.config, self._held
        if isinstance(failure, RequestTimeoutError):
            self._broker_id = 0
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:
            _log.warning("%s: pull failed (%d): %s", held.queue, self._failures, failure)
        if isinstance(failure, ResponseError):
            if failure.code == ResponseCode.FLOW_CONTROL:
                return FLOW_CONTROL_WAIT_MS
            if failure.code in _UNKNOWN_TO_BROKER:
                # A broker that was restarted does not know us until it hears from us.
                await self._context.core.heartbeat()
        return config.pull_failed_wait_ms
