"""Real brokers on real sockets, in the test's own process, and the few requests that tests make of them."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from async_run import run_async
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.format.record import Record, decode_record
from orbitmq.net.channels import Channels
from orbitmq.store.config import StoreConfig
from orbitmq.units import KiB
from orbitmq.wire.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
    ProducerData,
    Subscription,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.headers.send import LETTERS, SendHeader
from orbitmq.wire.pull_flags import PullFlag

LOOPBACK = "127.0.0.1"
TIMEOUT_MS = 10_000

T = TypeVar("T")


def live_config(root: Path, *, store: dict[str, Any] | None = None, **given: Any) -> BrokerConfig:
    """Return the config of a small broker on a free port of the loopback address."""
    sizes: dict[str, Any] = {
        "segment_bytes": 256 * KiB,
        "index_slots": 64,
        "index_items": 256,
        "plain_records": 1_000_000,
    }
    store_config = StoreConfig(root=root, **(sizes | (store or {})))
    here: dict[str, Any] = {"name": "broker-a", "host": LOOPBACK, "bind_host": LOOPBACK, "port": 0}
    return BrokerConfig(store=store_config, **(here | given))


def live_broker(root: Path, **given: Any) -> Broker:
    return Broker(live_config(root, **given))


_clients: "list[LiveClient]" = []


def run_live(main: Callable[[], Coroutine[Any, Any, T]], *, seconds: float = 30) -> T:
    """Run it to its end. What a failed test leaves open is closed: else the loop would never end."""

    async def closing() -> T:
        try:
            return await main()
        finally:
            await close_clients()

    return run_async(closing, seconds=seconds)


async def close_clients() -> None:
    """Close every client that a test has opened."""
    while _clients:
        await _clients.pop().close()


class LiveClient:
    """A client as simple as can be: requests to one address, and what the broker asks in turn."""

    def __init__(self, address: str, client_id: str = "client-1") -> None:
        self.address, self.client_id = address, client_id
        self.asked: asyncio.Queue[Command] = asyncio.Queue()
        self.channels = Channels(self)
        _clients.append(self)

    def on_open(self, connection: object) -> None: ...

    def on_commands(self, connection: object, requests: list[Command]) -> None:
        for request in requests:
            self.asked.put_nowait(request)

    def on_close(self, connection: object, error: Exception | None) -> None: ...

    async def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> Command:
        command = Command(code, fields or {}, body, language="JAVA")
        return await self.channels.request(self.address, command, TIMEOUT_MS)

    async def close(self) -> None:
        await self.channels.close()

    async def heartbeat(
        self, group: str, *topics: str, expression: str = "*", producer: str = "PG"
    ) -> Command:
        subscriptions = [
            Subscription(topic=topic, sub_string=expression, sub_version=1) for topic in topics
        ]
        data = HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=producer)],
            consumer_data_set=[ConsumerData(group_name=group, subscription_data_set=subscriptions)],
        )
        return await self.ask(RequestCode.HEART_BEAT, body=data.encode())

    async def send(self, topic: str, body: bytes, queue_id: int = 0, **given: Any) -> Command:
        header = send_header(topic, queue_id, **given)
        return await self.ask(RequestCode.SEND_MESSAGE_V2, letters(header), body)

    async def pull(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        queue_id: int = 0,
        suspend_ms: int = 0,
        commit: int | None = None,
        count: int = 32,
        expression: str | None = None,
    ) -> Command:
        flags = PullFlag.SUSPEND if suspend_ms else PullFlag(0)
        if expression is not None:
            flags |= PullFlag.SUBSCRIPTION
        if commit is not None:
            flags |= PullFlag.COMMIT
        header = PullHeader(
            consumer_group=group,
            topic=topic,
            queue_id=queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=int(flags),
            commit_offset=commit or 0,
            suspend_timeout_millis=suspend_ms,
            sub_version=1,
            subscription=expression,
        )
        return await self.ask(RequestCode.PULL_MESSAGE, header.write())

    async def offset(self, group: str, topic: str, queue_id: int = 0) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        return await self.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)

    async def commit(self, group: str, topic: str, offset: int, queue_id: int = 0) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id)}
        fields["commitOffset"] = str(offset)
        return await self.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def letters(header: SendHeader) -> dict[str, str]:
    """Return the fields for codes 310 and 320."""
    return {LETTERS[name]: text for name, text in header.write().items()}


def send_header(topic: str, queue_id: int = 0, **given: Any) -> SendHeader:
    values: dict[str, Any] = {
        "producer_group": "PG",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queue_nums": 4,
        "queue_id": queue_id,
        "sys_flag": 0,
        "born_timestamp": 1_700_000_000_000,
        "flag": 0,
        "properties": "UNIQ_KEY\x010123456789ABCDEF\x02WAIT\x01true\x02",
    }
    return SendHeader(**(values | given))


def records_of(answer: Command) -> list[Record]:
    """Return the messages in the body of a pull's answer."""
    records, body = [], memoryview(answer.body)
    while body:
        size = int.from_bytes(body[:4], "big")
        records.append(decode_record(body[:size]))
        body = body[size:]
    return records
