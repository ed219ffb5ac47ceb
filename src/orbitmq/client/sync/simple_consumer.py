"""SimpleConsumer: take messages when you want them, and say when each is done with, in any code.

with SimpleConsumer(namesrv="127.0.0.1:9876", group="workers", topics="Jobs") as consumer:
    for message in consumer.receive(16, invisible_ms=60_000, wait_ms=5_000):
        ...
        consumer.ack(message)
"""

from collections.abc import Sequence
from typing import Any

from orbitmq.client.consumer.config import StartWish, Topics
from orbitmq.client.consumer.simple_consumer import AsyncSimpleConsumer
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.sync.face import SyncClient, forward


class SimpleConsumer(SyncClient[AsyncSimpleConsumer]):
    """A member of a group that takes messages one by one. Any number of threads may use it at once.

    What the methods do is said at `AsyncSimpleConsumer`.
    """

    noun = "consumer"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        group: str = "",
        topics: Topics = (),
        *,
        start_from: StartWish = "last",
        ordered: bool = False,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        inner = AsyncSimpleConsumer(
            namesrv,
            group,
            topics,
            start_from=start_from,
            ordered=ordered,
            config=config,
            **settings,
        )
        super().__init__(inner)

    @property
    def group(self) -> str:
        return self._inner.group

    receive = forward(AsyncSimpleConsumer.receive)
    ack = forward(AsyncSimpleConsumer.ack)
    change_invisible = forward(AsyncSimpleConsumer.change_invisible)
