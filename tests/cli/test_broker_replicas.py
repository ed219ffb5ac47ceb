"""`orbitmq broker replicas` and `orbitmq broker services`, on a primary with a replica."""

import json
from pathlib import Path

import pytest

from cluster_commands import Cluster, lines
from command import call
from doctor.live_cluster import wait_until
from orbitmq.client import Admin
from orbitmq.testing import Broker

REPLICA = {"brokerId": "1", "brokerRole": "SLAVE", "haSendHeartbeatInterval": "100"}


def rows(cluster: Cluster, *words: str) -> list[dict]:
    output = cluster.output("broker", "replicas", *words, "--output", "json")
    return [json.loads(line) for line in output.splitlines()]


def test_logs_and_their_copies_are_listed() -> None:
    with (
        Broker(settings={"haSendHeartbeatInterval": "100"}) as primary,
        Broker(settings=REPLICA | {"namesrvAddr": primary.namesrv}) as replica,
        Admin(primary.namesrv) as admin,
    ):
        cluster = Cluster(primary)
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "a", "b")
        end = int(admin.broker_runtime(primary.address)["commitLogMaxOffset"])
        wait_until(lambda: [c.log_end for c in admin.replicas() if c.in_sync] == [end, end])
        wait_until(lambda: {c.gap_bytes for c in admin.replicas()} == {0})

        addresses = [primary.address, replica.address]
        everyone, named = rows(cluster), rows(cluster, primary.name)
        links, own = rows(cluster, primary.address), rows(cluster, replica.address)
        table = lines(cluster.output("broker", "replicas"))
        unknown = call("broker", "replicas", "nobody", "--namesrv", primary.namesrv)
        down = call("broker", "replicas", "127.0.0.1:1")

    one, other = everyone
    assert [row["address"] for row in named] == addresses
    assert (one["role"], one["address"], one["log_end"]) == ("primary", addresses[0], end)
    assert (one["gap_bytes"], one["in_sync"], one["broker"]) == (0, True, primary.name)
    assert (other["role"], other["address"], other["log_end"]) == ("replica", addresses[1], end)
    assert (other["gap_bytes"], other["in_sync"], other["connected"]) == (0, True, True)
    assert other["last_heard_ms"] > 0
    assert other["follows"].startswith("127.0.0.1:")
    # A primary alone knows the connection only, a replica alone nothing of the gap.
    assert [row["role"] for row in links] == ["primary", "replica"]
    assert (links[1]["log_end"], links[1]["in_sync"]) == (end, True)
    assert links[1]["address"] not in addresses
    ((own_end, gap, in_sync),) = [(r["log_end"], r["gap_bytes"], r["in_sync"]) for r in own]
    assert (own_end, gap, in_sync) == (end, None, None)
    assert table[2][:4] == [primary.name, "primary", addresses[0], str(end)]
    assert table[3][4:7] == ["0", "B", "yes"]
    assert (unknown.returncode, down.returncode) == (3, 3)
    assert "no broker nobody" in unknown.stderr


@pytest.mark.feature("F87")
def test_services_are_listed_for_people_and_programs(cluster: Cluster) -> None:
    found = cluster.json("broker", "services", "broker-a")
    table = lines(cluster.output("broker", "services", "broker-a"))

    assert found["broker"] == "broker-a"
    needed = {"allocate", "dispatch", "replication", "statistics", "index", "flush", "clean"}
    assert found["services"].keys() >= needed
    assert all(found["services"][name].startswith("running") for name in needed)
    assert ["flush", "running"] in table


def test_a_replica_is_promoted_when_its_primary_is_gone(tmp_path: Path) -> None:
    with Broker(name="broker-z") as other, Admin(other.namesrv) as admin:
        given, cluster = {"namesrvAddr": other.namesrv}, Cluster(other)
        command = ("broker", "promote", "--namesrv", other.namesrv)
        primary = Broker(tmp_path / "primary", settings=given)
        primary.start()
        try:
            cluster.create("Orders", queues=1)
            cluster.send("Orders", "a", "b")
            end = int(admin.broker_runtime(primary.address)["commitLogMaxOffset"])
            with Broker(settings=REPLICA | given) as replica:
                address = replica.address
                wait_until(lambda: admin.replicas(address)[0].log_end == end)
                alive = call(*command, address)
                already = call(*command, primary.address, "--force")
                primary.stop()
                figures = "service_replication"
                wait_until(lambda: "not followed" in admin.broker_runtime(address)[figures])
                done = call(*command, address, "--output", "json")
                again = call(*command, address)
                roles = [(row["role"], row["address"]) for row in rows(cluster, "broker-a")]
        finally:
            primary.stop()

    assert (alive.returncode, already.returncode, again.returncode) == (1, 1, 1)
    assert "is alive: stop that one first" in alive.stderr
    assert "is a primary already" in already.stderr + again.stderr
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "address": address,
        "epoch": 2,
        "start": end,
        "lacked_bytes": 0,
    }
    assert roles == [("primary", address)]
