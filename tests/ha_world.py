"""What the tests of replication share: brokers of ours, and peers that say any bytes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from async_run import until
from live_broker import LOOPBACK, LiveClient, live_config
from orbitmq.broker.broker import Broker
from orbitmq.format.ha_frame import HEADER, REPORT
from orbitmq.store.config import Role
from orbitmq.store.store import MessageStore

SYNC = {"role": Role.SYNC_PRIMARY}


def log_bytes(store: MessageStore) -> bytes:
    at, parts = store.min_log_offset, []
    while (span := store.replication.read(at, 1 << 30)) is not None:
        parts.append(bytes(span.view))
        at += len(span.view)
    return b"".join(parts)


def primary(root: Path, store: dict[str, Any] | None = None, **given: Any) -> Broker:
    return Broker(live_config(root / "primary", store=store, **given))


def replica(
    root: Path, ha_address: str = "", store: dict[str, Any] | None = None, **given: Any
) -> Broker:
    store = {"role": Role.REPLICA, **(store or {})}
    given = {"broker_id": 1, "ha_primary": ha_address, **given}
    return Broker(live_config(root / "replica", store=store, **given))


async def send_many(broker: Broker, count: int, topic: str = "T", size: int = 500) -> list[int]:
    client = LiveClient(broker.address)
    answers = [await client.send(topic, b"%06d" % n * (size // 6), n % 4) for n in range(count)]
    return [answer.code for answer in answers]


async def equal(one: Broker, other: Broker) -> None:
    """Wait until a replica has all that its primary has, and compare log and queues."""
    store, copy = one.context.store, other.context.store
    await until(lambda: copy.max_log_offset == store.max_log_offset)
    for each in (store, copy):
        await until(lambda each=each: each.dispatched_offset == store.max_log_offset)
    assert log_bytes(copy) == log_bytes(store)
    for topic, queue_id in store.queues():
        end = store.max_offset(topic, queue_id)
        assert copy.max_offset(topic, queue_id) == end
        assert copy.units(topic, queue_id, 0, end) == store.units(topic, queue_id, 0, end)


class Peer:
    """Speaks to a primary's HA port byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, broker: Broker) -> "Peer":
        host, _, port = broker.ha_address.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    def report(self, *log_offsets: int) -> None:
        self.writer.write(b"".join(map(REPORT.pack, log_offsets)))

    async def frame(self) -> tuple[int, bytes]:
        log_offset, size = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        return log_offset, await self.reader.readexactly(size)

    async def is_closed(self) -> bool:
        """Read to the end; whoever calls this waits for the primary to hang up."""
        with suppress(ConnectionError):
            await asyncio.wait_for(self.reader.read(), 20)
        self.writer.close()
        return True

    def close(self) -> None:
        self.writer.close()


class FakePrimary:
    """Says the same bytes to every replica that connects, after its first report."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.reports: list[int] = []
        self.connections = 0
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                self.reports.append(*REPORT.unpack(await reader.readexactly(REPORT.size)))
                writer.write(self.said)
                self.said = b""
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def fake_primary(said: bytes) -> AsyncIterator[FakePrimary]:
    fake = FakePrimary(said)
    server = await asyncio.start_server(fake.serve, LOOPBACK, 0)
    fake.address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    try:
        yield fake
    finally:
        server.close()


def framed(log_offset: int, data: bytes, size: int | None = None) -> bytes:
    return HEADER.pack(log_offset, len(data) if size is None else size) + data
