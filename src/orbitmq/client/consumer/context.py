"""ConsumerContext: what the parts of one consumer share."""

from dataclasses import dataclass, field
from typing import Final

from orbitmq.client.consumer.config import ConsumerConfig, StartFrom
from orbitmq.client.consumer.consume_rates import ConsumeRates
from orbitmq.client.consumer.delivery import Delivery
from orbitmq.client.consumer.offset_store import NO_OFFSET, OffsetStore
from orbitmq.client.consumer.process_queue import Call, call_now
from orbitmq.client.core.core import ClientCore
from orbitmq.client.rebalance.report import QueueChanges
from orbitmq.message import RETRY_PREFIX
from orbitmq.units import MINUTE_MS
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue

_LOOK_BACK_MS: Final = 30 * MINUTE_MS


@dataclass(slots=True)
class ConsumerContext:
    """Belongs to its loop's thread. `call`: how other threads reach it."""

    core: ClientCore
    config: ConsumerConfig
    offsets: OffsetStore
    subscriptions: dict[str, Subscription]
    call: Call = call_now
    rates: ConsumeRates = field(default_factory=ConsumeRates)
    changes: QueueChanges = field(default_factory=QueueChanges)
    delivery_kind: type[Delivery] = Delivery

    @property
    def group(self) -> str:
        return self.config.group

    @property
    def retry_topic(self) -> str:
        return RETRY_PREFIX + self.config.group

    async def start_offset(self, queue: MessageQueue) -> int:
        """Return where to begin to read a queue (RocketMQ: computePullFromWhere): the stored offset, or
        the one that a new group begins at. WireError: nobody could tell.
        """
        stored = await self.offsets.read(queue)
        if stored != NO_OFFSET:
            return stored
        address = await self.core.routes.find_address(queue.broker_name, queue.topic)
        brokers, is_retry = self.core.brokers, queue.topic.startswith(RETRY_PREFIX)
        match self.config.start_from:
            case StartFrom.FIRST:
                return 0  # an offset below the first is answered with the first
            case StartFrom.LAST:
                # Messages of a retry topic were given back by this very group: none may be left out.
                return 0 if is_retry else await brokers.max_offset(address, queue)
            case StartFrom.TIMESTAMP:
                if is_retry:
                    return await brokers.max_offset(address, queue)
                start_ms = self.config.start_ms or self.core.clock.now_ms() - _LOOK_BACK_MS
                return await brokers.search_offset(address, queue, start_ms)
