"""A broker without sockets: all its tables on a temporary store, time under the test's control.

with BrokerWorld(tmp_path) as world:
    world.route(ClientsProcessor(world.context))
    client = world.connect()
    answer = world.ask(client, Command(34, body=b"..."))
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from orbitmq.broker.broker import open_store_of
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.context import BrokerContext
from orbitmq.broker.delivery.long_poll import LongPoll
from orbitmq.broker.delivery.schedule import Schedule
from orbitmq.broker.pop.pop import Pop
from orbitmq.broker.processors.processor import Processor
from orbitmq.broker.registration import Registration
from orbitmq.broker.replication.succession import Succession
from orbitmq.broker.router import BrokerHandler, Router
from orbitmq.broker.routes import Routes
from orbitmq.broker.statistics import BrokerStatistics
from orbitmq.broker.tables.consumer_offsets import ConsumerOffsets
from orbitmq.broker.tables.consumers import ConsumerTable
from orbitmq.broker.tables.groups import GroupTable
from orbitmq.broker.tables.producers import ProducerTable
from orbitmq.broker.tables.queue_locks import QueueLocks
from orbitmq.broker.tables.request_modes import RequestModeTable
from orbitmq.broker.tables.topics import TopicTable
from orbitmq.broker.transactions.transactions import Transactions
from orbitmq.files.disk import Disk
from orbitmq.message import AppendRequest, AppendResult, Host
from orbitmq.store.config import StoreConfig
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.units import KiB
from orbitmq.wire.codes import VERSION
from orbitmq.wire.command import ONEWAY_FLAG, Command, Encoding, Opaques
from orbitmq.wire.frame import FrameDecoder, encode_command, encode_prefix

ADDRESS = "127.0.0.1:10911"
STORE_HOST = Host(b"\x7f\x00\x00\x01", 10911)


class FakeConnection:
    """A connection that keeps what is sent on it; commands went through their bytes."""

    def __init__(self, peer: str = "127.0.0.1:50001", **given: Any) -> None:
        self.peer, self.local = peer, ADDRESS
        self.peer_host = Host(b"\x7f\x00\x00\x01", int(peer.rpartition(":")[2]))
        self.encoding, self.language, self.version = Encoding.JSON, "JAVA", VERSION
        self.closed, self.close_reason = False, ""
        self.active_at = 0.0
        self.owner_data: dict[str, Any] = {}
        self.sent: list[Command] = []
        self.requests: list[tuple[Command, asyncio.Future[Command]]] = []
        self._opaques = Opaques()
        for name, value in given.items():
            setattr(self, name, value)

    def send(self, command: Command) -> None:
        self.send_frame(encode_command(command))

    def send_frame(self, frame: bytes) -> None:
        if not self.closed:
            self.sent += FrameDecoder().receive(frame)  # several frames may come joined

    def send_parts(self, command: Command, parts: Sequence[bytes | memoryview]) -> None:
        size = sum(map(len, parts))
        self.send_frame(b"".join((encode_prefix(command, size), *parts)))

    def oneway(self, command: Command) -> None:
        command.flag |= ONEWAY_FLAG
        command.opaque = self._opaques.next()
        self.send(command)

    def request(self, command: Command, timeout_ms: float) -> "asyncio.Future[Command]":
        future: asyncio.Future[Command] = asyncio.get_event_loop().create_future()
        command.opaque = self._opaques.next()
        self.send(command)
        self.requests.append((command, future))
        return future

    def ask(self, command: Command, timeout_ms: float, on_answer: Callable[[Any], None]) -> None:
        self.request(command, timeout_ms).add_done_callback(
            lambda done: on_answer(done.exception() or done.result())
        )

    def close(self, reason: str = "") -> None:
        self.closed, self.close_reason = True, reason

    def take(self) -> list[Command]:
        """Return what was sent since the last call."""
        taken, self.sent = self.sent, []
        return taken


class BrokerWorld:
    """A broker's context with everything in it that needs no socket. Store without threads: `settle`."""

    def __init__(
        self,
        root: Path,
        *,
        clock: FakeClock | None = None,
        disk: Disk | None = None,
        store: dict[str, Any] | None = None,
        offsets: dict[str, Any] | None = None,
        **config: Any,
    ) -> None:
        """`offsets` is what consumerOffset.json holds."""
        self.clock = clock or FakeClock()
        self.loop = asyncio.new_event_loop()
        self.router = Router()
        sizes: dict[str, Any] = {
            "segment_bytes": 256 * KiB,
            "cq_file_bytes": 20 * KiB,
            "index_slots": 64,
            "index_items": 256,
            "store_host": STORE_HOST,
        }
        store_config = StoreConfig(root=root, **(sizes | (store or {})))
        given = {"name": "broker-a", "host": "127.0.0.1", "port": 10911} | config
        self.config = BrokerConfig(store=store_config, **given)
        topics = TopicTable(self.config, self.clock)
        self.store = open_store_of(self.config, topics, self.clock, disk=disk, background=False)
        self.context = self._context(topics)
        if offsets is not None:
            self.context.offsets.load(offsets, root)
        self.context.transactions.recover()
        self.handler = BrokerHandler(self.router, None, self.context.on_close)
        self._port = 50_000

    def _context(self, topics: TopicTable) -> BrokerContext:
        context = BrokerContext(
            config=self.config,
            clock=self.clock,
            store=self.store,
            loop=self.loop,
            store_host=STORE_HOST,
            address=ADDRESS,
            boot_ms=self.clock.now_ms(),
            topics=topics,
            groups=GroupTable(self.config, self.clock),
            offsets=ConsumerOffsets(self.clock),
            producers=ProducerTable(),
            consumers=ConsumerTable(),
            locks=QueueLocks(self.clock, self.config.lock_expiry_ms),
            registration=Registration(self.config, topics, ADDRESS),
            request_modes=RequestModeTable(),
            succession=Succession(self.config, None),
        )
        context.on_close += [context.producers.on_close, context.consumers.on_close]
        context.statistics = BrokerStatistics(self.clock, self.config.cluster, topics.is_system)
        context.long_poll = LongPoll(context)
        context.schedule = Schedule(context)
        context.pop = Pop(context)
        context.routes = Routes(context)
        context.transactions = Transactions(context)
        return context

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.turn()
        self.store.close()
        self.loop.close()

    # Clients

    def connect(self, **given: Any) -> FakeConnection:
        """Return a new client's connection."""
        self._port += 1
        return FakeConnection(f"127.0.0.1:{self._port}", **given)

    def disconnect(self, connection: FakeConnection) -> None:
        connection.closed = True
        self.handler.on_close(connection, None)  # type: ignore[arg-type]

    def route(self, *processors: Processor) -> None:
        """Have requests answered by these processors."""
        for processor in processors:
            self.router.use(processor)

    def tell(self, connection: FakeConnection, *requests: Command) -> list[Command]:
        """Send requests, as of one read; return everything that came back on that connection."""
        self.handler.on_commands(connection, list(requests))  # type: ignore[arg-type]
        self.turn()
        return connection.take()

    def ask(self, connection: FakeConnection, request: Command) -> Command:
        """Send a request and return its answer; other commands to the client stay in `sent`."""
        self.handler.on_commands(connection, [request])  # type: ignore[arg-type]
        self.turn()
        for index, command in enumerate(connection.sent):
            if command.is_response and command.opaque == request.opaque:
                return connection.sent.pop(index)
        raise AssertionError(f"request {request.code} was not answered")

    # Messages and time

    def append(
        self, topic: str, *bodies: bytes, queue_id: int = 0, **given: Any
    ) -> list[AppendResult]:
        """Append messages and dispatch them."""
        requests = [AppendRequest(topic, queue_id, body, **given) for body in bodies]
        results = self.store.append_many(requests)
        self.settle()
        return results

    def settle(self) -> None:
        """Dispatch what was appended, and let the loop do what that wakes."""
        assert self.store.wait_dispatched()
        self.turn()

    def turn(self) -> None:
        """Let the loop do what is ready, until nothing is."""
        if self.loop.is_running():
            return
        for _ in range(3):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
