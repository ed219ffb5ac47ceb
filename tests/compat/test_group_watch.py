"""`orbitmq group watch` with RocketMQ's own members, on its broker and on ours.

The scenarios begin together: most of their time they wait for the next rebalance of a Java member.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

import pytest

from compat.client_kinds import Clients
from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java
from compat.scenarios import fresh
from compat.side_by_side import Outcome, begun_tests
from orbitmq.client import Admin
from rebalance_world import BY_INTERVAL, Member, instance, moves, watching

pytestmark = [pytest.mark.compat, needs_java, pytest.mark.feature("F116")]

WAIT_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.25
"""A Java member rebalances every 20 seconds, and four scenarios look at a time."""


def await_readers(cluster: Cluster, group: str, queues: int) -> None:
    """Wait until the group reads so many queues of its topic, and its retries, as its members say."""
    deadline = time.monotonic() + WAIT_SECONDS
    with Admin(cluster.namesrv) as admin:
        while _read_count(admin, group) != queues + 1:
            assert time.monotonic() < deadline, "they do not read them all"
            time.sleep(LOOK_SECONDS)


def _read_count(admin: Admin, group: str) -> int:
    return sum(len(one.reading) for one in admin.sample_group(group).members.values())


def java_members_that_come_and_go_are_seen(cluster: Cluster, clients: Clients) -> None:
    topic, group = fresh("Watched"), fresh("watched-group")
    cluster.create_topic(topic, 4)
    java = clients.get("java-new-json", cluster.namesrv)
    first = java.subscribe(topic=topic, group=group, instance=fresh("a"))
    await_readers(cluster, group, 4)

    with watching(cluster.namesrv, group, interval=LOOK_SECONDS) as watch:
        second = java.subscribe(topic=topic, group=group, instance=fresh("b"))
        came = watch.next_move()
        second.leave()
        went = watch.next_move()
        first.leave()

    names = sorted({instance(one["member"]) for one in watch.start["queues"]})
    assert len(names) == 1  # a Java client adds its process to the name
    assert len(came["joined"]) == 1
    pair = {names[0], instance(came["joined"][0])}
    assert {name for _, old, new in moves(came, topic) for name in (old, new)} == pair
    one = next(one for one in came["moved"] if one["topic"] == topic)
    assert 0 <= one["pause_ms_min"] <= one["pause_ms_max"]
    assert (one["duplicates_min"], one["duplicates_max"]) == (0, 0)  # nothing was ever sent
    assert [instance(one) for one in went["left"]] == [instance(came["joined"][0])]


def a_group_of_both_kinds_is_seen_too(cluster: Cluster, clients: Clients) -> None:
    topic, group = fresh("Watched"), fresh("watched-group")
    cluster.create_topic(topic, 4)
    java = clients.get("java-new-json", cluster.namesrv)
    first = java.subscribe(topic=topic, group=group, instance=fresh("a"))
    await_readers(cluster, group, 4)

    with watching(cluster.namesrv, group, interval=LOOK_SECONDS) as watch:
        with Member(cluster.namesrv, group, topic, "z", **BY_INTERVAL):
            came = watch.next_move()
        went = watch.next_move()
        first.leave()

    assert list(map(instance, came["joined"])) == ["z"]
    assert {new for _, _, new in moves(came, topic)} == {"z"}
    assert {old for _, old, _ in moves(went, topic)} == {"z"}


@pytest.mark.parametrize("kind", ["java", "ours"])
@pytest.mark.parametrize(
    "scenario",
    [java_members_that_come_and_go_are_seen, a_group_of_both_kinds_is_seen_too],
    ids=lambda one: one.__name__,
)
def test_the_command(
    kind: str,
    scenario: Callable[..., None],
    outcomes: Mapping[str, Outcome],
    request: pytest.FixtureRequest,
) -> None:
    outcomes[request.node.nodeid]()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, clusters: Clusters, clients: Clients
) -> Iterator[Mapping[str, Outcome]]:
    """Every scenario of this file that the run selects, begun."""
    with begun_tests(request, test_the_command, partial(play, clusters, clients)) as started:
        yield started


def play(clusters: Clusters, clients: Clients, kind: str, scenario: Callable[..., None]) -> None:
    scenario(clusters.get(kind), clients)
