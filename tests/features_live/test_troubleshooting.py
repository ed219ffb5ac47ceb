"""What an operator does when the newest messages do not come, or a group stands at an illegal offset."""

import threading
import time

import pytest

from async_run import run_async
from cluster_commands import Cluster
from live_broker import LiveClient
from orbitmq.client import Admin, MessageQueue, PullConsumer, SendResult
from orbitmq.format.message_id import decode_offset_id
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


@pytest.fixture
def hold_dispatch(monkeypatch) -> threading.Event:
    """An event: while it is set nothing gets into a queue, as when dispatch cannot keep up."""
    held, dispatch_now = threading.Event(), DispatchService.dispatch_now
    monkeypatch.setattr(
        DispatchService, "dispatch_now", lambda self: 0 if held.is_set() else dispatch_now(self)
    )
    monkeypatch.setattr(DispatchService, "catch_up", lambda self, bytes_max: False)
    return held


@pytest.mark.feature("F105")
def test_stats_show_by_how_much_dispatch_is_behind_when_the_newest_cannot_be_pulled(
    cluster, hold_dispatch
):
    cluster.create("Orders", queues=1)
    cluster.send("Orders", "old")
    assert cluster.json("topic", "stats", "Orders")["dispatch"][0]["behind_bytes"] == 0

    hold_dispatch.set()
    first, second = map(log_offset, cluster.send("Orders", "new 1", "new 2"))
    stuck = cluster.json("topic", "stats", "Orders", settled=False)
    text = cluster.output("topic", "stats", "Orders", settled=False)
    pulled = pull_all(cluster)
    hold_dispatch.clear()
    later = cluster.json("topic", "stats", "Orders")

    size = second - first  # both records have the same
    assert pulled == ["old"]
    assert offsets(stuck) == [(0, 1, 1)]
    assert stuck["dispatch"] == [figures(log_max_offset=second + size, behind_bytes=2 * size)]
    assert "1 message in 1 queue" in text
    assert f"log offsets 0 to {second + size}, dispatch is {2 * size} B behind" in text
    assert offsets(later) == [(0, 3, 3)]
    assert later["dispatch"] == [figures(log_max_offset=second + size, behind_bytes=0)]
    assert pull_all(cluster) == ["old", "new 1", "new 2"]


def log_offset(sent: SendResult) -> int:
    return decode_offset_id(sent.offset_id)[1]


def offsets(stats: dict) -> list[tuple[int, int, int]]:
    return [(one["min_offset"], one["max_offset"], one["messages"]) for one in stats["queues"]]


def figures(**given: int) -> dict[str, str | int]:
    return {"broker": "broker-a", "log_min_offset": 0} | given


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
