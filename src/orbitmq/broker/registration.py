"""Registration: name servers are told that this broker is there and which topics it has.

Each name server has a task of its own, so that one that is slow or away holds up nobody. It is told
everything first, then what changed as soon as it changes, and everything again every 30 s; an incremental
registration that is refused (the name server was restarted) is followed by a full one. A connection that
breaks means the same: whoever asks a name server that came back and knows only some of the brokers would
believe that there are no others.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.replication.members import known_to
from orbitmq.broker.tables.topics import TopicTable
from orbitmq.errors import FieldError, ResponseError, WireError
from orbitmq.net.channels import Channels, SilentHandler
from orbitmq.net.connection import Connection
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.compressed_registration import encode_compressed
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.route import QueueData, TopicRoute
from orbitmq.wire.bodies.topic_config import DataVersion, TopicConfig
from orbitmq.wire.bodies.topic_config import Registration as RegistrationBody
from orbitmq.wire.bodies.topic_config import TopicTable as TopicTableBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import TopicHeader
from orbitmq.wire.headers.registration import (
    QueryDataVersion,
    QueryDataVersionAnswer,
    RegisterBroker,
    RegisterBrokerAnswer,
    UnregisterBroker,
    body_crc32,
)

if TYPE_CHECKING:
    from orbitmq.broker.failover.failover import Failover

logger = logging.getLogger(__name__)

AGAIN_MS: Final = 5 * SECOND_MS
"""How long after a failed registration the next one is tried."""
BROKEN_WAIT_MS: Final = 1 * SECOND_MS
"""How long after the connection broke; a name server that hangs up on everybody is not hurried."""
SECOND_ROUND_MS: Final = 10 * SECOND_MS
START_WAIT_MS: Final = 1 * SECOND_MS
TELL_WAIT_MS: Final = 3 * SECOND_MS
UNREGISTER_WAIT_MS: Final = 1 * SECOND_MS
PART_MIN: Final = 2
"""A part of a registration has so many topics at least."""


class _Server:
    """One name server and what it knows."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.registered = False
        self.failed = False  # and said so in the log
        self.rounds = 0
        self.changed: set[str] = set()
        self.lost = 0  # how often somebody thought that it lost topics
        self.known_changes = -1  # the count of changes up to which it was sent the topics
        self.wake = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


class _Watcher(SilentHandler):
    """Tells when a connection to a name server broke."""

    def __init__(self, on_broken: Callable[[str], None]) -> None:
        self._on_broken = on_broken

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self._on_broken(connection.owner_data.get("address", ""))


