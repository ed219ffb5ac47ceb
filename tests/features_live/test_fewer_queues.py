"""Taking queues away from a topic that is in use: in the right order nothing is lost from sight."""

import json

import pytest

from cluster_commands import Cluster
from orbitmq.client import Consumer


def findings(cluster: Cluster, topic: str) -> list[tuple[str, int]]:
    result = cluster.command("topic", "check", topic, "--output", "json")
    return [(one["kind"], one["messages"]) for one in json.loads(result.stdout)]


def send_numbers(cluster: Cluster, first: int) -> set[str]:
    bodies = [f"m{number}" for number in range(first, first + 8)]
    cluster.send("Orders", *bodies)
    return set(bodies)


def receive_exactly(cluster: Cluster, group: str, count: int) -> set[str]:
    """Consume so many messages; no other may come."""
    seen = set()
    with Consumer(cluster.namesrv, group, "Orders", start_from="first") as consumer:
        while (message := consumer.receive(timeout=30 if len(seen) < count else 0.3)) is not None:
            seen.add(message.body.decode())
            message.ack()
    assert len(seen) == count
    return seen


@pytest.mark.feature("F90")
def test_fewer_write_queues_first_leaves_nothing_unreadable(cluster):
    cluster.create("Orders", queues=4)
    cluster.output("group", "create", "readers")
    sent = send_numbers(cluster, 0)
    cluster.output("group", "reset", "readers", "Orders", "--to", "earliest")

    cluster.output("topic", "create", "Orders", "--read-queues", 4, "--write-queues", 2)
    sent |= send_numbers(cluster, 8)
    assert findings(cluster, "Orders") == [("draining", 4)]
    seen = receive_exactly(cluster, "readers", 16)
    assert findings(cluster, "Orders") == [("idle", 4)]
    cluster.output("topic", "create", "Orders", "--queues", 2)
    sent |= send_numbers(cluster, 16)
    seen |= receive_exactly(cluster, "readers", 8)

    assert seen == sent
    assert findings(cluster, "Orders") == []


@pytest.mark.feature("F90")
def test_fewer_read_queues_first_leaves_unreadable_messages(cluster):
    cluster.create("Orders", queues=4)
    sent = send_numbers(cluster, 0)

    cluster.output("topic", "create", "Orders", "--read-queues", 2, "--write-queues", 4)
    sent |= send_numbers(cluster, 8)
    seen = receive_exactly(cluster, "readers", 8)

    assert findings(cluster, "Orders") == [("unreadable", 8)]

    cluster.output("topic", "create", "Orders", "--queues", 4)  # what the finding says to do
    assert seen | receive_exactly(cluster, "readers", 8) == sent
