"""A name server without sockets: what the tests of namesrv share."""

from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.handler import NamesrvHandler
from orbitmq.namesrv.kv_config import KvConfig
from orbitmq.namesrv.routes import RouteTable
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies.topic_config import DataVersion, Registration, TopicConfig, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers.header import Header
from orbitmq.wire.headers.registration import RegisterBroker


class FakeConnection:
    """Stands for a connection: keeps what was sent."""

    def __init__(self, peer: str = "10.0.0.1:5000") -> None:
        self.peer = peer
        self.sent: list[Command] = []

    def send(self, command: Command) -> None:
        self.sent.append(command)


class NamesrvWorld:
    """A handler and its tables, under a fake clock."""

    def __init__(self, **settings) -> None:
        self.clock = FakeClock()
        self.routes = RouteTable(self.clock)
        self.kv = KvConfig()
        self.saved: list[dict] = []
        self.save_error: Exception | None = None
        config = NamesrvConfig(**settings)
        self.kept: dict[str, str] = {}
        self.handler = NamesrvHandler(
            config, self.clock, self.routes, self.kv, self._save, self._keep
        )
        self.connection = FakeConnection()

    def _save(self, done) -> None:
        self.saved.append(self.kv.snapshot())
        done(self.save_error)

    def _keep(self, changes, done) -> None:
        if self.save_error is None:
            self.kept |= changes
        done(self.save_error)

    def ask(self, code: int, header: Header | dict | None = None, body: bytes = b"", **command):
        """Return the answer to a request."""
        fields = header.write() if isinstance(header, Header) else header
        return self.ask_command(Command(code, fields, body, opaque=7, **command))

    def ask_command(self, command: Command, connection: FakeConnection | None = None) -> Command:
        connection = connection or self.connection
        before = len(connection.sent)
        self.handler.on_commands(connection, [command])
        (answer,) = connection.sent[before:]
        assert answer.opaque == command.opaque
        assert answer.flag == 1
        return answer

    def register(self, name: str = "broker-a", *topics: str, connection=None, **fields) -> Command:
        """Register a broker with these topics (and two of its own)."""
        table = told("TBW102", name, *topics, counter=fields.pop("counter", 1))
        return self.register_table(name, table, connection=connection, **fields)

    def register_table(self, name: str, table: Registration, connection=None, **fields) -> Command:
        header = registration(name, **fields)
        command = Command(103, header.write(), table.encode(), opaque=3)
        return self.ask_command(command, connection)


def registration(name: str = "broker-a", **fields) -> RegisterBroker:
    """Return the header of a broker's registration; its address follows from its name and id."""
    broker_id = fields.get("broker_id", 0)
    values = {
        "broker_name": name,
        "broker_addr": f"{name}:{10911 + broker_id}",
        "cluster_name": "DefaultCluster",
        "ha_server_addr": f"{name}:{20911 + broker_id}",
        "enable_acting_master": False,
        **fields,
    }
    return RegisterBroker(**values)


def told(*topics: str, counter: int = 1, state: int = 0, **config) -> Registration:
    """Return what a broker with these topics tells."""
    configs = {name: TopicConfig(topic_name=name, **config) for name in topics}
    version = DataVersion(counter=counter, state_version=state, timestamp=1)
    table = TopicTable(data_version=version, topic_config_table=configs)
    return Registration(topic_config_serialize_wrapper=table)
