"""A broker with its name server as a process to be measured, RocketMQ's or ours, and what is asked of it."""

import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

import harness  # noqa: F401  (makes `compat`, of the tests, importable)
from compat.java_cluster import BROKER_MAIN, NAMESRV_MAIN, broker_settings, write_settings
from compat.java_store import OPENED_MODULES
from compat.maven import HERE, classpath
from compat.server_process import ServerProcess, answers, free_port, is_registered
from doors import Command, FrameDecoder, encode_command

ORBITMQ = Path(sys.executable).with_name("orbitmq")
SERVERS = "5.3.3"
UPDATE_AND_CREATE_TOPIC = 17
GET_MAX_OFFSET = 30
DISPATCHED_WITHIN_S = 30
CPU_CLOCK = 2  # as clock_getcpuclockid(3) makes it of a process id; /proc counts in steps of 10 ms


class Side:
    """One broker, its name server, and what its process used."""

    def __init__(self, kind: str, root: Path, settings: dict[str, str], tag: str = "") -> None:
        self.kind = kind
        self._port, self._namesrv_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{self._namesrv_port}"
        self.address = f"127.0.0.1:{self._port}"
        self.root = root / f"{kind}{tag}"
        given = {
            **broker_settings(self.root, self._port, self.namesrv, "broker-a"),
            "diskMaxUsedSpaceRatio": "95",
            "brokerFastFailureEnable": "false",
            **settings,
        }
        config = write_settings(self.root / "broker.conf", given)
        self._namesrv = self._namesrv_process()
        self.broker = self._broker_process(config)
        self._topics = 0

    def _namesrv_process(self) -> ServerProcess:
        root, port = self.root / "namesrv", str(self._namesrv_port)
        if self.kind == "java":
            config = write_settings(root / "n.conf", {"listenPort": port})
            command = java(root, "256m", NAMESRV_MAIN, "-c", str(config))
        else:
            command = [str(ORBITMQ), "namesrv", "run", "--host", "127.0.0.1", "--port", port]
        ready = self.namesrv
        return ServerProcess("namesrv", command, self._namesrv_port, root, lambda: answers(ready))

    def _broker_process(self, config: Path) -> ServerProcess:
        if self.kind == "java":
            command = java(self.root, "1g", BROKER_MAIN, "-c", str(config))
        else:
            command = [str(ORBITMQ), "broker", "run", "--config", str(config)]
        return ServerProcess(
            "broker",
            command,
            self._port,
            self.root,
            lambda: is_registered(self.address, self.namesrv),
        )

    @contextmanager
    def running(self) -> Iterator["Side"]:
        self._namesrv.start()
        try:
            self.broker.start()
            yield self
        finally:
            self.broker.kill()
            self._namesrv.kill()

    @contextmanager
    def namesrv_running(self) -> Iterator[None]:
        self._namesrv.start()
        try:
            yield
        finally:
            self.broker.kill()
            self._namesrv.kill()

    def new_topic(self) -> str:
        """Create a topic of 8 queues and return its name."""
        self._topics += 1
        name = f"Bench{self._topics}"
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "readQueueNums": "8",
            "perm": "6",
            "writeQueueNums": "8",
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        answer = ask(self.address, Command(UPDATE_AND_CREATE_TOPIC, fields))
        if answer.code != 0:
            raise SystemExit(f"{self.kind}: no topic: {answer.code} {answer.remark}")
        return name

    @property
    def pid(self) -> int:
        assert self.broker.process is not None
        return self.broker.process.pid

    def cpu_seconds(self) -> float:
        """Return what the broker's process used so far, kernel time included."""
        return process_seconds(self.pid)

    def memory_bytes(self) -> tuple[int, int]:
        """Return anonymous and resident memory."""
        rows = dict(
            line.split(":", 1)
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines()
            if ":" in line
        )
        return tuple(int(rows[name].split()[0]) * 1024 for name in ("RssAnon", "VmRSS"))  # type: ignore[return-value]


def process_seconds(pid: int) -> float:
    """Return the processor time of a process, kernel time included."""
    return time.clock_gettime(~pid << 3 | CPU_CLOCK)


Shared = dict[frozenset[tuple[str, str]], list[Side]]
_shared: ContextVar[tuple[ExitStack, Shared] | None] = ContextVar("shared", default=None)


@contextmanager
def sharing() -> Iterator[None]:
    """Have parts with the same settings use the same brokers, one after the other."""
    with ExitStack() as stack:
        token = _shared.set((stack, {}))
        stack.callback(_shared.reset, token)
        yield


@contextmanager
def sides_of(
    root: Path, settings: dict[str, str], kinds: list[str], tag: str
) -> Iterator[list[Side]]:
    shared = _shared.get()
    if shared is None:
        with _own_sides(root, settings, kinds, tag) as sides:
            yield sides
        return
    stack, known = shared
    key = frozenset(settings.items())
    if key not in known:
        known[key] = stack.enter_context(_own_sides(root, settings, kinds, tag))
    yield known[key]


@contextmanager
def _own_sides(
    root: Path, settings: dict[str, str], kinds: list[str], tag: str
) -> Iterator[list[Side]]:
    sides = [Side(kind, root, settings, tag) for kind in kinds]
    with sides[0].running():
        if len(sides) == 1:
            yield sides
            return
        with sides[1].running():
            yield sides


def ask(address: str, command: Command) -> Command:
    """Send one request on a connection of its own and return the answer."""
    host, _, port = address.rpartition(":")
    decoder = FrameDecoder()
    with socket.create_connection((host, int(port)), timeout=5) as sock:
        sock.sendall(encode_command(command))
        while True:
            data = sock.recv(65536)
            if not data:
                raise ConnectionError("the peer closed the connection")
            for answer in decoder.receive(data):
                return answer


def java(home: Path, heap: str, main: str, *arguments: str) -> list[str]:
    """Return the command of a RocketMQ program with the JVM as it is tuned for servers."""
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in OPENED_MODULES]
    return [
        "java",
        f"-Xms{heap}",
        f"-Xmx{heap}",
        *opened,
        f"-Duser.home={home}",
        f"-Drocketmq.home.dir={home}",
        f"-Drmq.logback.configurationFile={HERE / 'servers' / 'rmq.logback.xml'}",
        "-cp",
        classpath("servers", SERVERS),
        main,
        *arguments,
    ]


def message_count(side: Side, topic: str) -> int:
    """Return how many messages a topic of 8 queues has."""
    count = 0
    for queue_id in range(8):
        fields = {"topic": topic, "queueId": str(queue_id)}
        answer = ask(side.address, Command(GET_MAX_OFFSET, fields))
        count += int((answer.fields or {})["offset"])
    return count


def require_count(side: Side, topic: str, wanted: int) -> None:
    """Wait until a topic has so many messages, dispatched ones that is. SystemExit: it never has."""
    until = time.monotonic() + DISPATCHED_WITHIN_S
    while (found := message_count(side, topic)) != wanted:
        if found > wanted or time.monotonic() > until:
            raise SystemExit(f"{wanted} messages were sent, the topic has {found}")
        time.sleep(0.01)
