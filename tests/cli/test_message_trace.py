"""`orbitmq message trace`: the way of a message as a table and as JSON."""

import json

import pytest

from cluster_commands import Cluster
from orbitmq.client import Consumer, Message, Producer
from orbitmq.testing import Broker


@pytest.fixture
def traced(cluster):
    """A message that was sent and consumed by clients with a trace."""
    topic, group = cluster.create(cluster.name(), queues=1), cluster.name("group")
    key = cluster.name("key")
    with Producer(cluster.namesrv, "sender", trace=True) as producer:
        result = producer.send(Message(topic, b"hello", tag="TagA", keys=[key]))
    with Consumer(cluster.namesrv, group, topic, start_from="first", trace=True) as consumer:
        consumer.receive(20).ack()
    return topic, group, key, result


@pytest.mark.feature("F113")
def test_the_way_is_a_table(cluster, traced):
    topic, group, key, result = traced

    by_id = cluster.output("message", "trace", result.message_id)
    by_key = cluster.output("message", "trace", key)
    by_offset_id = cluster.output("message", "trace", result.offset_id)

    head, *rows = [line.split() for line in by_id.splitlines() if line.strip()]
    assert " ".join(head) == (f"message {result.message_id}, topic {topic}, tag TagA, keys {key}")
    assert rows[0] == ["time", "what", "group", "try", "took", "result", "client", "broker"]
    sent, consumed = rows[2:]
    assert ("sent" in sent, "sender" in sent, cluster.broker.address in sent) == (True,) * 3
    assert (consumed[1:4], consumed[-2:]) == (["consumed", group, "1"], ["ok", "127.0.0.1"])
    assert by_key == by_offset_id == by_id


def test_the_way_is_json(cluster, traced):
    topic, group, key, result = traced

    way = cluster.json("message", "trace", key)

    assert (way["message_id"], way["topic"]) == (result.message_id, topic)
    assert (way["tag"], way["keys"]) == ("TagA", [key])
    sent, consumed = way["steps"]
    assert (sent["what"], sent["group"], sent["offset_id"]) == ("sent", "sender", result.offset_id)
    assert (consumed["what"], consumed["group"], consumed["attempt"]) == ("consumed", group, 0)
    assert consumed["time_ms"] >= sent["time_ms"] > 0


def test_two_messages_with_one_key_have_two_ways(cluster):
    topic, key = cluster.name(), cluster.name("key")
    with Producer(cluster.namesrv, "sender", trace=True) as producer:
        ids = [producer.send(Message(topic, b"x", keys=key)).message_id for _ in range(2)]

    text = cluster.output("message", "trace", key, "--output", "json")

    assert [json.loads(line)["message_id"] for line in text.splitlines()] == ids


def test_without_a_trace_it_says_what_to_switch_on(cluster, traced):
    result = cluster.command("message", "trace", "nobody")
    early = cluster.command("message", "trace", traced[2], "--to", "1000")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "no trace of nobody in RMQ_SYS_TRACE_TOPIC" in result.stderr
    for word in ("trace=True", "enableTrace", "traceOn=true", "5 seconds", "--topic"):
        assert word in result.stderr
    assert early.exit_code == 1


def test_without_a_trace_topic_it_says_so():
    with Broker() as broker:
        result = Cluster(broker).command("message", "trace", "nobody")

    assert result.exit_code == 1
    assert "there is no topic RMQ_SYS_TRACE_TOPIC" in result.stderr
    assert "trace=True" in result.stderr


def test_another_trace_topic_can_be_named(cluster):
    topic, traces = cluster.name(), cluster.name("Traces")
    with Producer(cluster.namesrv, "sender", trace=traces) as producer:
        sent = producer.send(Message(topic, b"x"))

    way = cluster.json("message", "trace", sent.message_id, "--topic", traces)

    assert way["message_id"] == sent.message_id
