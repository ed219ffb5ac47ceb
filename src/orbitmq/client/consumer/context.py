"""ConsumerContext: what the parts of one consumer share."""

from dataclasses import dataclass, field

from orbitmq.client.consumer.config import ConsumerConfig
from orbitmq.client.consumer.consume_rates import ConsumeRates
from orbitmq.client.consumer.offset_store import OffsetStore
from orbitmq.client.core.core import ClientCore
from orbitmq.errors import UnreachableError
from orbitmq.message import RETRY_PREFIX
from orbitmq.wire.bodies.heartbeat import Subscription


@dataclass(slots=True)
class ConsumerContext:
    """Belongs to its loop's thread."""

    core: ClientCore
    config: ConsumerConfig
    offsets: OffsetStore
    subscriptions: dict[str, Subscription]
    rates: ConsumeRates = field(default_factory=ConsumeRates)

    @property
    def group(self) -> str:
        return self.config.group

    @property
    def retry_topic(self) -> str:
        return RETRY_PREFIX + self.config.group

    async def primary(self, broker_name: str, topic: str = "") -> str:
        """Return the address of a broker; asks for the topic's route where none is known."""
        routes = self.core.routes
        address = routes.address(broker_name)
        if address is None and topic:
            await routes.refresh(topic)
            address = routes.address(broker_name)
        if address is None:
            raise UnreachableError(broker_name, "no address of this broker is known")
        return address
