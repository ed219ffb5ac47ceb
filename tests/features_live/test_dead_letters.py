"""A message that nobody can handle: sixteen retries, then a dead letter, all in ordinary queues."""

import time
from typing import Any

import pytest

from cluster_commands import Cluster
from orbitmq.client import Consumer, RetryLater
from orbitmq.format.cq_unit import UNIT
from orbitmq.testing import Broker

LEVELS = " ".join(["0s"] * 18)  # RocketMQ's levels take an hour and more for sixteen retries


@pytest.mark.feature("F82", "F83")
def test_the_seventeenth_failure_makes_a_dead_letter(tmp_path):
    tries: list[int] = []

    def refuse(message):
        tries.append(message.reconsume_times)
        raise RetryLater(level=0)  # the broker's own level for each round

    with Broker(tmp_path, settings={"messageDelayLevel": LEVELS}) as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        (sent,) = cluster.send("Orders", "poison", keys=["k1"], tag="TagA")
        given = {"start_from": "first", "workers": 1}
        with Consumer(cluster.namesrv, "readers", "Orders", refuse, **given):
            wait_until(lambda: messages_in(cluster, "%DLQ%readers") == 1)
        letter = first_message(cluster, "%DLQ%readers")

    assert tries == list(range(17))
    assert (letter["body"], letter["tag"], letter["keys"]) == ("poison", "TagA", ["k1"])
    assert letter["properties"]["ORIGIN_MESSAGE_ID"] == sent.offset_id
    # Retries and dead letters lie in queues like any other.
    queues = tmp_path / "consumequeue"
    assert count_units(queues / "Orders" / "0") == 1
    assert count_units(queues / "%RETRY%readers" / "0") == 16
    assert count_units(queues / "%DLQ%readers" / "0") == 1


def first_message(cluster: Cluster, topic: str) -> dict[str, Any]:
    words = [topic, "--from", "earliest", "--count", 1]
    return cluster.json("message", "tail", *words)


def messages_in(cluster: Cluster, topic: str) -> int:
    result = cluster.command("topic", "stats", topic, "--output", "json")
    return 0 if result.exit_code else int(result.stdout.split('"messages":')[1].split(",")[0])


def count_units(directory) -> int:
    """Return how many units the files of a queue hold: the same format for every topic."""
    data = b"".join(path.read_bytes() for path in sorted(directory.iterdir()))
    sizes = [size for _, size, _ in UNIT.iter_unpack(data)]
    return sum(size > 0 for size in sizes)


def wait_until(condition, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)
