"""A broker whose disk is slow, fails, or is soon full: what the doctor makes of its figures."""

import asyncio
import errno
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest

from async_run import run_async
from cluster_commands import Cluster
from doctor.planted_store import HOUR, keyed
from fake_cluster import FakeServer
from orbitmq.client import Admin, SendStatus
from orbitmq.errors import StoreError
from orbitmq.files.disk import FilePath
from orbitmq.testing import Broker, FaultyDisk
from orbitmq.testing.forwarding_disk import ForwardingDisk
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.codes import RequestCode

pytestmark = [pytest.mark.feature("X5"), pytest.mark.feature("F108")]

T = TypeVar("T")
SYNC = {"flushDiskType": "SYNC_FLUSH"}


class SlowDisk(ForwardingDisk):
    """A disk whose syncs of the log take a while."""

    seconds = 0.0

    def sync_data(self, path: FilePath, fd: int, position: int = 0, length: int = 0) -> None:
        if "commitlog" in str(path):
            time.sleep(self.seconds)  # sleep: this disk is slow, which is what is to be seen
        super().sync_data(path, fd, position, length)


def test_slow_syncs_are_told_until_the_disk_is_quick(doctor):
    disk = SlowDisk()
    with Broker(settings=SYNC, disk=disk) as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "a")
        quick = doctor.fine(broker.namesrv)
        disk.seconds = 0.7
        cluster.send("Orders", "b")
        finding = doctor.one("syncs of the disk are slow", broker.namesrv)
        doctor.follow(finding)
        disk.seconds = 0.0
        broker.restart()
        cluster.send("Orders", "c")
        later = doctor.fine(broker.namesrv)

    assert any(re.search("flush: broker-a .* bytes unflushed, fsync", one) for one in quick)
    assert finding["numbers"]["longest_ms"] >= 700
    assert 200 < finding["numbers"]["average_ms"] <= finding["numbers"]["longest_ms"]
    assert later


def test_a_store_that_refuses_messages_after_a_failed_sync_is_told_until_a_restart(
    tmp_path, doctor
):
    disk = FaultyDisk()
    broker = Broker(tmp_path, settings=SYNC, disk=disk)
    cluster = Cluster(broker)
    broker.start()
    try:
        cluster.create("Orders", queues=1)
        cluster.send("Orders", "a")
        fine = doctor.fine(broker.namesrv)
        fault = disk.fail("sync_data", "*/commitlog/*", errno.EIO)
        (sent,) = cluster.send("Orders", "b")
        finding = doctor.one("the store takes no messages", broker.namesrv)
        doctor.follow(finding)
    finally:
        with pytest.raises(StoreError, match="Input/output error"):
            broker.stop()
    with broker:
        cluster.send("Orders", "c")
        later = doctor.fine(broker.namesrv)

    assert fault.hits == 1
    assert sent.status is SendStatus.FLUSH_DISK_TIMEOUT
    assert finding["severity"] == "critical"
    assert "an earlier write failed and appends stopped" in finding["meaning"]
    assert (bool(fine), bool(later)) == (True, True)


def test_how_fast_the_log_grows_and_how_long_its_disk_lasts_is_told(planted, doctor):
    planted.write(*(keyed(n, size=1_000) for n in range(100)), ahead_s=-10 * HOUR)
    with planted.broker() as broker, Admin(broker.namesrv) as admin:
        runtime = admin.broker_runtime(broker.address)
        (told,) = [one for one in doctor.fine(broker.namesrv) if one.startswith("disk: ")]

    grown = int(runtime["commitLogMaxOffset"]) / 10
    disk = os.statvfs(planted.root)
    left = disk.f_blocks * disk.f_frsize * (0.85 - float(runtime["commitLogDiskRatio"]))
    growth, hours = re.search(r"grows by (\d+) bytes an hour, (\S+) hours to 85 %", told).groups()
    assert int(growth) == pytest.approx(grown, rel=0.01)
    assert float(hours) == pytest.approx(left / grown, rel=0.05)


@dataclass
class Figures:
    """What a broker says of itself, and what a test makes of it."""

    runtime: dict[str, str]
    config: dict[str, str]

    def serve(self, function: Callable[[str], T]) -> T:
        """Call a function with the address of a broker that says this."""

        async def main() -> T:
            server = FakeServer()
            config = "".join(f"{name}={value}\n" for name, value in self.config.items()).encode()
            runtime = KvTable(table=self.runtime).encode()
            server.reactions = {
                RequestCode.GET_BROKER_RUNTIME_INFO: lambda _, request: request.answer(
                    body=runtime
                ),
                RequestCode.GET_BROKER_CONFIG: lambda _, request: request.answer(body=config),
            }
            await server.start()
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(None, function, server.address)
            finally:
                await server.stop()

        return run_async(main)


@pytest.fixture
def figures(cluster: Cluster) -> Figures:
    """Those of a broker without fault and without a name server, in RocketMQ's words for sizes."""
    with Admin(cluster.namesrv) as admin:
        runtime = admin.broker_runtime(cluster.broker.address)
        config = admin.broker_config(cluster.broker.address)
    ten_hours_ago = round((time.time() - 10 * HOUR) * 1000)
    runtime |= {
        "commitLogDiskRatio": "0.6",
        "consumeQueueDiskRatio": "0.6",
        "commitLogDirCapacity": "Total : 100.0 GiB, Free : 40.0 GiB.",
        "earliestMessageTimeStamp": str(ten_hours_ago),
        "commitLogMinOffset": str(5 << 30),
        "commitLogMaxOffset": str(10 << 30),
    }
    return Figures(runtime, config | {"namesrvAddr": ""})


def test_a_disk_that_is_full_within_a_day_is_told(figures, doctor):
    slow = figures.serve(doctor.fine)
    figures.runtime["commitLogMaxOffset"] = str(25 << 30)  # 2 GiB an hour, and 25 GiB are left

    finding = figures.serve(lambda address: doctor.one("full within a day", address))

    assert any("50 hours to 85 %" in one for one in slow)
    assert finding["where"] == "broker-a, commit log"
    assert finding["numbers"] == {
        "used_per_cent": 60.0,
        "limits_per_cent": "75 85 90",
        "growth_bytes_per_hour": pytest.approx(2 << 30, rel=0.01),
        "hours_left": "7.5 12.5 15.0",
    }


@pytest.mark.parametrize(
    "capacity", ["Total : 1,0 TiB, Free : 0,4 TiB.", "Total : 0 B, Free : 0 B.", "who knows", ""]
)
def test_a_large_disk_or_one_of_unknown_size_is_no_finding(figures, doctor, capacity):
    figures.runtime["commitLogMaxOffset"] = str(25 << 30)
    figures.runtime["commitLogDirCapacity"] = capacity

    assert figures.serve(doctor.fine)


def test_a_log_on_a_disk_of_its_own_is_not_measured_by_the_disk_of_the_root(figures, doctor):
    figures.runtime["commitLogMaxOffset"] = str(25 << 30)
    figures.config["storePathCommitLog"] = "/somewhere/else"

    assert figures.serve(doctor.fine)
