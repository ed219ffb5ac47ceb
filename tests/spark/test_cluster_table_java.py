"""The table of a cluster of RocketMQ's own programs: through its broker, its store, and its replica."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from compat.java_cluster import java_broker, java_namesrv
from compat.java_store import needs_java
from compat.server_process import ServerProcess, ask, await_route, create_topic
from orbitmq.client import Message, Producer
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import TopicStats
from orbitmq.wire.codes import RequestCode
from spark.table_world import Row, read_tasks, table_reader, table_rows

pytestmark = [pytest.mark.spark, pytest.mark.compat, needs_java]

MESSAGES = 600
WAIT_S = 60.0


@dataclass
class JavaCluster:
    """A name server, a primary and its replica."""

    namesrv: ServerProcess
    primary: ServerProcess
    replica: ServerProcess
    directory: Path

    def stored(self, **options: object) -> list[Row]:
        """Return the rows of the primary's store directory."""
        root = self.directory / "java-broker-a"
        return table_rows(path=root / "store", config=root / "broker.conf", **options)

    def pulled(self, **options: object) -> list[Row]:
        return table_rows(namesrv=self.namesrv.address, **options)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    directory = tmp_path_factory.mktemp("java-table")
    second = directory / "second"
    settings = {"brokerId": "1", "brokerRole": "SLAVE", "slaveReadEnable": "true"}
    with ExitStack() as stack:
        namesrv = stack.enter_context(java_namesrv(directory))
        primary = stack.enter_context(java_broker(directory, namesrv=namesrv.address))
        replica = stack.enter_context(
            java_broker(second, namesrv=namesrv.address, settings=settings)
        )
        for topic in ("JavaA", "JavaB"):
            # A replica asks its primary for topics when a minute has gone since its start, not before.
            create_topic(replica.address, topic)
            create_topic(primary.address, topic)
            await_route(namesrv.address, topic)
        _send(namesrv.address)
        yield JavaCluster(namesrv, primary, replica, directory)


def _send(namesrv: str) -> None:
    with Producer(namesrv, "tables") as producer:
        for number in range(MESSAGES):
            keys = f"key{number % 100} often"
            topic, tag = f"Java{'AB'[number % 2]}", f"tag{number % 5}"
            producer.send(Message(topic, b"%d " % number * (number % 50 + 1), keys=keys, tag=tag))
        producer.send(Message("JavaA", b"long" * (1 << 19), keys="long"))


@pytest.mark.feature("P2")
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"topics": "JavaA,JavaB"}, MESSAGES + 1),
        ({"topics": "JavaA,JavaB", "splitBytes": "8k"}, MESSAGES + 1),
        ({"topics": "JavaA", "tags": "tag1,tag2"}, 2 * MESSAGES // 10),
        ({"topics": "JavaA,JavaB", "keys": "key11,long"}, MESSAGES // 100 + 1),
        ({"topics": "JavaB", "keys": "often"}, MESSAGES // 2),
        ({"topics": "JavaB", "keys": "no such key"}, 0),
        ({"topics": "JavaA", "startTime": "now-2h", "endTime": "now"}, MESSAGES // 2 + 1),
        # Sent by turns, each topic has its messages in two of its four queues.
        ({"topics": "JavaA,JavaB", "startQueueOffset": "3", "endQueueOffset": "20"}, 4 * 17),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else None,
)
def test_rows_through_a_java_broker_are_those_of_its_store(
    cluster: JavaCluster, options: dict[str, str], count: int
) -> None:
    pulled = cluster.pulled(**options)

    assert pulled == cluster.stored(**options)
    assert len(pulled) == count


@pytest.mark.feature("P2")
def test_messages_of_a_java_broker_are_found_by_both_kinds_of_id(cluster: JavaCluster) -> None:
    rows = cluster.stored(topics="JavaB")
    ids = f"{rows[3]['message_id']},{rows[20]['offset_id']}"

    assert cluster.pulled(topics="JavaB", ids=ids) == [rows[3], rows[20]]
    assert cluster.stored(topics="JavaB", ids=ids) == [rows[3], rows[20]]


@pytest.mark.feature("P2")
@pytest.mark.crash
def test_a_replica_answers_when_its_primary_is_gone(cluster: JavaCluster) -> None:
    expected = cluster.stored(topics="JavaA")
    reader = table_reader(namesrv=cluster.namesrv.address, topics="JavaA", splitBytes="32k")
    tasks = reader.partitions()
    _await_copies(cluster)

    cluster.primary.kill()
    try:
        planned_before = read_tasks(reader, tasks)
        planned_after = cluster.pulled(topics="JavaA")
    finally:
        cluster.primary.start()

    assert planned_before == expected
    assert planned_after == expected


def _await_copies(cluster: JavaCluster) -> None:
    """Wait until the replica has everything: only then nothing is missing without the primary."""
    deadline = time.monotonic() + WAIT_S
    while _ends(cluster.replica) != _ends(cluster.primary):
        assert time.monotonic() < deadline, "the replica does not catch up"
        time.sleep(0.2)


def _ends(broker: ServerProcess) -> dict[MessageQueue, int]:
    code, remark, body = ask(broker.address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": "JavaA"})
    if code:
        return {MessageQueue(remark, broker.what, -1): code}  # not there yet: equal to nothing
    stats = TopicStats.decode(body).offset_table
    return {queue: one.max_offset for queue, one in stats.items()}
