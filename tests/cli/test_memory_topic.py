"""`orbitmq topic create --memory`, and where a topic is kept in what commands show."""

import pytest

from cluster_commands import Cluster
from orbitmq.testing import Broker

pytestmark = pytest.mark.feature("F104")


def test_a_topic_in_memory_is_created_and_shown_as_such():
    with Broker(settings={"memoryTopicEnable": "true"}) as broker:
        cluster = Cluster(broker)
        cluster.output("topic", "create", "Fast", "--queues", 1, "--memory")
        cluster.output("topic", "create", "Safe", "--queues", 1)
        cluster.send("Fast", "one", "two")

        rows = {row["topic"]: row for row in cluster.json("topic", "list")}
        stats, text = (
            cluster.json("topic", "stats", "Fast"),
            cluster.output("topic", "stats", "Fast"),
        )

    assert (rows["Fast"]["kept_in"], rows["Safe"]["kept_in"]) == ("memory", "disk")
    assert rows["Fast"]["messages"] == 2
    assert stats["kept_in"] == "memory"
    assert "2 messages in 1 queue, in memory only" in text


def test_a_broker_without_the_feature_says_how_to_enable_it():
    with Broker() as broker:
        result = Cluster(broker).command("topic", "create", "Fast", "--memory")

    assert result.exit_code != 0
    assert "memoryTopicEnable=false" in result.output + str(result.exception)
