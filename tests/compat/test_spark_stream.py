"""The stream over topics on RocketMQ's own broker: pulls without a consumer, limits, lag in its own tools."""

import json
import time
from uuid import uuid4

import pytest

from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java
from orbitmq.client import Admin, Message, Producer
from spark.stream_world import Batches, bodies, numbered, open_reader

pytestmark = [pytest.mark.compat, needs_java]


@pytest.fixture(scope="module", params=["java", "ours"])
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


def wait_sent(admin: Admin, topic: str, count: int) -> None:
    """Wait until so many messages are in their queues."""
    deadline = time.monotonic() + 20
    while sum(queue.max_offset for queue in admin.topic_stats(topic)) < count:
        assert time.monotonic() < deadline, "messages were not dispatched"
        time.sleep(0.05)


@pytest.mark.feature("P8")
def test_stream_reads_each_message_once_within_limits_and_its_lag_goes_to_zero(
    cluster: Cluster,
) -> None:
    topic, group = f"Stream-{uuid4().hex[:8]}", f"G-{uuid4().hex[:8]}"
    with (
        Admin(cluster.namesrv) as admin,
        Producer(cluster.namesrv, group="stream-test") as producer,
    ):
        admin.create_topic(topic, queues=3, broker=cluster.broker.address)
        for number in range(90):
            producer.send(Message(topic, b"message %d" % number, tag="TagA", keys=f"k{number}"))
        wait_sent(admin, topic, 90)
        options = {"namesrv": cluster.namesrv, "topics": topic, "group": group}
        with open_reader(**options, maxRowsPerTrigger="40") as reader:
            stream = Batches(reader)
            batches = [stream.next() for _ in range(4)]
        progress = admin.progress(group, topic)

    assert [len(batch) for batch in batches] == [40, 40, 10, 0]
    found = [row for batch in batches for row in batch]
    assert bodies(found) == numbered(0, 90)
    assert {row["tags"] for row in found} == {"TagA"}
    assert progress.lag == 0
    assert sum(queue.consumer_offset for queue in progress.queues) == 90


@pytest.mark.feature("P8")
def test_stream_starts_at_a_time_and_keeps_a_limit_by_bytes(cluster: Cluster) -> None:
    topic = f"Stream-{uuid4().hex[:8]}"
    with (
        Admin(cluster.namesrv) as admin,
        Producer(cluster.namesrv, group="stream-test") as producer,
    ):
        admin.create_topic(topic, queues=2, broker=cluster.broker.address)
        for number in range(10):
            producer.send(Message(topic, b"message %d" % number))
        wait_sent(admin, topic, 10)
        (last,) = [max(queue.last_ms for queue in admin.topic_stats(topic))]
        time.sleep(0.05)  # sleep: later messages get a later store time
        for number in range(10, 40):
            producer.send(Message(topic, b"message %d" % number))
        wait_sent(admin, topic, 40)
        options = {"namesrv": cluster.namesrv, "topics": topic, "maxBytesPerTrigger": "3000"}
        with open_reader(**options, startingOffsets=f"timestamp:{last + 1}") as reader:
            stream = Batches(reader)
            batches = [stream.next()]
            while stream.at != stream.before:
                assert len(batches) <= 31, "each batch but the last has a message"
                batches.append(stream.next())

    assert bodies([row for batch in batches for row in batch]) == numbered(10, 40)
    assert all(sum(row["size"] for row in batch) <= 3_000 for batch in batches)
    assert len(batches) > 3
    assert json.dumps(stream.at) == json.dumps(stream.before)
