"""Where a consumer begins to read a queue (RocketMQ: computePullFromWhere)."""

from typing import Final

from orbitmq.client.consumer.config import StartFrom
from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.client.consumer.offset_store import NO_OFFSET
from orbitmq.message import RETRY_PREFIX
from orbitmq.units import MINUTE_MS
from orbitmq.wire.bodies.message_queue import MessageQueue

_LOOK_BACK_MS: Final = 30 * MINUTE_MS


async def start_offset(context: ConsumerContext, queue: MessageQueue) -> int:
    """Return the stored offset, or the one that a new group begins at. WireError: nobody could tell."""
    stored = await context.offsets.read(queue)
    if stored != NO_OFFSET:
        return stored
    address = await context.primary(queue.broker_name, queue.topic)
    brokers, is_retry = context.core.brokers, queue.topic.startswith(RETRY_PREFIX)
    match context.config.start_from:
        case StartFrom.FIRST:
            return 0  # an offset below the first is answered with the first
        case StartFrom.LAST:
            # Messages of a retry topic were given back by this very group: none may be left out.
            return 0 if is_retry else await brokers.max_offset(address, queue)
        case StartFrom.TIMESTAMP:
            if is_retry:
                return await brokers.max_offset(address, queue)
            return await brokers.search_offset(address, queue, _start_ms(context))


def _start_ms(context: ConsumerContext) -> int:
    return context.config.start_ms or context.core.clock.now_ms() - _LOOK_BACK_MS
