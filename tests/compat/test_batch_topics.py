"""BatchCQ topics of ours with RocketMQ's Java client: a batch is one record, and its messages arrive."""

from collections import Counter, defaultdict

import pytest

from compat import scenarios
from compat.client_kinds import Clients
from compat.client_program import Client, Row
from compat.clusters import KINDS, Cluster, Clusters
from compat.java_store import needs_java
from compat.server_process import UPDATE_AND_CREATE_TOPIC, ask, await_route

pytestmark = [pytest.mark.compat, pytest.mark.feature("F31"), needs_java]

COUNT = 40  # four batches of ten


@pytest.fixture(scope="module", params=KINDS)
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


def batch_topic(cluster: Cluster) -> str:
    topic = scenarios.fresh("Batches")
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "2",
        "writeQueueNums": "2",
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
        "attributes": "+queue.type=BatchCQ",
    }
    code, remark, _ = ask(cluster.broker.address, UPDATE_AND_CREATE_TOPIC, fields)
    assert code == 0, remark
    await_route(cluster.namesrv, topic)
    return topic


def test_batches_have_one_id_each_and_all_their_messages_arrive(
    cluster: Cluster, clients: Clients
) -> None:
    java = clients.get("java-new-json", cluster.namesrv)
    ours = clients.get("ours-json", cluster.namesrv)
    topic = batch_topic(cluster)

    sent = java.send(topic=topic, count=COUNT, mode="batch", body="m-", key="k")
    sent += java.send(topic=topic, count=3, body="single-")
    got, got_by_ours = received(java, topic), received(ours, topic)

    batches = Counter(row["offset_id"] for row in sent)
    assert sorted(batches.values()) == [1, 1, 1, 10, 10, 10, 10]
    assert places(got) == places(got_by_ours)
    assert {row["body"]: row["offset"] for row in sent} == {
        row["body"]: row["offset"] for row in got
    }
    by_queue: dict[int, set[int]] = defaultdict(set)
    for _, queue, offset in places(got):
        by_queue[queue].add(offset)
    for offsets in by_queue.values():
        assert offsets == set(range(len(offsets)))


def received(client: Client, topic: str) -> list[Row]:
    consumer = client.subscribe(topic=topic, group=scenarios.fresh("batch-group"))
    consumer.wait("got", COUNT + 3)
    got = consumer.leave()
    assert len(got) == COUNT + 3
    return got


def places(got: list[Row]) -> list[tuple[str, int, int]]:
    return sorted((row["body"], row["queue"], row["offset"]) for row in got)
