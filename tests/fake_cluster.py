"""A name server and brokers inside a test: real sockets, answers that the test decides.

async with FakeCluster(["broker-a", "broker-b"]) as cluster:
    cluster.add_topic("Orders", queues=2)
    cluster.brokers["broker-a"].script = [busy, silent]     # then answers as a broker does
    async with AsyncProducer(cluster.namesrv_address) as producer: ...
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

Reaction = Callable[[Connection, Command], Command | None]

SENDS = {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}


def refuse(code: int, remark: str = "as the test wants it") -> Reaction:
    """Answer with this code."""
    return lambda connection, request: request.answer(code, remark)


def silent(connection: Connection, request: Command) -> None:
    """Do not answer."""


def hang_up(connection: Connection, request: Command) -> None:
    """Close the connection instead of answering."""
    connection.abort()


class FakeServer:
    """Records requests; reacts by script first, then by code."""

    def __init__(self) -> None:
        self.requests: list[Command] = []
        self.connections: list[Connection] = []
        self.script: list[Reaction] = []  # for the next requests of the codes in `scripted`
        self.scripted: set[int] = set(SENDS)
        self.reactions: dict[int, Reaction] = {}
        self.server: Server | None = None
        self.address = ""

    async def start(self, port: int = 0) -> None:
        from orbitmq.net.config import NetConfig

        self.server = Server(self, NetConfig())
        await self.server.start("127.0.0.1", port)
        self.address = f"127.0.0.1:{self.server.port}"

    async def stop(self) -> None:
        if self.server is not None:
            await self.server.stop(0)
            self.server = None

    def of_code(self, code: int) -> list[Command]:
        return [request for request in self.requests if request.code == code]

    @property
    def sends(self) -> list[Command]:
        return [request for request in self.requests if request.code in SENDS]

    def on_open(self, connection: Connection) -> None:
        self.connections.append(connection)

    def on_close(self, connection: Connection, error: Exception | None) -> None:
        self.connections.remove(connection)

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        for request in requests:
            self.requests.append(request)
            reaction = self._reaction(request)
            answer = reaction(connection, request)
            if answer is not None and not request.is_oneway:
                connection.send(answer)

    def _reaction(self, request: Command) -> Reaction:
        if self.script and request.code in self.scripted:
            return self.script.pop(0)
        return self.reactions.get(request.code, refuse(ResponseCode.REQUEST_CODE_NOT_SUPPORTED))


class FakeBroker(FakeServer):
    """Takes messages and heartbeats."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.offsets: dict[tuple[str, str], int] = {}
        self.reactions = {
            **dict.fromkeys(SENDS, self.store),
            RequestCode.HEART_BEAT: lambda connection, request: request.answer(),
            RequestCode.UNREGISTER_CLIENT: lambda connection, request: request.answer(),
        }

    def store(self, connection: Connection, request: Command, code: int = 0) -> Command:
        """Answer as a broker that stored the message, or all of a batch."""
        fields = request.fields or {}
        where = fields["b"], fields["e"]
        offset = self.offsets.get(where, 0)
        self.offsets[where] = offset + 1
        answer = {
            "msgId": f"{offset:032X}",
            "queueId": fields["e"],
            "queueOffset": str(offset),
            "MSG_REGION": "DefaultRegion",
            "TRACE_ON": "true",
        }
        return request.answer(code, fields=answer)


class FakeNamesrv(FakeServer):
    """Knows routes."""

    def __init__(self) -> None:
        super().__init__()
        self.routes: dict[str, TopicRoute] = {}
        self.cluster = ClusterInfo()
        self.reactions = {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: lambda c, r: r.answer(body=self.cluster.encode()),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: lambda c, r: r.answer(
                body=TopicList(topic_list=sorted(self.routes)).encode()
            ),
        }

    def _route(self, connection: Connection, request: Command) -> Command:
        route = self.routes.get((request.fields or {})["topic"])
        if route is None:
            return request.answer(ResponseCode.TOPIC_NOT_EXIST, "no such topic")
        return request.answer(body=route.encode(quote_keys=True))


class FakeCluster:
    """One name server and some brokers, one primary each."""

    def __init__(self, broker_names: list[str] | None = None) -> None:
        self.namesrv = FakeNamesrv()
        self.brokers = {name: FakeBroker(name) for name in broker_names or ["broker-a"]}

    @property
    def namesrv_address(self) -> str:
        return self.namesrv.address

    async def __aenter__(self) -> Self:
        await self.namesrv.start()
        for broker in self.brokers.values():
            await broker.start()
        self.namesrv.cluster = ClusterInfo(
            broker_addr_table={name: self.broker_data(name) for name in self.brokers},
            cluster_addr_table={"DefaultCluster": sorted(self.brokers)},
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for server in (self.namesrv, *self.brokers.values()):
            await server.stop()

    def broker_data(self, name: str) -> BrokerData:
        return BrokerData(
            broker_name=name,
            cluster="DefaultCluster",
            broker_addrs={0: self.brokers[name].address},
        )

    def add_topic(
        self,
        topic: str,
        *,
        queues: int = 2,
        perm: int = 6,
        brokers: list[str] | None = None,
        **more: Any,
    ) -> None:
        """Give a topic this many queues on each broker, or on these."""
        names = brokers or list(self.brokers)
        self.namesrv.routes[topic] = TopicRoute(
            broker_datas=[self.broker_data(name) for name in names],
            queue_datas=[
                QueueData(
                    broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
                )
                for name in names
            ],
            **more,
        )
