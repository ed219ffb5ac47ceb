"""The Node client ali-ons on our name server and broker."""

from collections.abc import Iterator

import pytest

from compat import scenarios
from compat.client_kinds import node_client, why_no
from compat.client_program import ClientProgram
from compat.clusters import KINDS, Cluster, Clusters

pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(why_no("npm") is not None, reason=why_no("npm") or ""),
]

MODES = ("sync", "async")


@pytest.fixture(scope="module", params=KINDS)
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="module")
def program(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientProgram]:
    with node_client(tmp_path_factory.mktemp("node"), cluster.namesrv) as running:
        yield running


@pytest.mark.feature("X1.node")
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
