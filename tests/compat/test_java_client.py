"""RocketMQ's Java client, new and old, JSON and binary headers, on our name server and broker."""

from collections.abc import Iterator

import pytest

from compat import scenarios
from compat.client_kinds import JAVA_OLD_VERSION, java_client
from compat.client_program import ClientProgram
from compat.clusters import KINDS, Cluster, Clusters
from compat.java_cluster import JAVA_VERSION
from compat.java_store import needs_java

pytestmark = [pytest.mark.compat, needs_java]

MODES = ("sync", "async", "oneway", "batch")
CLIENTS = {
    "new-json": (JAVA_VERSION, False),
    "new-binary": (JAVA_VERSION, True),
    "old-json": (JAVA_OLD_VERSION, False),
    "old-binary": (JAVA_OLD_VERSION, True),
}


@pytest.fixture(scope="module", params=KINDS)
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="module", params=CLIENTS)
def program(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientProgram]:
    version, binary = CLIENTS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    with java_client(directory, cluster.namesrv, version=version, binary=binary) as running:
        yield running


@pytest.mark.feature("X1.java")
def test_messages_sent_in_every_way_arrive_once_where_the_answer_said(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.sends_every_way(cluster, program, MODES)


def test_a_consumer_gets_only_the_tags_that_it_asked_for(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.gets_only_its_tags(cluster, program)


def test_two_consumers_share_and_the_one_that_stays_takes_over(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.two_share_and_one_leaves(cluster, program)


def test_a_failed_message_comes_again(cluster: Cluster, program: ClientProgram) -> None:
    scenarios.comes_again_after_a_failure(cluster, program)


def test_an_orderly_consumer_sees_each_queue_in_order(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.keeps_the_order_of_each_queue(cluster, program)


def test_a_topic_comes_into_being_with_its_first_message(
    cluster: Cluster, program: ClientProgram
) -> None:
    if cluster.kind != "ours":
        pytest.skip("only on a cluster of one broker")
    scenarios.makes_its_own_topic(cluster, program)


def test_the_port_two_below_serves_clients_too(cluster: Cluster, program: ClientProgram) -> None:
    topic = scenarios.fresh("Vip")
    cluster.create_topic(topic)
    sent = program.send(topic=topic, count=8, body="vip-", vip="true")
    assert len(sent) == 8
    consumer = program.subscribe(topic=topic, group=scenarios.fresh("vip-group"), vip="true")
    consumer.wait("got", 8)
    assert len(consumer.leave()) == 8


def test_a_delayed_message_comes_later(cluster: Cluster, program: ClientProgram) -> None:
    topic = scenarios.fresh("Delay")
    cluster.create_topic(topic)
    consumer = program.subscribe(topic=topic, group=scenarios.fresh("delay-group"))
    sent = program.send(topic=topic, count=4, body="delayed-", delay=1)
    assert len(sent) == 4
    consumer.wait("got", 4)
    assert sorted(row["body"] for row in consumer.leave()) == [f"delayed-{n}" for n in range(4)]
