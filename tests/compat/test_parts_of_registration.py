"""Brokers that register in parts and topic by topic, ours and RocketMQ's, at name servers of both kinds."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import pytest

from compat.java_cluster import java_broker, java_namesrv
from compat.java_store import needs_java
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic
from live_broker import LiveClient, run_live
from orbitmq.client import Admin
from orbitmq.wire.bodies.topic_config import TopicTable
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

pytestmark = [pytest.mark.compat, needs_java]

IN_PARTS = {
    "enableSplitRegistration": "true",
    "splitRegistrationSize": "4",
    "enableSingleTopicRegister": "true",
}
BROKERS = ("broker-ours", "broker-java")
NAMESRVS = ("ours", "java")
KNOWN_SECONDS_MAX = 30


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, ServerProcess]]:
    directory: Path = tmp_path_factory.mktemp("parts")
    with ExitStack() as stack, ThreadPoolExecutor(2) as pool:
        enter = stack.enter_context
        ours, java = pool.map(enter, [our_namesrv(directory), java_namesrv(directory)])
        both = f"{ours.address};{java.address}"
        brokers = [
            our_broker(directory, namesrv=both, name=BROKERS[0], settings=IN_PARTS),
            java_broker(directory, namesrv=both, name=BROKERS[1], settings=IN_PARTS),
        ]
        our_one, java_one = pool.map(enter, brokers)
        yield {"ours": ours, "java": java, BROKERS[0]: our_one, BROKERS[1]: java_one}


@pytest.mark.parametrize(("broker", "namesrv"), list(product(BROKERS, NAMESRVS)))
def test_all_parts_arrive_and_a_new_topic_too(
    servers: dict[str, ServerProcess], broker: str, namesrv: str
) -> None:
    address = servers[namesrv].address
    new = f"New-{broker}-{namesrv}"
    create_topic(servers[broker].address, new, 1)
    await_route(address, new)

    topics = topics_of(servers[broker].address)
    deadline = time.monotonic() + KNOWN_SECONDS_MAX
    with Admin(address) as admin:
        while missing := topics - routed(admin, topics, broker):
            assert time.monotonic() < deadline, missing
            time.sleep(0.2)
    assert len(topics) > 2 * int(IN_PARTS["splitRegistrationSize"])
    assert new in topics


def topics_of(broker: str) -> set[str]:
    """Return the topics that a broker has."""

    async def ask() -> Command:
        return await LiveClient(broker).ask(RequestCode.GET_ALL_TOPIC_CONFIG)

    return set(TopicTable.decode(run_live(ask).body).topic_config_table)


def routed(admin: Admin, topics: set[str], broker: str) -> set[str]:
    """Return which of these topics a name server knows to be on a broker."""
    known = topics.intersection(admin.topics(system=True))
    return {topic for topic in known if broker in admin.topic(topic).brokers}
