"""Our client on RocketMQ's own name server and broker, alone and in one group with the Java client."""

from collections.abc import Iterator

import pytest

from compat import scenarios
from compat.client_kinds import java_client, our_client
from compat.client_program import ClientProgram
from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java

pytestmark = [pytest.mark.compat, needs_java]

MODES = ("sync", "async", "oneway", "batch")


@pytest.fixture(scope="module", params=("java", "ours"))
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="module", params=("json", "binary"))
def program(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientProgram]:
    directory, binary = tmp_path_factory.mktemp("ours"), request.param == "binary"
    with our_client(directory, cluster.namesrv, binary=binary) as running:
        yield running


@pytest.fixture(scope="module")
def java(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    with java_client(tmp_path_factory.mktemp("java"), cluster.namesrv) as running:
        yield running


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


def test_our_consumer_takes_over_from_a_java_consumer_of_its_group(
    cluster: Cluster, program: ClientProgram, java: ClientProgram
) -> None:
    scenarios.two_share_and_one_leaves(cluster, program, java)


def test_a_java_consumer_takes_over_from_ours(
    cluster: Cluster, program: ClientProgram, java: ClientProgram
) -> None:
    scenarios.two_share_and_one_leaves(cluster, java, program)


def test_a_failed_message_comes_again(cluster: Cluster, program: ClientProgram) -> None:
    scenarios.comes_again_after_a_failure(cluster, program)


def test_an_orderly_consumer_sees_each_queue_in_order(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.keeps_the_order_of_each_queue(cluster, program)


@pytest.mark.parametrize("sender", ["ours", "java"])
def test_each_reads_what_the_other_wrote(
    cluster: Cluster, program: ClientProgram, java: ClientProgram, sender: str
) -> None:
    one, other = (program, java) if sender == "ours" else (java, program)
    scenarios.sends_every_way(cluster, one, MODES, reader=other)
