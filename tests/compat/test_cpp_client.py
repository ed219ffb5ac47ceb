"""RocketMQ's C++ client, as the PyPI package `rocketmq` has it, on our name server and broker."""

from collections.abc import Iterator

import pytest

from compat import scenarios
from compat.client_kinds import cpp_client
from compat.client_program import ClientProgram
from compat.clusters import KINDS, Cluster, Clusters

pytestmark = [
    pytest.mark.compat,
]

MODES = ("sync", "async", "oneway")


@pytest.fixture(scope="module", params=KINDS)
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="module")
def program(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    with cpp_client(tmp_path_factory.mktemp("cpp"), cluster.namesrv) as running:
        yield running


@pytest.mark.feature("X1.cpp")
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
    # Of several that it pulled together, this client gives back those too that it did not handle yet.
    scenarios.comes_again_after_a_failure(cluster, program, count=1)


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
