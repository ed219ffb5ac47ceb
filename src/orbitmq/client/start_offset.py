"""Where a consumer begins to read a queue (RocketMQ: computePullFromWhere)."""

from orbitmq.client.consumer_config import StartFrom
from orbitmq.client.consumer_context import ConsumerContext
from orbitmq.client.offset_store import NO_OFFSET
from orbitmq.message import RETRY_PREFIX
from orbitmq.wire.bodies.message_queue import MessageQueue


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
            return await brokers.search_offset(address, queue, context.config.start_time_ms)
