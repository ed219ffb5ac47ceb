"""Every client, unmodified, in every scenario: on our servers, on mixed ones, and ours on RocketMQ's.

The scenarios that a run selects begin together when the first of them is due; each test then takes the
outcome of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest

from compat import scenarios
from compat.client_kinds import JAVA_CLIENTS, Clients
from compat.clusters import KINDS, MIXED_KINDS, Clusters
from compat.side_by_side import Outcome, begun_tests
from compat.transaction_scenarios import answers_for_a_dead_member, ends_its_transactions

pytestmark = pytest.mark.compat

Scenario = Callable[..., None]

BASIC: Final = (
    scenarios.sends_every_way,
    scenarios.gets_only_its_tags,
    scenarios.two_share_and_one_leaves,
)
AGAIN: Final = (*BASIC, scenarios.comes_again_after_a_failure)
ORDERLY: Final = (*AGAIN, scenarios.keeps_the_order_of_each_queue)
WITH_JAVA: Final = (
    scenarios.takes_over_from_java,
    scenarios.hands_over_to_java,
    scenarios.is_read_by_java,
    scenarios.reads_what_java_wrote,
)
ASKING: Final = (scenarios.asks_java, scenarios.answers_java)
BY_SQL: Final = (scenarios.gets_only_what_its_sql_selects,)
TRACED: Final = (scenarios.leaves_a_trace,)
TRANSACTIONS: Final = (ends_its_transactions, answers_for_a_dead_member)
TIMED: Final = (scenarios.gets_timer_messages_at_their_time,)
PROVING: Final = (scenarios.sends_every_way, *BY_SQL, *ASKING, *TRACED, *TRANSACTIONS)
JAVA_ONLY: Final = (scenarios.uses_the_port_two_below, scenarios.gets_a_delayed_message_later)
# Of several that it pulled together, the C++ client gives back those too that it did not handle yet.
AGAIN_COUNT: Final = {"cpp": 1}


def rows(
    clients: Sequence[str], kinds: Sequence[str], played: Sequence[Scenario], *features: str
) -> Iterator[Any]:
    for client in clients:
        for kind in kinds:
            for scenario in played:
                proves = features if scenario in PROVING else ()
                yield pytest.param(
                    client,
                    kind,
                    scenario,
                    id=f"{client}-{kind}-{scenario.__name__}",
                    marks=[pytest.mark.feature(name) for name in proves],
                )


@pytest.mark.parametrize(
    ("client", "kind", "scenario"),
    [
        *rows(list(JAVA_CLIENTS), KINDS, (*ORDERLY, *JAVA_ONLY), "X1.java"),
        *rows(["go"], KINDS, ORDERLY, "X1.go"),
        *rows(["node"], KINDS, AGAIN, "X1.node"),
        *rows(["cpp"], KINDS, ORDERLY, "X1.cpp"),
        # A topic makes itself where there is no other broker that it could be made on.
        *rows([*JAVA_CLIENTS, "go", "cpp"], ["ours"], [scenarios.makes_its_own_topic]),
        *rows(["java-new-json", "java-new-binary", "java-old-json"], MIXED_KINDS, BASIC),
        *rows(["go", "node", "cpp"], MIXED_KINDS, BASIC),
        *rows(["ours-json", "ours-binary"], ["java", "ours"], (*ORDERLY, *WITH_JAVA)),
        *rows(["java-new-json", "java-old-json", "go", "ours-json"], ["ours"], BY_SQL, "F28"),
        *rows(["ours-json"], ["java"], BY_SQL, "F28"),
        *rows(["java-new-json", "java-new-binary"], KINDS, TIMED),
        *rows(["ours-json"], ["java", "ours"], TIMED),
        *rows(["java-old-json", "java-new-binary"], ["ours"], ASKING),
        *rows(["ours-json", "ours-binary"], ["ours"], ASKING, "X3"),
        *rows(["ours-json"], ["java"], ASKING, "X3"),
        *rows(["java-new-json", "java-old-json", "ours-json"], ["ours"], TRACED, "F113"),
        *rows(["java-new-json", "ours-json"], ["java"], TRACED, "F113"),
        *rows(["java-new-json", "java-old-json", "go"], ["ours"], TRANSACTIONS),
        *rows(["ours-json"], ["ours"], TRANSACTIONS, "X3"),
        *rows(["java-new-binary"], ["ours"], [ends_its_transactions]),
        *rows(["ours-json", "ours-binary"], ["java"], [ends_its_transactions], "X3"),
    ],
)
def test_a_client(
    client: str,
    kind: str,
    scenario: Scenario,
    outcomes: Mapping[str, Outcome],
    request: pytest.FixtureRequest,
) -> None:
    outcomes[request.node.nodeid]()


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, clusters: Clusters, clients: Clients
) -> Iterator[Mapping[str, Outcome]]:
    """Every scenario of this file that the run selects, begun."""
    with begun_tests(request, test_a_client, partial(play, clusters, clients)) as started:
        yield started


def play(clusters: Clusters, clients: Clients, client: str, kind: str, scenario: Scenario) -> None:
    cluster = clusters.get(kind)
    one = clients.get(client, cluster.namesrv)
    if scenario in (*WITH_JAVA, *ASKING):
        scenario(cluster, one, clients.get("java-new-json", cluster.namesrv))
    elif scenario is scenarios.comes_again_after_a_failure:
        scenario(cluster, one, AGAIN_COUNT.get(client, 3))
    else:
        scenario(cluster, one)
