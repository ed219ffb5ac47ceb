"""Our admin client and producer on RocketMQ's own name server and broker."""

import time
from collections.abc import Callable
from uuid import uuid4

import pytest

from compat.clusters import Cluster, Clusters
from compat.java_store import needs_java
from orbitmq.client import Admin, Message, Producer
from orbitmq.client.admin.results import BrokerInfo
from orbitmq.errors import NoRouteError
from orbitmq.wire.command import Encoding

pytestmark = [pytest.mark.compat, needs_java]


@pytest.fixture(scope="module", params=["java", "ours"])
def cluster(clusters: Clusters, request: pytest.FixtureRequest) -> Cluster:
    return clusters.get(request.param)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.05)


@pytest.mark.parametrize("encoding", Encoding)
def test_a_topic_from_its_creation_to_its_end(cluster: Cluster, encoding: Encoding) -> None:
    topic, group = f"Admin-{uuid4().hex[:8]}", f"G-{uuid4().hex[:8]}"
    broker = cluster.broker.address
    with (
        Admin(cluster.namesrv, encoding=encoding) as admin,
        Producer(cluster.namesrv, group="admin-test", encoding=encoding) as producer,
    ):
        made = admin.create_topic(topic, queues=2, broker=broker)
        assert (made.write_queues, len(made.shares)) == (2, 1)
        assert topic in admin.topics()
        sent = [producer.send(Message(topic, b"%d" % n, keys=[f"k{n}", "all"])) for n in range(6)]
        sent += producer.send_batch([Message(topic, b"6", keys="all"), Message(topic, b"7")])
        until(lambda: sum(queue.message_count for queue in admin.topic_stats(topic)) == 8)

        for result in sent[:6]:
            assert admin.message(result.message_id, topic) == admin.message(result.offset_id)
        until(lambda: len(admin.messages_by_key(topic, "all")) == 7)
        one = admin.messages_by_key(topic, "k3")[0]
        assert one == admin.message_at(one.queue, one.queue_offset)
        bodies = [
            message.body
            for queue in {result.queue for result in sent}
            for message in admin.browse(queue, *admin.queue_range(queue))
        ]
        assert sorted(bodies) == [b"%d" % n for n in range(8)]

        admin.create_group(group, retries_max=3, broker=broker)
        assert group in [info.group for info in admin.groups(broker=broker)]
        admin.reset_offsets(group, topic, "earliest")
        assert admin.progress(group, topic, matching=True).lag == 8
        admin.reset_offsets(group, topic, "latest")
        assert admin.progress(group, topic).lag == 0
        admin.set_offset(group, sent[0].queue, 0)
        assert admin.progress(group, topic).lag > 0
        assert not admin.consumers(group).is_online
        assert group in admin.groups_of_topic(topic)

        admin.delete_group(group)
        admin.delete_topic(topic)
        with pytest.raises(NoRouteError):
            admin.topic(topic)


def test_brokers_tell_of_themselves(cluster: Cluster) -> None:
    with Admin(cluster.namesrv) as admin:

        def found() -> BrokerInfo:
            return {broker.address: broker for broker in admin.brokers()}[cluster.broker.address]

        # A Java broker samples its figures once a second, and answers with an error before the first time.
        until(lambda: found().error == "")
        assert found().version.startswith("V5")
        assert admin.broker_config(found().address)["brokerName"] == found().name
        assert found().name in next(iter(admin.clusters().values()))
