"""`orbitmq broker replicas` and `orbitmq broker services`, on a primary with a replica."""

import json

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
