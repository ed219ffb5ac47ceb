"""Topics in memory with RocketMQ's unmodified clients and tool: as any topic, and never in the log."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import pytest

from compat import scenarios
from compat.client_kinds import Clients
from compat.clusters import Cluster
from compat.java_store import needs_java
from compat.mqadmin_commands import MqadminProcess
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import await_route, create_topic
from compat.side_by_side import Outcome, begun_tests
from orbitmq.message import RETRY_PREFIX

pytestmark = [pytest.mark.compat, pytest.mark.feature("F104"), needs_java]

SCENARIOS = (
    scenarios.sends_every_way,
    scenarios.gets_only_its_tags,
    scenarios.comes_again_after_a_failure,
    scenarios.keeps_the_order_of_each_queue,
)


class MemoryCluster(Cluster):
    """A cluster whose topics are in memory, but for those of retries."""

    def create_topic(self, topic: str, queues: int = 4) -> None:
        attributes = {} if topic.startswith(RETRY_PREFIX) else {"memory_topic": "true"}
        create_topic(self.broker.address, topic, queues, **attributes)
        await_route(self.namesrv, topic)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryCluster]:
    directory = tmp_path_factory.mktemp("memory")
    with (
        our_namesrv(directory) as namesrv,
        our_broker(
            directory, namesrv=namesrv.address, settings={"memoryTopicEnable": "true"}
        ) as broker,
    ):
        yield MemoryCluster("ours", namesrv.address, broker)


def logged(cluster: Cluster) -> bytes:
    """Return all bytes of the broker's commit log."""
    return b"".join(path.read_bytes() for path in cluster.broker.root.rglob("commitlog/0*"))


@pytest.mark.parametrize("client", ["java-new-json", "go"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda one: one.__name__)
def test_a_client(
    client: str,
    scenario: Callable[..., None],
    outcomes: Mapping[str, Outcome],
    request: pytest.FixtureRequest,
) -> None:
    outcomes[request.node.nodeid]()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, cluster: MemoryCluster, clients: Clients
) -> Iterator[Mapping[str, Outcome]]:
    """Every scenario of this file that the run selects, begun."""
    with begun_tests(request, test_a_client, partial(play, cluster, clients)) as started:
        yield started


def play(
    cluster: MemoryCluster, clients: Clients, client: str, scenario: Callable[..., None]
) -> None:
    scenario(cluster, clients.get(client, cluster.namesrv))

    log = logged(cluster)
    assert b"oneway-" not in log
    assert b"before-" not in log


def test_mqadmin_makes_a_topic_in_memory(cluster: MemoryCluster, tmp_path: Path) -> None:
    with MqadminProcess(cluster.namesrv, cluster.broker.address, tmp_path) as mqadmin:
        made = mqadmin.run("updateTopic -b BROKER -t ByTool -r 1 -w 1 -a +memory.topic=true")
        sent = mqadmin.run("sendMessage -t ByTool -p by-the-tool -k toolkey -b broker-a -i 0")
        found = mqadmin.run("queryMsgByKey -t ByTool -k toolkey")
        stats = mqadmin.run("topicStatus -t ByTool")

    assert "success" in made
    assert "SEND_OK" in sent
    assert stats.splitlines()[1].split()[:4] == ["broker-a", "0", "0", "1"]
    assert len(found.splitlines()) >= 2
    assert b"by-the-tool" not in logged(cluster)
