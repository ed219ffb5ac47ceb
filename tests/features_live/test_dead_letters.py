"""A message that nobody can handle: sixteen retries, then a dead letter, all in ordinary queues."""

import time

import pytest

from cluster_commands import Cluster
from orbitmq.client import Consumer, RetryLater
from orbitmq.format.cq_unit import UNIT
from orbitmq.testing import Broker

LEVELS = " ".join(["0s"] * 18)  # RocketMQ's levels take an hour and more for sixteen retries


@pytest.mark.feature("F82", "F83")
def test_the_seventeenth_failure_makes_a_dead_letter():
    tries: list[int] = []

    def refuse(message):
        tries.append(message.reconsume_times)
        raise RetryLater(level=0)  # the broker's own level for each round

    with Broker(settings={"messageDelayLevel": LEVELS}) as broker:
        cluster = Cluster(broker)
        cluster.create("Orders", queues=1)
        (sent,) = cluster.send("Orders", "poison", keys=["k1"], tag="TagA")
        with Consumer(
            *(cluster.namesrv, "readers", "Orders", refuse), start_from="first", workers=1
        ):
            wait_until(lambda: messages_in(cluster, "%DLQ%readers") == 1)
        words = ["%DLQ%readers", "--from", "earliest", "--count", 1, "--output", "json"]
        letter = cluster.output("message", "tail", *words)
        queues = broker.store_path / "consumequeue"
        units = {
            topic: count_units(queues / topic / queue_id)
            for topic, queue_id in (
                ("Orders", "0"),
                ("%RETRY%readers", "0"),
                ("%DLQ%readers", "0"),
            )
        }

    assert tries == list(range(17))
    assert '"body":"poison"' in letter
    assert f'"ORIGIN_MESSAGE_ID":"{sent.message_id}"' in letter or sent.offset_id in letter
    assert units == {"Orders": 1, "%RETRY%readers": 16, "%DLQ%readers": 1}


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
