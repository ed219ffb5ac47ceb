"""A log and its copies as real processes: ours with ours, Java's replica of ours, ours of Java's.

Either side is killed on the way. In the end the bytes of the logs are equal at every offset, blanks
included, and queues and index of each store fit its log.
"""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from command import ORBITMQ
from compat.java_cluster import java_broker
from compat.java_store import needs_java
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, ask, await_route, create_topic
from orbitmq.client import Admin, Message, Producer, SendStatus

pytestmark = [pytest.mark.compat, pytest.mark.crash]

Starts = Callable[..., AbstractContextManager[ServerProcess]]

SEGMENT: Final = 1 << 20
GET_BROKER_RUNTIME_INFO: Final = 28
WAIT_SECONDS: Final = 60.0
TOPIC: Final = "Copied"
COMMON: Final = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "haSendHeartbeatInterval": "500",
    "timerWheelEnable": "false",
}
PRIMARY: Final = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "1500"}
REPLICA: Final = {"brokerRole": "SLAVE", "brokerId": "1"}


@dataclass
class Pair:
    """A primary, its replica and somebody who sends to the primary."""

    primary: ServerProcess
    replica: ServerProcess
    producer: Producer
    namesrv: str
    sent: int = 0

    def send(self, rounds: int) -> list[SendStatus]:
        """Send messages of several kinds, 26 in a round."""
        statuses = []
        for _ in range(rounds):
            number, self.sent = self.sent, self.sent + 26
            futures = [
                self.producer.send_async(
                    Message(TOPIC, b"%d" % n * (1 + n % 400), tag=f"Tag{n % 3}")
                )
                for n in range(number, number + 12)
            ]
            keyed = Message(TOPIC, b"k" * 3000, keys=[f"key-{number}"], properties={"a": "Ünï"})
            statuses.append(self.producer.send(keyed).status)
            statuses.append(self.producer.send(Message(TOPIC, b"late", delay_level=1)).status)
            for body in (bytes(20_000), random.Random(number).randbytes(20_000)):
                statuses.append(self.producer.send(Message(TOPIC, body)).status)
            batch = [Message(TOPIC, b"batched %d" % n) for n in range(10)]
            statuses += [result.status for result in self.producer.send_batch(batch)]
            statuses += [future.result().status for future in futures]
        return statuses

    def await_equal(self) -> int:
        """Wait until the replica has all that the primary has; return how long the log is."""
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            ends = {log_end(self.primary), log_end(self.replica)}
            if len(ends) == 1:
                return ends.pop()
            assert time.monotonic() < deadline, f"{ends}\n{self.replica.tail()}"
            time.sleep(0.1)

    def await_seen(self) -> None:
        """Wait until both tell that the copy is whole, whoever wrote them."""
        deadline = time.monotonic() + WAIT_SECONDS
        with Admin(self.namesrv) as admin:
            while True:
                copies = admin.replicas()
                addresses = [(copy.is_primary, copy.address) for copy in copies]
                assert addresses == [(True, self.primary.address), (False, self.replica.address)]
                one, other = copies
                if (other.in_sync, other.connected, other.gap_bytes) == (True, True, 0):
                    break
                assert time.monotonic() < deadline, copies
                time.sleep(0.1)
        assert one.log_end > 0
        assert other.log_end > 0
        assert other.last_heard_ms > 0
        assert other.follows

    def await_in_sync(self) -> None:
        """Send until a message is acknowledged by both."""
        deadline = time.monotonic() + WAIT_SECONDS
        message = Message(TOPIC, b"are you there?")
        while self.producer.send(message).status is not SendStatus.OK:
            assert time.monotonic() < deadline, self.replica.tail()


def log_end(broker: ServerProcess) -> int:
    _, _, body = ask(broker.address, GET_BROKER_RUNTIME_INFO)
    return int(json.loads(body)["table"]["commitLogMaxOffset"])


def log_bytes(broker: ServerProcess, end: int) -> bytes:
    """Return the log as it lies in its files."""
    files = sorted((broker.root / "store" / "commitlog").iterdir())
    assert int(files[0].name) == 0
    return b"".join(file.read_bytes() for file in files)[:end]


@contextmanager
def pair(directory: Path, primary: Starts, replica: Starts) -> Iterator[Pair]:
    with ExitStack() as stack:
        namesrv = stack.enter_context(our_namesrv(directory)).address
        given = {"namesrv": namesrv, "name": "broker-r"}
        one = stack.enter_context(primary(directory / "one", settings=COMMON | PRIMARY, **given))
        other = stack.enter_context(
            replica(directory / "other", settings=COMMON | REPLICA, **given)
        )
        create_topic(one.address, TOPIC, 4)
        await_route(namesrv, TOPIC)
        producer = stack.enter_context(
            Producer(namesrv, "copies", send_timeout_ms=10_000, route_interval_ms=1000)
        )
        yield Pair(one, other, producer, namesrv)


def check_store(broker: ServerProcess) -> None:
    """Have log, queues and index of a store that is closed compared."""
    command = [str(ORBITMQ), "store", "check", str(broker.root / "store")]
    config = broker.root / "broker.conf"
    told = subprocess.run(
        [*command, "--config", str(config)], capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stdout + told.stderr


@pytest.mark.feature("F84")
@pytest.mark.parametrize(
    ("primary", "replica"),
    [
        pytest.param(our_broker, our_broker, id="ours-of-ours"),
        pytest.param(our_broker, java_broker, id="java-of-ours", marks=needs_java),
        pytest.param(java_broker, our_broker, id="ours-of-java", marks=needs_java),
    ],
)
def test_logs_are_equal_whoever_is_killed_on_the_way(
    tmp_path: Path, primary: Starts, replica: Starts
) -> None:
    with pair(tmp_path, primary, replica) as both:
        both.await_in_sync()
        assert set(both.send(15)) == {SendStatus.OK}
        end = both.await_equal()
        both.await_seen()

        both.replica.kill()
        assert SendStatus.FLUSH_REPLICA_TIMEOUT in both.send(1)
        both.replica.start()
        both.await_in_sync()
        assert set(both.send(15)) == {SendStatus.OK}

        both.primary.kill()
        both.primary.start()
        both.await_in_sync()
        assert set(both.send(40)) == {SendStatus.OK}

        first, end = end, both.await_equal()
        assert end > first + SEGMENT
        assert log_bytes(both.replica, end) == log_bytes(both.primary, end)
        for broker, start in ((both.replica, replica), (both.primary, primary)):
            if start is our_broker:  # a Java broker takes many seconds to stop
                broker.stop()
                check_store(broker)
