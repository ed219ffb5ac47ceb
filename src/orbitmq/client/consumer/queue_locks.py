"""Locks of queues at their brokers: an orderly consumer handles a queue only while it holds its lock."""

import asyncio
import logging
from collections.abc import Iterable

from orbitmq.client.consumer.context import ConsumerContext
from orbitmq.errors import WireError
from orbitmq.wire.bodies.message_queue import MessageQueue

_log = logging.getLogger(__name__)


class QueueLocks:
    """Asks brokers for locks, for one consumer. Belongs to its loop's thread."""

    def __init__(self, context: ConsumerContext) -> None:
        self._context = context

    async def lock(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, bool]:
        """Lock queues, or renew their locks; a broker that could not be asked is left out."""
        answers = await asyncio.gather(
            *(self._lock_at(name, part) for name, part in _by_broker(queues).items())
        )
        return {queue: held for answer in answers for queue, held in answer.items()}

    async def _lock_at(
        self, broker_name: str, queues: list[MessageQueue]
    ) -> dict[MessageQueue, bool]:
        context = self._context
        try:
            address = await context.primary(broker_name, queues[0].topic)
            held = await context.core.brokers.lock(
                address, context.group, context.core.client_id, queues
            )
        except WireError as failure:
            _log.warning("group %s: %s gave no locks: %s", context.group, broker_name, failure)
            return {}
        return {queue: queue in held for queue in queues}

    async def unlock(self, queues: Iterable[MessageQueue]) -> None:
        """Give locks back and wait until the brokers know."""
        await asyncio.gather(
            *(self._unlock_at(name, part) for name, part in _by_broker(queues).items())
        )

    async def _unlock_at(self, broker_name: str, queues: list[MessageQueue]) -> None:
        context = self._context
        try:
            address = await context.primary(broker_name, queues[0].topic)
            await context.core.brokers.unlock(
                address, context.group, context.core.client_id, queues, oneway=False
            )
        except WireError as failure:
            _log.warning(
                "group %s: locks at %s not given back: %s", context.group, broker_name, failure
            )


def _by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    parts: dict[str, list[MessageQueue]] = {}
    for queue in sorted(queues):
        parts.setdefault(queue.broker_name, []).append(queue)
    return parts
