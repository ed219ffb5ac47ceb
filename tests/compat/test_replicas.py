"""A log and its copies as real processes: ours with ours, Java's replica of ours, ours of Java's.

Either side is killed on the way. In the end the bytes of the logs are equal at every offset, blanks
included, and queues and index of each store fit its log. Consumers go on at a replica, and come back.
"""

import json
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from command import ORBITMQ
from compat.client_kinds import Clients
from compat.java_cluster import java_broker
from compat.java_store import needs_java
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, ask, await_route, create_topic
from compat.side_by_side import Outcome, begun_tests
from orbitmq.client import Admin, Consumer, Message, Producer, SendStatus
from orbitmq.wire.bodies.group_config import GroupTable
from orbitmq.wire.bodies.offsets import OffsetTable
from orbitmq.wire.bodies.topic_config import TopicTable

pytestmark = [pytest.mark.compat, pytest.mark.crash]

Starts = Callable[..., AbstractContextManager[ServerProcess]]

SEGMENT: Final = 1 << 20
GET_ALL_TOPIC_CONFIG: Final = 21
GET_BROKER_RUNTIME_INFO: Final = 28
GET_ALL_CONSUMER_OFFSET: Final = 43
GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Final = 201
GROUP: Final = "state"
WAIT_SECONDS: Final = 60.0
TOPIC: Final = "Copied"
COMMON: Final = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "haSendHeartbeatInterval": "500",
    "timerWheelEnable": "false",
    "stateSyncInterval": "200",
}
PRIMARY: Final = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "3000"}
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

    def await_state(self) -> None:
        """Wait until the replica has topics, groups and offsets of its primary, whoever wrote them."""
        deadline = time.monotonic() + WAIT_SECONDS
        while (told := state(self.replica)) != (wanted := state(self.primary)):
            assert time.monotonic() < deadline, f"{told}\n{wanted}\n{self.replica.tail()}"
            time.sleep(0.2)
        assert all(wanted)

    def await_in_sync(self) -> None:
        """Send until a message is acknowledged by both."""
        deadline = time.monotonic() + WAIT_SECONDS
        message = Message(TOPIC, b"are you there?")
        while self.producer.send(message).status is not SendStatus.OK:
            assert time.monotonic() < deadline, self.replica.tail()


def state(broker: ServerProcess) -> tuple[object, ...]:
    """Return what a broker knows of the topic of these tests and of a group."""
    topics = TopicTable.decode(ask(broker.address, GET_ALL_TOPIC_CONFIG)[2])
    groups = GroupTable.decode(ask(broker.address, GET_ALL_SUBSCRIPTIONGROUP_CONFIG)[2])
    offsets = OffsetTable.decode(ask(broker.address, GET_ALL_CONSUMER_OFFSET)[2])
    topic = topics.topic_config_table.get(TOPIC)
    group = groups.subscription_group_table.get(GROUP)
    return topic, group, offsets.offset_table.get(f"{TOPIC}@{GROUP}")


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
    primary: Starts, replica: Starts, copied: Mapping[str, Outcome], request: pytest.FixtureRequest
) -> None:
    copied[request.node.nodeid]()


@pytest.fixture(scope="module")
def copied(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Outcome]]:
    """All pairs that the run selects, begun: they wait for each other far longer than they work."""

    def play(primary: Starts, replica: Starts) -> None:
        require_equal_logs(tmp_path_factory.mktemp("pair"), primary, replica)

    test = test_logs_are_equal_whoever_is_killed_on_the_way
    with begun_tests(request, test, play) as started:
        yield started


def require_equal_logs(directory: Path, primary: Starts, replica: Starts) -> None:
    """Have both killed on the way, and compare what they have in the end."""
    with pair(directory, primary, replica) as both:
        both.await_in_sync()
        assert set(both.send(15)) == {SendStatus.OK}
        end = both.await_equal()
        both.await_seen()
        with Consumer(both.namesrv, GROUP, TOPIC, start_from="first") as consumer:
            for _ in zip(consumer, range(100), strict=False):
                pass
        both.await_state()

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


# Consumers

READ: Final = "Read"


@contextmanager
def reading(kind: str, clients: Clients, namesrv: str) -> Iterator[Callable[[], list[str]]]:
    """Run a consumer; give what it has got so far, without what tests only send to try."""
    if kind == "ours":
        got: list[str] = []
        consumer = Consumer(
            namesrv,
            "go-on",
            READ,
            handler=lambda message: got.append(message.body.decode()),
            start_from="first",
            pull_failed_wait_ms=200,
            route_interval_ms=1000,
            rebalance_interval_ms=1000,
        )
        with consumer:
            yield lambda: list(got)
        return
    talk = clients.get(kind, namesrv).subscribe(topic=READ, group="go-on", poll=1000)
    yield lambda: talk.bodies("got")
    talk.leave()


def await_exactly(got: Callable[[], list[str]], bodies: set[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while set(got()) != bodies:
        assert time.monotonic() < deadline, sorted(set(got()) ^ bodies)[:10]
        time.sleep(0.05)
    assert sorted(got()) == sorted(bodies)  # each one once


def committed(broker: ServerProcess) -> int:
    """Return how many messages the group has read, as this broker knows it."""
    _, _, body = ask(broker.address, GET_ALL_CONSUMER_OFFSET)
    return sum(OffsetTable.decode(body).offset_table.get(f"{READ}@go-on", {}).values())


def await_committed(broker: ServerProcess, count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while committed(broker) != count:
        assert time.monotonic() < deadline, (committed(broker), count)
        time.sleep(0.05)


@pytest.mark.feature("F85")
@pytest.mark.parametrize(
    "kind", ["ours", pytest.param("java-new-json", marks=needs_java)], ids=["ours", "java"]
)
def test_consumers_go_on_at_the_replica_of_a_dead_primary_and_return_without_doubles(
    kind: str, read_on: Mapping[str, Outcome], request: pytest.FixtureRequest
) -> None:
    read_on[request.node.nodeid]()


@pytest.fixture(scope="module")
def read_on(
    request: pytest.FixtureRequest, clients: Clients, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Outcome]]:
    """All consumers that the run selects, begun."""

    def play(kind: str) -> None:
        require_each_once(tmp_path_factory.mktemp("pair"), kind, clients)

    test = test_consumers_go_on_at_the_replica_of_a_dead_primary_and_return_without_doubles
    with begun_tests(request, test, play) as started:
        yield started


def require_each_once(directory: Path, kind: str, clients: Clients) -> None:
    """Have a consumer read on while the primary dies and comes back."""
    with pair(directory, our_broker, our_broker) as both:
        create_topic(both.primary.address, READ, 2)
        await_route(both.namesrv, READ)
        both.await_in_sync()

        def send(letter: str) -> set[str]:
            bodies = [f"{letter}{number}" for number in range(40)]
            messages = [Message(READ, body.encode()) for body in bodies]
            assert {both.producer.send(one).status for one in messages} == {SendStatus.OK}
            return set(bodies)

        first = send("a")
        with reading(kind, clients, both.namesrv) as got:
            await_exactly(got, first)
        await_committed(both.primary, 40)
        second = send("b")
        both.await_equal()
        await_committed(both.replica, 40)

        both.primary.kill()
        with reading(kind, clients, both.namesrv) as got:
            await_exactly(got, second)
        await_committed(both.replica, 80)

        both.primary.start()
        await_committed(both.primary, 80)
        both.await_in_sync()
        third = send("c")
        with reading(kind, clients, both.namesrv) as got:
            await_exactly(got, third)
        await_committed(both.primary, 120)
