"""A name server or broker as a real process: started, awaited, stopped, killed, started again."""

import fcntl
import json
import os
import random
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

UPDATE_AND_CREATE_TOPIC: Final = 17
GET_ROUTEINFO_BY_TOPIC: Final = 105
GET_BROKER_CLUSTER_INFO: Final = 106
START_SECONDS_MAX: Final = 60.0
STOP_SECONDS_MAX: Final = 30.0
POLL_SECONDS: Final = 0.05


def free_port() -> int:
    """Return a port P of the loopback address that is free, as P - 2 and P + 1 are.

    It lies below the ports that outgoing connections get: a server that is down for a while finds its port
    free when it comes back. No other process of tests gets it as long as this one lives.
    """
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000, 8)
        if _reserve(port) and all(_is_free(port + near) for near in (-2, 0, 1)):
            return port


@cache
def _reservations() -> int:
    """Open the file in which each port is a byte; it stays open, for closing it would end all locks."""
    return os.open(Path(tempfile.gettempdir(), "orbitmq-test-ports"), os.O_RDWR | os.O_CREAT, 0o666)


def _reserve(port: int) -> bool:
    try:
        fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def ask(address: str, code: int, fields: Mapping[str, str] | None = None) -> tuple[int, str, bytes]:
    """Send one request in RocketMQ's plainest form; return the answer's code, remark and body."""
    host, _, port = address.rpartition(":")
    command = {"code": code, "flag": 0, "language": "JAVA", "opaque": 1, "version": 477}
    header = json.dumps({**command, "extFields": dict(fields or {})}).encode()
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(struct.pack(">II", 4 + len(header), len(header)) + header)
        (length,) = struct.unpack(">I", _read(connection, 4))
        (header_length,) = struct.unpack(">I", _read(connection, 4))
        header_length &= 0xFFFFFF
        answer: dict[str, Any] = json.loads(_read(connection, header_length))
        body = _read(connection, length - 4 - header_length)
    return answer["code"], answer.get("remark") or "", body


def _read(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            raise ConnectionError("the peer closed the connection")
        parts += part
    return bytes(parts)


@dataclass
class ServerProcess:
    """A server that can be started again at the same address with the same files."""

    what: str
    command: Sequence[str]
    port: int
    root: Path
    is_ready: Callable[[], bool]
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self.root / "output.txt"

    def start(self) -> None:
        """Start the process and return once it serves."""
        self.launch()
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def launch(self) -> None:
        """Start the process and do not wait for it."""
        self.root.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.root,
                env={**os.environ, **self.environment},
            )

    def stop(self) -> None:
        """Ask the process to end, as a service supervisor does, and wait for it."""
        if self.process is not None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"{self.what} did not stop:\n{self.tail()}") from None
            self.process = None

    def kill(self) -> None:
        """End the process with SIGKILL: it gets no chance to save anything."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def _await_ready(self) -> None:
        assert self.process is not None
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                ended = self.process.returncode
                raise AssertionError(f"{self.what} ended with {ended}:\n{self.tail()}")
            try:
                if self.is_ready():
                    return
            except (OSError, ValueError):
                pass
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"{self.what} was not ready in time:\n{self.tail()}")


def answers(address: str) -> bool:
    """Tell whether a name server answers at all."""
    code, _, _ = ask(address, GET_BROKER_CLUSTER_INFO)
    return code == 0


def is_registered(broker_address: str, namesrv: str) -> bool:
    """Tell whether every name server of "a:1;b:2" knows the broker, and the broker listens."""
    host, _, port = broker_address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=5):
        pass
    wanted = f'"{broker_address}"'.encode()
    return all(wanted in ask(each, GET_BROKER_CLUSTER_INFO)[2] for each in namesrv.split(";"))


def create_topic(broker: str, topic: str, queues: int = 4, **attributes: str) -> None:
    """Create a topic on one broker, as mqadmin does; its route is known a moment later.

    The name of an attribute has _ for its dot: `queue_type="BatchCQ"`.
    """
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": str(queues),
        "writeQueueNums": str(queues),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    if attributes:
        pairs = (f"+{name.replace('_', '.')}={value}" for name, value in attributes.items())
        fields["attributes"] = ",".join(pairs)
    code, remark, _ = ask(broker, UPDATE_AND_CREATE_TOPIC, fields)
    assert code == 0, remark


def await_route(namesrv: str, topic: str, brokers: int = 1) -> None:
    """Wait until every name server of "a:1;b:2" tells as many brokers for a topic."""
    deadline = time.monotonic() + START_SECONDS_MAX
    for each in namesrv.split(";"):
        while True:
            code, remark, body = ask(each, GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            if code == 0 and body.count(b'"writeQueueNums"') >= brokers:
                break
            assert time.monotonic() < deadline, (
                f"no route of {topic} for {brokers} brokers: {remark}"
            )
            time.sleep(POLL_SECONDS)
