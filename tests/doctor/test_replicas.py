"""The doctor on replicas of ours: each fault planted on a pair of live brokers, and a pair without fault."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from cluster_commands import Cluster
from doctor.doctor_command import Doctor
from doctor.live_cluster import ClusterDoctor, wait_until
from orbitmq.client import Admin
from orbitmq.format.ha_frame import REPORT
from orbitmq.testing import Broker

pytestmark = pytest.mark.feature("F108")

QUICK = {"haSendHeartbeatInterval": "100"}
PRIMARY = {**QUICK, "brokerRole": "SYNC_MASTER", "inSyncReplicas": "2", "slaveTimeout": "300"}
REPLICA = {**QUICK, "brokerId": "1", "brokerRole": "SLAVE"}
FEW, TOO_FEW = "fewer are in sync than inSync", "fewer are in sync than minInSync"
NOT_IN_SYNC, FOLLOWS_NOT = "a replica is not in sync", "does not follow its primary"


def test_a_pair_is_told_with_its_gap_until_it_is_well() -> None:
    with Broker(settings=PRIMARY) as primary, Admin(primary.namesrv) as admin:
        cluster, ask = Cluster(primary), ClusterDoctor(primary.namesrv)
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "a")  # no replica: it waits for slaveTimeout, and is stored
        alone = ask.one(FEW, primary.namesrv)
        admin.update_broker_config(primary.address, {"minInSyncReplicas": "2"})
        refused = ask.one(TOO_FEW, primary.namesrv)
        admin.update_broker_config(primary.address, {"minInSyncReplicas": "1"})
        assert "primary" in ask.follow(alone)

        with Broker(settings=REPLICA | {"namesrvAddr": primary.namesrv}) as replica:
            wait_in_sync(admin)
            fine = ask.fine(primary.namesrv)
            admin.update_broker_config(primary.address, {"haMaxGapNotInSync": "1"})
            (ha_address,) = filter(None, (copy.follows for copy in admin.replicas()))
            with takes_nothing(ha_address):
                wait_until(lambda: NOT_IN_SYNC in {one["what"] for one in ask.findings()})
                (behind,) = ask.findings()
                assert "replica" in ask.follow(behind)
            with primary.down():
                orphan = ask.wait("the primary of a replica cannot be reached")
                end = orphan["numbers"]["replica_end"]

    assert alone["numbers"] == {"in_sync": 1, "inSyncReplicas": 2, "minInSyncReplicas": 1}
    assert (alone["severity"], refused["severity"]) == ("warning", "critical")
    assert refused["numbers"] == {"in_sync": 1, "inSyncReplicas": 2, "minInSyncReplicas": 2}
    assert "replicas: broker-a and 1 in sync" in fine
    told = {"gap_bytes": end, "primary_end": end, "replica_end": 0}
    assert {name: behind["numbers"][name] for name in told} == told
    assert behind["since_ms"] is None
    assert end > 0
    assert orphan["since_ms"] > 0
    assert replica.name in orphan["where"]


@contextmanager
def takes_nothing(ha_address: str) -> Iterator[None]:
    """Be a replica that asks for the log from its beginning and has none of it ever after."""
    host, _, port = ha_address.rpartition(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(REPORT.pack(0))
        yield


def wait_in_sync(admin: Admin) -> None:
    """Wait until the doctor cannot find anything that is only on its way."""
    wait_until(lambda: [copy.in_sync for copy in admin.replicas()] == [True, True])


def test_a_replica_that_is_asked_alone_tells_that_nobody_is_there() -> None:
    nobody = {"namesrvAddr": "", "haMasterAddress": "127.0.0.1:9"}
    with Broker(settings=REPLICA | nobody) as replica:
        doctor = Doctor()
        finding = doctor.one(FOLLOWS_NOT, replica.address)
        doctor.follow(finding)

    assert finding["numbers"] == {"replica_end": 0}
    assert "127.0.0.1:9" in finding["meaning"]