class Registration:
    """This broker at its name servers. Belongs to the event loop's thread."""

    def __init__(self, config: BrokerConfig, topics: TopicTable, address: str) -> None:
        self._config, self._topics = config, topics
        self._address = address
        self._channels = Channels(_Watcher(self._on_broken))
        self._servers: dict[str, _Server] = {}
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.saved: Callable[[Callable[[], None]], None] = lambda callback: callback()
        """Calls back when all topics are on disk; the broker sets it."""
        self.ha_port = 0
        """Where replicas are served; 0: nowhere."""
        self.failover: Failover | None = None  # of a primary
        self.on_primary: list[Callable[[RegisterBrokerAnswer], None]] = []
        """Told where the primary of this broker is, and where it serves replicas."""
        topics.on_change.append(self._on_topic)

    @property
    def ha_address(self) -> str:
        """Where replicas are served, as name servers are told."""
        host, _, port = self._address.rpartition(":")
        return f"{host}:{self.ha_port or int(port) + 1}"

    @property
    def registered(self) -> list[str]:
        """The name servers that know this broker."""
        return [server.address for server in self._servers.values() if server.registered]

    async def start(self) -> None:
        """Begin to register; wait a moment for the first answers, not for name servers that are away."""
        self.update_servers()
        tries = [asyncio.ensure_future(self._first_round(one)) for one in self._servers.values()]
        if tries:
            _, late = await asyncio.wait(tries, timeout=START_WAIT_MS / 1000)
            for task in late:
                task.cancel()

    async def _first_round(self, server: _Server) -> None:
        while server.rounds == 0:
            await asyncio.sleep(0.005)

    def update_servers(self) -> None:
        """Follow the list of name servers in the config, which may change while the broker runs."""
        wanted = dict.fromkeys(self._config.namesrv)
        for address in wanted:
            if address not in self._servers:
                server = self._servers[address] = _Server(address)
                server.task = asyncio.create_task(self._serve(server), name=f"register {address}")
        for address in self._servers.keys() - wanted.keys():
            task = self._servers.pop(address).task
            if task is not None:
                task.cancel()

    def register_now(self) -> None:
        """Tell all name servers everything now: the broker's own permission changed, for example."""
        self.update_servers()
        for server in self._servers.values():
            server.registered = False
            server.wake.set()

    def tell_again(self, topics: Collection[str]) -> None:
        """Tell all name servers these topics as if they had changed: one may have lost them."""
        for server in self._servers.values():
            server.changed.update(topics)
            server.known_changes, server.lost = -1, server.lost + 1
            server.wake.set()

    def when_known(self, callback: Callable[[], None]) -> None:
        """Call back when all changes so far are on disk and known to the name servers.

        A tool that created a topic asks for its route next: the answer to the tool waits for this. It
        does not wait for ever: name servers that do not answer hear of it later.
        """
        self.saved(lambda: self._when_servers_know(callback))

    def _when_servers_know(self, callback: Callable[[], None]) -> None:
        if self._is_known(self._topics.changes):
            callback()
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        future.add_done_callback(lambda done: callback())
        self._waiting.append((self._topics.changes, future))
        loop.call_later(TELL_WAIT_MS / 1000, _finish, future)

    async def stop(self) -> None:
        """Unregister everywhere and close the connections."""
        tasks = [server.task for server in self._servers.values() if server.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(self._unregister(address) for address in self.registered))
        for _, future in self._waiting:
            _finish(future)
        await self._channels.close()

    def _on_topic(self, topic: str, config: TopicConfig | None) -> None:
        for server in self._servers.values():
            if config is not None:
                server.changed.add(topic)
            server.wake.set()

    def _on_broken(self, address: str) -> None:
        server = self._servers.get(address)
        if server is not None and server.registered:
            asyncio.get_running_loop().call_later(BROKEN_WAIT_MS / 1000, self._forget, server)

    def _forget(self, server: _Server) -> None:
        """The name server may know nothing any more: tell it everything."""
        if self._channels.get_nowait(server.address) is None:
            server.registered = False
            server.wake.set()

    # One name server

    async def _serve(self, server: _Server) -> None:
        while True:
            server.wake.clear()
            await self._round(server)
            self._answer_waiting()
            pause_ms = self._config.register_ms
            if not server.registered:
                pause_ms = AGAIN_MS
            elif server.rounds == 1:
                pause_ms = SECOND_ROUND_MS
            try:
                async with asyncio.timeout(pause_ms / 1000):
                    await server.wake.wait()
            except TimeoutError:
                server.changed.clear()  # a round without changes tells everything

    async def _round(self, server: _Server) -> None:
        changes, lost = self._topics.changes, server.lost
        changed, server.changed = server.changed, set()
        try:
            if await self._is_replaced(server):
                server.rounds += 1
                return
            if server.registered and changed:
                await self._tell(server, self._configs(changed))
            elif self._config.split_register:
                await self._register_in_parts(server)
            elif self._config.force_register or await self._is_news(server):
                await self._register(server, self._topics.all().values())
        except (WireError, OSError) as error:
            server.registered = False
            if not server.failed:
                logger.warning(
                    "name server %s: not registered, tried again: %s", server.address, error
                )
            server.failed = True
        else:
            if not server.registered:
                logger.info("name server %s: registered as %s", server.address, self._address)
            server.registered, server.failed = True, False
            if lost == server.lost:
                server.known_changes = changes
        server.rounds += 1

    async def _is_replaced(self, server: _Server) -> bool:
        """Tell whether this primary has no lease, and a name server knows another one: leave it that one."""
        if self.failover is None or self.failover.is_primary:
            return False
        known = await known_to(server.address, self._config.name, self._channels)
        return known.get(0, self._address) != self._address

    def _configs(self, topics: Iterable[str]) -> list[TopicConfig]:
        known = (self._topics.get(topic) for topic in topics)
        return [config for config in known if config is not None]

    async def _is_news(self, server: _Server) -> bool:
        """Ask a name server whether it knows less than the newest; the question keeps us alive there."""
        header = QueryDataVersion(**self._identity())
        body = self._topics.version.encode()
        command = Command(RequestCode.QUERY_DATA_VERSION, header.write(), body)
        try:
            answer = await self._ask(server, command)
        except ResponseError:
            return True  # it does not know the question
        return QueryDataVersionAnswer.read(answer.fields).changed

    async def _tell(self, server: _Server, topics: Collection[TopicConfig]) -> None:
        """Tell what changed, to a name server that knows the rest."""
        if not self._config.single_topic_register:
            await self._register(server, topics)
            return
        for topic in topics:
            await self._ask(server, self._topic_command(topic))

    async def _register_in_parts(self, server: _Server) -> None:
        """Tell everything, so many topics at a time; the last part may have none, as RocketMQ's."""
        topics = list(self._topics.all().values())
        # A name server takes one topic alone for a change, and refuses it before it knows the rest.
        size = max(self._config.split_register_size, PART_MIN)
        for start in range(0, len(topics) + 1, size):
            await self._register(server, topics[start : start + size])
            # It compares versions: a second part of the same one would tell it nothing new.
            self._topics.renew_version()

    async def _register(self, server: _Server, topics: Iterable[TopicConfig]) -> None:
        answer = await self._ask(server, self._command(topics))
        if self._config.broker_id:
            where = RegisterBrokerAnswer.read(answer.fields)
            for listener in self.on_primary:
                listener(where)
        if answer.body:
            try:
                self._topics.set_order_topics(KvTable.decode(answer.body).table)
            except FieldError as error:
                logger.warning("name server %s: its order topics: %s", server.address, error)

    async def _ask(self, server: _Server, command: Command) -> Command:
        timeout_ms = self._config.register_timeout_ms
        answer = await self._channels.request(server.address, command, timeout_ms)
        if answer.code != ResponseCode.SUCCESS:
            raise ResponseError(answer.code, answer.remark or "", server.address)
        return answer

    def _command(self, topics: Iterable[TopicConfig]) -> Command:
        table = TopicTableBody(
            data_version=self._topics.version,
            topic_config_table={topic.topic_name: self._permitted(topic) for topic in topics},
            mapping_data_version=DataVersion(timestamp=self._topics.version.timestamp),
        )
        table_body = RegistrationBody(topic_config_serialize_wrapper=table)
        compressed = self._config.compressed_register
        body = encode_compressed(table_body) if compressed else table_body.encode()
        header = RegisterBroker(
            **self._identity(),
            ha_server_addr=self.ha_address,
            enable_acting_master=False,
            compressed=compressed,  # RocketMQ 5.3.3 says false, and no name server understands it
            body_crc32=body_crc32(body),
        )
        return Command(RequestCode.REGISTER_BROKER, header.write(), body)

    def _topic_command(self, topic: TopicConfig) -> Command:
        """Return what tells one topic of this broker (RocketMQ: registerSingleTopicAll)."""
        permitted = self._permitted(topic)
        queues = QueueData(
            broker_name=self._config.name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=permitted.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        fields = TopicHeader(topic=topic.topic_name).write()
        body = TopicRoute(queue_datas=[queues]).encode()
        return Command(RequestCode.REGISTER_TOPIC_IN_NAMESRV, fields, body)

    def _identity(self) -> dict[str, Any]:
        """Return who this broker is, as all of its headers say."""
        return {
            "broker_name": self._config.name,
            "broker_addr": self._address,
            "cluster_name": self._config.cluster,
            "broker_id": self._config.broker_id,
        }

    def _permitted(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic as clients may use it: never more than the broker itself permits."""
        if self._config.readable and self._config.writable:
            return topic
        return msgspec.structs.replace(topic, perm=topic.perm & self._config.permission)

    async def _unregister(self, address: str) -> None:
        header = UnregisterBroker(**self._identity())
        command = Command(RequestCode.UNREGISTER_BROKER, header.write())
        try:
            await self._channels.request(address, command, UNREGISTER_WAIT_MS)
        except (WireError, OSError) as error:
            logger.info("name server %s: not unregistered: %s", address, error)

    # Who waits until name servers know

    def _is_known(self, changes: int) -> bool:
        # A name server that is away would hold up everybody: it is told everything when it is back.
        servers = [server for server in self._servers.values() if not server.failed]
        return all(server.known_changes >= changes for server in servers)

    def _answer_waiting(self) -> None:
        for one in list(self._waiting):
            changes, future = one
            if future.done() or self._is_known(changes):
                self._waiting.remove(one)
                _finish(future)


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
