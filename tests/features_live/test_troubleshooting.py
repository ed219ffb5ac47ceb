"""What an operator does when the newest messages do not come, or a group stands at an illegal offset."""

import threading
import time

import pytest

from async_run import run_async
from cluster_commands import Cluster
from live_broker import LiveClient
from orbitmq.client import Admin, MessageQueue, PullConsumer
from orbitmq.store.dispatch_service import DispatchService
from orbitmq.testing import Broker
from orbitmq.wire.codes import RequestCode

FORGETFUL = {
    "mappedFileSizeCommitLog": "65536",
    "fileReservedTime": "0",
    "cleanResourceInterval": "100",
}
"""Small segments that may be deleted as soon as somebody asks for it."""


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.feature("F105")
def test_stats_show_that_dispatch_is_behind_when_the_newest_cannot_be_pulled(cluster, monkeypatch):
    dispatch_now, may_run = DispatchService.dispatch_now, threading.Event()
    may_run.set()
    monkeypatch.setattr(
        DispatchService, "dispatch_now", lambda self: dispatch_now(self) if may_run.is_set() else 0
    )
    monkeypatch.setattr(DispatchService, "catch_up", lambda self, bytes_max: False)
    cluster.create("Orders", queues=1)
    cluster.send("Orders", "old")
    wait_until(lambda: dispatch(cluster)["behind_bytes"] == 0)

    may_run.clear()
    cluster.send("Orders", "new 1", "new 2")
    stuck, text = (
        cluster.json("topic", "stats", "Orders"),
        cluster.output("topic", "stats", "Orders"),
    )
    pulled = pull_all(cluster)
    may_run.set()
    wait_until(lambda: dispatch(cluster)["behind_bytes"] == 0)

    assert pulled == ["old"]
    assert stuck["queues"][0]["max_offset"] == 1
    assert stuck["dispatch"][0]["behind_bytes"] > 0
    assert "dispatch is 0 B behind" not in text
    assert cluster.json("topic", "stats", "Orders")["queues"][0]["max_offset"] == 3
    assert pull_all(cluster) == ["old", "new 1", "new 2"]


def dispatch(cluster: Cluster) -> dict:
    return cluster.json("topic", "stats", "Orders")["dispatch"][0]


def pull_all(cluster: Cluster) -> list[str]:
    with PullConsumer(cluster.namesrv, "TOOLS_CONSUMER", auto_commit=False) as consumer:
        result = consumer.pull(MessageQueue("Orders", "broker-a", 0), 0, count=32)
        return [message.body.decode() for message in result.messages()]


@pytest.mark.feature("F106", "F109")
def test_a_group_at_an_illegal_offset_is_reset_to_the_first_message_there_is():
    with Broker(settings=FORGETFUL) as broker:
        cluster = Cluster(broker)
        queue = MessageQueue(cluster.create("Orders", queues=1), broker.name, 0)
        bodies = [f"{number:04}".ljust(4_000, ".") for number in range(60)]
        cluster.send("Orders", *bodies)
        cluster.output("group", "create", "readers")
        with Admin(cluster.namesrv) as admin:
            ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)
            wait_until(lambda: admin.queue_range(queue)[0] > 0)
            first, _ = admin.queue_range(queue)
            admin.set_offset("readers", queue, 1_000_000)

        before = cluster.json("group", "progress", "readers")["queues"][0]
        changes = cluster.json("group", "reset", "readers", "Orders", "--to", "earliest")

        assert before["consumer_offset"] == 1_000_000
        assert [(one["old_offset"], one["new_offset"]) for one in changes] == [(1_000_000, first)]
        assert cluster.consume("Orders", "readers", 60 - first) == bodies[first:]


@pytest.mark.feature("F109")
def test_a_consumer_below_the_first_message_goes_on_there():
    with Broker(settings=FORGETFUL) as broker:
        cluster = Cluster(broker)
        queue = MessageQueue(cluster.create("Orders", queues=1), broker.name, 0)
        bodies = [f"{number:04}".ljust(4_000, ".") for number in range(60)]
        cluster.send("Orders", *bodies[:2])
        cluster.consume("Orders", "readers", 2)
        cluster.send("Orders", *bodies[2:])
        with Admin(cluster.namesrv) as admin:
            ask(broker, RequestCode.DELETE_EXPIRED_COMMITLOG)
            wait_until(lambda: admin.queue_range(queue)[0] > 2)
            first, _ = admin.queue_range(queue)

        assert cluster.consume("Orders", "readers", 60 - first) == bodies[first:]


def ask(broker: Broker, code: int) -> None:
    async def main():
        client = LiveClient(broker.address)
        answer = await client.ask(code)
        await client.close()
        return answer

    assert run_async(main).code == 0
