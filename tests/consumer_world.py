"""A whole cluster in one loop, for tests of consumers: name server, broker, producer.

async with consumer_world(tmp_path) as world:
    await world.create("Orders", queues=4)
    await world.send("Orders", "a", "b")
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from async_run import until
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.clock import Clock
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.store.config import StoreConfig
from orbitmq.units import MiB
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.topic_config import TopicConfig

BROKER_NAME = "broker-a"


@dataclass
class ConsumerWorld:
    """What a test of consumers needs."""

    namesrv: str
    broker: Broker
    producer: AsyncProducer

    async def create(self, topic: str, queues: int = 4) -> None:
        """Create a topic and wait until the name server knows it."""
        config = TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues)
        self.broker.context.topics.put(config)
        core = self.producer._core
        assert core is not None
        await until(lambda: core.namesrv.route(topic))

    async def send(
        self, topic: str, *bodies: str, queue_id: int | None = None, **more: Any
    ) -> None:
        """Send messages one after the other, to one queue if that is named; they can be read then."""
        queue = None if queue_id is None else self.queue(topic, queue_id)
        for body in bodies:
            await self.producer.send(Message(topic, body.encode(), **more), queue=queue)
        assert await asyncio.to_thread(self.broker.context.store.wait_dispatched)

    async def later_ms(self) -> int:
        """Return a time of the broker's clock that is later than all store times so far."""
        clock = self.broker.context.clock
        sent_ms = clock.now_ms()
        await until(lambda: clock.now_ms() > sent_ms)
        return sent_ms + 1

    async def round_trip(self, member: AsyncConsumer) -> None:
        """Let a member hear from its broker: what it asked before is answered and handled then, too."""
        for _ in range(3):
            assert await member._context.core.heartbeat() == 1

    def offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return what the broker knows of a group's progress."""
        return self.broker.context.offsets.get(group, topic, queue_id)

    def queues(self, topic: str, count: int) -> list[MessageQueue]:
        return [self.queue(topic, number) for number in range(count)]

    def queue(self, topic: str, queue_id: int) -> MessageQueue:
        return MessageQueue(topic, BROKER_NAME, queue_id)


@dataclass
class Seen:
    """A handler that notes what it got; `fail` says which messages it refuses."""

    fail: Callable[[ReceivedMessage], bool] = lambda message: False
    seconds: float = 0.0
    messages: list[ReceivedMessage] = field(default_factory=list)
    times: list[float] = field(default_factory=list)

    async def __call__(self, message: ReceivedMessage) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)  # sleep: a handler that takes its time
        self.messages.append(message)
        self.times.append(time.monotonic())
        if self.fail(message):
            raise ValueError(message.body.decode())

    @property
    def bodies(self) -> list[str]:
        return [message.body.decode() for message in self.messages]


def counts(*seen: Seen) -> Counter[str]:
    """Return how often each body came, over several handlers."""
    return Counter(body for one in seen for body in one.bodies)


def names(count: int, prefix: str = "m") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def once(bodies: Iterable[str]) -> Counter[str]:
    return Counter(bodies)


def broker_config(root: Path, namesrv: str, name: str = BROKER_NAME, **given: Any) -> BrokerConfig:
    """Return a small broker on a free loopback port."""
    store = StoreConfig(root=root, segment_bytes=4 * MiB, cq_file_bytes=20_000, plain_records=10**9)
    return BrokerConfig(
        store=store,
        name=name,
        host="127.0.0.1",
        bind_host="127.0.0.1",
        port=given.pop("port", 0),
        namesrv=(namesrv,),
        **given,
    )


@asynccontextmanager
async def consumer_world(
    directory: Path, *, clock: Clock | None = None, **given: Any
) -> AsyncIterator[ConsumerWorld]:
    """Run name server, broker and producer; `clock` is the broker's, `given` are its settings."""
    namesrv = NameServer(NamesrvConfig(host="127.0.0.1", port=0))
    await namesrv.start()
    try:
        config = broker_config(directory / "store", namesrv.address, **given)
        async with (
            Broker(config, clock=clock) as broker,
            AsyncProducer(namesrv.address, group="test-producer") as producer,
        ):
            yield ConsumerWorld(namesrv.address, broker, producer)
    finally:
        await namesrv.stop()
