"""Members that wait: for a lock, for a pull that they do not make, in queues to which nothing is sent."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from cluster_commands import Cluster
from doctor.live_cluster import ClusterDoctor, OldClient, member, wait_until
from live_broker import LiveClient, run_live
from orbitmq.client import Admin, Consumer, MessageQueue
from orbitmq.wire.bodies.locks import LockRequest
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, ProcessQueueInfo
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.feature("X5")

T = TypeVar("T")


@pytest.mark.feature("F105")
def test_a_member_that_does_not_pull_is_told_until_it_does(cluster, ask):
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, "a")
    asked = "--group", group, "--stuck-after", 0
    settings = {"start_from": "first", "persist_interval_ms": 50}
    with member(cluster, group, {topic: "*"}, **settings) as consumer:
        wait_until(lambda: acknowledged(cluster, group, topic) == 1)
        consumer.pause()
        cluster.send(topic, "b")  # the pull that waits takes it
        wait_until(lambda: acknowledged(cluster, group, topic) == 2)
        working = ask.gone("does not pull", *asked)
        cluster.send(topic, "c")

        finding = ask.wait("it does not pull", *asked)
        patient = ask.gone("does not pull", "--group", group)
        shown = ask.follow(finding)
        consumer.resume()
        wait_until(lambda: ask.gone("does not pull", *asked))

    assert finding["numbers"] == {"lag": 1, "held": 0, "in_flight": 0}
    assert finding["since_ms"] > 0
    assert (working, patient) == (True, True)
    assert topic in shown


def acknowledged(cluster: Cluster, group: str, topic: str) -> int:
    with Admin(cluster.namesrv) as admin:
        return sum(one.consumer_offset for one in admin.progress(group, topic).of_topic(topic))


def queues_of(consumer: Consumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in consumer.queues if queue.topic == topic]


def behind(cluster: Cluster, messages: int) -> tuple[str, str]:
    """Make a topic of one queue, and a group that has so many of its messages still to read."""
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("readers")
    cluster.send(topic, *map(str, range(messages)))
    cluster.output("group", "create", group)
    with Admin(cluster.namesrv) as admin:
        admin.set_offset(group, MessageQueue(topic, "broker-a", 0), 0)
    return topic, group


async def aside(function: Callable[[], T]) -> T:
    """Call something that blocks, while clients of this loop go on."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


@pytest.mark.feature("F105")
def test_an_orderly_member_that_waits_for_a_lock_is_told_until_it_has_it(cluster, ask):
    topic, group = behind(cluster, 2)
    lock = LockRequest(
        consumer_group=group, client_id="gone", mq_set=[MessageQueue(topic, "broker-a", 0)]
    )

    async def with_lock() -> dict:
        client = LiveClient(cluster.broker.address, "gone")
        await client.ask(RequestCode.LOCK_BATCH_MQ, body=lock.encode())
        with member(cluster, group, {topic: "*"}, orderly=True, start_from="first"):
            what = "a queue that no member has"
            found = await aside(lambda: ask.wait(what, "--group", group))
            await aside(lambda: ask.follow(found))
            await client.ask(RequestCode.UNLOCK_BATCH_MQ, body=lock.encode())
            await aside(lambda: wait_until(lambda: ask.gone(what, "--group", group)))
        return found

    finding = run_live(with_lock)

    assert finding["numbers"] == {"lag": 2, "members": 1}
    assert finding["where"] == f"group {group}, {topic}, broker-a queue 0"
    assert "waits for its lock" in finding["meaning"]


class UnlockedClient(OldClient):
    """An orderly member as RocketMQ's client is one: it keeps a queue whose lock it has lost."""

    def __init__(self, address: str, queue: MessageQueue) -> None:
        super().__init__(address)
        self.held = ProcessQueueInfo(locked=False, last_pull_timestamp=1_700_000_000_000)
        self.queue = queue

    def on_commands(self, connection: Any, requests: list[Any]) -> None:
        for request in requests:
            if request.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
                connection.send(request.answer(body=self.running_info().encode()))
            else:
                super().on_commands(connection, [request])

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={"PROP_CONSUMEORDERLY": "true"},
            subscription_set=[{"topic": self.queue.topic, "subString": "*"}],
            mq_table={self.queue: self.held},
        )


@pytest.mark.feature("F105")
def test_an_orderly_member_that_has_lost_its_lock_is_told_until_it_has_it_again(cluster, ask):
    topic, group = behind(cluster, 2)
    queue = MessageQueue(topic, "broker-a", 0)

    async def unlocked() -> tuple[dict, bool]:
        client = UnlockedClient(cluster.broker.address, queue)
        await client.subscribe(group, topic, "*", "TAG")
        what, asked = "waits for the lock of its queue", ("--group", group, "--stuck-after", 10**9)
        found = await aside(lambda: ask.wait(what, *asked))
        await aside(lambda: ask.follow(found))
        client.held.locked = True
        gone = await aside(lambda: ask.gone(what, *asked))
        await client.close()
        return found, gone

    finding, gone = run_live(unlocked)

    assert finding["numbers"]["lag"] == 2
    assert finding["since_ms"] == 1_700_000_000_000
    assert gone


@pytest.mark.feature("F105")
def test_a_member_with_queues_to_which_nothing_is_sent_is_told_until_there_are_none(
    cluster: Cluster, ask: ClusterDoctor
) -> None:
    topic, group = cluster.create(cluster.name(), queues=2), cluster.name("readers")
    what = "only queues to which nothing is sent"
    with (
        member(cluster, group, {topic: "*"}) as first,
        member(cluster, group, {topic: "*"}) as other,
    ):
        second = MessageQueue(topic, "broker-a", 1)
        wait_until(lambda: all(len(queues_of(one, topic)) == 1 for one in (first, other)))
        idle = first if second in first.queues else other
        fine = ask.gone(what, "--topic", topic)
        cluster.create(topic, read_queues=2, write_queues=1)

        finding = ask.wait(what, "--topic", topic)
        shown = ask.follow(finding, code=1)
        ask.follow({"command": f"orbitmq topic create {topic} --queues 1 --namesrv {ask.namesrv}"})
        gone = ask.gone(what, "--topic", topic)

    assert finding["severity"] == "note"
    assert finding["where"] == f"broker-a, {topic}"
    assert idle.client_id in finding["meaning"]
    assert "idle member" in shown
    assert (fine, gone) == (True, True)
