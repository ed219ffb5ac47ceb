"""Every client on a Java name server with our broker, and on our name server with a Java broker."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import pytest

from compat import scenarios
from compat.client_kinds import (
    JAVA_OLD_VERSION,
    cpp_client,
    go_client,
    java_client,
    node_client,
    why_no,
)
from compat.client_program import ClientProgram
from compat.clusters import MIXED_KINDS, Cluster, Clusters
from compat.java_store import needs_java

pytestmark = [pytest.mark.compat, needs_java]

Client = Callable[..., AbstractContextManager[ClientProgram]]

CLIENTS: Final[dict[str, Client]] = {
    "java-new": java_client,
    "java-binary": partial(java_client, binary=True),
    "java-old": partial(java_client, version=JAVA_OLD_VERSION),
    "go": go_client,
    "node": node_client,
    "cpp": cpp_client,
}
MODES: Final = {"node": ("sync", "async"), "cpp": ("sync", "async", "oneway")}
ALL_MODES: Final = ("sync", "async", "oneway", "batch")
NEEDED: Final = {"go": "go", "node": "npm"}


@pytest.fixture(scope="module", params=MIXED_KINDS)
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


@pytest.fixture(scope="module", params=CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    reason = why_no(NEEDED[request.param]) if request.param in NEEDED else None
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


@pytest.fixture(scope="module")
def program(
    cluster: Cluster, client: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientProgram]:
    with CLIENTS[client](tmp_path_factory.mktemp(client), cluster.namesrv) as running:
        yield running


def test_messages_sent_in_every_way_arrive_once_where_the_answer_said(
    cluster: Cluster, client: str, program: ClientProgram
) -> None:
    scenarios.sends_every_way(cluster, program, MODES.get(client, ALL_MODES))


def test_a_consumer_gets_only_the_tags_that_it_asked_for(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.gets_only_its_tags(cluster, program)


def test_two_consumers_share_and_the_one_that_stays_takes_over(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.two_share_and_one_leaves(cluster, program)
