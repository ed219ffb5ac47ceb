"""Three brokers and two name servers: one of each dies under load, and nobody misses anything."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

import pytest

from compat.client_kinds import Clients
from compat.client_program import Talk
from compat.live_load import Load, QueueReader, running_load
from compat.our_cluster import our_broker, our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic

pytestmark = [pytest.mark.compat, pytest.mark.crash]

NAMES: Final = ("broker-a", "broker-b", "broker-c")
ENDLESS: Final = 1_000_000
PACE_SECONDS: Final = (
    0.02  # a thousand messages a second; as fast as they can, they take both cores
)


@dataclass
class Trio:
    """The cluster: its name servers' addresses and its servers by name."""

    namesrv: str
    servers: dict[str, ServerProcess]

    def create_topic(self, topic: str) -> None:
        for name in NAMES:
            create_topic(self.servers[name].address, topic, 2)
        await_route(self.namesrv, topic, len(NAMES))


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    directory = tmp_path_factory.mktemp("trio")
    with ExitStack() as stack, ThreadPoolExecutor() as pool:
        named = [our_namesrv(directory, name=name) for name in ("namesrv-1", "namesrv-2")]
        namesrvs = list(pool.map(stack.enter_context, named))
        namesrv = ";".join(server.address for server in namesrvs)
        brokers = [our_broker(directory, namesrv=namesrv, name=name) for name in NAMES]
        servers = [*namesrvs, *pool.map(stack.enter_context, brokers)]
        yield Trio(namesrv, {server.what: server for server in servers})


def test_our_clients_go_on_when_a_broker_dies_and_miss_nothing_when_it_is_back(trio: Trio) -> None:
    trio.create_topic("Failover")
    loading = running_load(trio.namesrv, "Failover", "failover", pace_seconds=PACE_SECONDS)
    with loading as load, QueueReader(load) as reader:
        _await_brokers(load, set(NAMES))
        trio.servers["broker-b"].kill()
        _await_brokers(load, {"broker-a", "broker-c"})
        trio.servers["namesrv-1"].kill()
        _await_brokers(load, {"broker-a", "broker-c"})
        trio.servers["namesrv-1"].start()
        trio.servers["broker-b"].start()
        # The brokers that stayed find the name server again by themselves.
        await_route(trio.namesrv, "Failover", len(NAMES))
        _await_brokers(load, set(NAMES))
        load.stop_sending()
        load.await_consumed()
        assert len(reader.queues()) == 2 * len(NAMES)
        reader.check_all()


def _await_brokers(load: Load, names: set[str]) -> None:
    """Wait until exactly these brokers acknowledge; what was on its way may come from another."""
    for _ in range(60):
        since = len(load.ledger.acknowledged)
        load.await_acknowledged(300)
        if load.ledger.brokers(since) == names:
            return
    raise AssertionError(f"not {names} but {load.ledger.brokers(since)} acknowledge")


def test_java_clients_go_on_when_a_broker_dies_and_miss_nothing_when_it_is_back(
    trio: Trio, clients: Clients
) -> None:
    trio.create_topic("FailoverJava")
    java = clients.get("java-new-json", trio.namesrv)
    words = {"topic": "FailoverJava", "poll": 1000}
    consumer = java.subscribe(group="failover-java", **words)
    paced = {"count": ENDLESS, "pace": 2, "retries": 3, "timeout": 3000}
    sender = java.start_send(body="m", **paced, **words)
    _await_brokers_of(sender, set(NAMES))
    trio.servers["broker-b"].kill()
    _await_brokers_of(sender, {"broker-a", "broker-c"})
    trio.servers["broker-b"].start()
    _await_brokers_of(sender, set(NAMES))
    sent = {row["body"] for row in sender.stop()}
    java.program.wait(
        lambda: sent <= set(consumer.bodies("got")),
        90,
        lambda: f"not consumed: {sorted(sent - set(consumer.bodies('got')))[:5]}",
    )
    consumer.leave()


def _await_brokers_of(sender: Talk, names: set[str]) -> None:
    for _ in range(60):
        since = sender.count("sent")
        sender.wait("sent", since + 100)
        if {row["broker"] for row in sender.of("sent")[since:]} == names:
            return
    raise AssertionError(f"not {names} acknowledge")
