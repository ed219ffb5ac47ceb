"""Progress of groups for tools."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from orbitmq.wire.bodies.heartbeat import Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    QueueProgress,
)
from orbitmq.wire.codes import RequestCode, ResponseCode


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        world.topic("T", 2)
        world.append("T", b"a", b"b", b"c")
        world.clock.advance(1_000)
        world.append("T", b"d", queue_id=1)
        yield world


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


def test_progress_is_what_was_committed_pulled_and_stored(world: AdminWorld) -> None:
    world.context.offsets.commit("G", "T", 0, 2)
    world.context.offsets.remember_pull("G", "T", 0, 3)

    answer = world.request(RequestCode.GET_CONSUME_STATS, consumerGroup="G")

    stats = ConsumeStats.decode(answer.body)
    stored = world.store.store_time("T", 0, 1)
    assert stats.offset_table == {
        queue(0): QueueProgress(
            broker_offset=3, consumer_offset=2, pull_offset=3, last_timestamp=stored
        ),
        queue(1): QueueProgress(broker_offset=1),
    }
    assert (stats.lag, stats.in_flight) == (2, 1)


def test_topic_that_an_online_group_left_is_not_told_unless_named(world: AdminWorld) -> None:
    world.topic("U")
    for topic in ("T", "U"):
        world.context.offsets.commit("G", topic, 0, 0)
    world.consumer("G", "U")

    def topics(**given: str) -> set[str]:
        answer = world.request(RequestCode.GET_CONSUME_STATS, consumerGroup="G", **given)
        return {key.topic for key in ConsumeStats.decode(answer.body).offset_table}

    assert topics() == {"U"}
    assert topics(topic="T") == set()
    assert topics(topicList="T;U;Nope") == {"T", "U"}


def test_all_groups_are_told_with_their_lag(world: AdminWorld) -> None:
    world.topic("Ordered", order=True)
    world.context.groups.get_or_create("G")
    world.context.offsets.commit("G", "T", 0, 1)
    world.context.offsets.commit("G", "Ordered", 0, 0)

    answer = world.request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false")
    body = BrokerConsumeStats.decode(answer.body)

    (stats,) = [row["G"] for row in body.consume_stats_list if "G" in row]
    assert (body.total_diff, body.broker_addr, len(stats)) == (3, "127.0.0.1:10911", 2)
    only = world.request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="true")
    (stats,) = [r["G"] for r in BrokerConsumeStats.decode(only.body).consume_stats_list if "G" in r]
    assert [key.topic for key in stats[0].offset_table] == ["Ordered"]


def test_time_span_tells_how_old_the_next_message_is(world: AdminWorld) -> None:
    world.context.offsets.commit("G", "T", 0, 1)
    world.context.offsets.commit("G", "T", 1, 1)

    answer = world.request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="G")

    behind, done = ConsumeTimeSpans.decode(answer.body).consume_time_span_set
    assert (behind.delay_time, done.delay_time) == (1_000, 0)
    assert done.consume_time_stamp == done.max_time_stamp == world.clock.now_ms()
    unread = world.request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="T", group="Other")
    assert ConsumeTimeSpans.decode(unread.body).consume_time_span_set[0].delay_time == 1_000
    missing = world.request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic="Nope", group="G")
    assert missing.code == ResponseCode.TOPIC_NOT_EXIST


def test_groups_of_a_topic_are_those_online_and_those_with_offsets(world: AdminWorld) -> None:
    world.context.offsets.commit("Offline", "T", 0, 1)
    world.consumer("Online", "T")

    answer = world.request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")

    assert json.loads(answer.body) == {"groupList": ["Offline", "Online"]}


def test_subscription_of_an_online_group_is_told(world: AdminWorld) -> None:
    world.consumer("G", "T")

    answer = world.request(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER, group="G", topic="T")

    told = json.loads(answer.body)
    assert told["subscriptionData"]["subString"] == "*"


@pytest.mark.parametrize("topic", ["T", ""])
def test_offsets_are_cloned_to_another_group(world: AdminWorld, topic: str) -> None:
    world.context.offsets.commit("G", "T", 0, 2)
    world.context.offsets.commit("G", "Gone", 0, 9)

    clone = RequestCode.CLONE_GROUP_OFFSET
    assert world.request(clone, srcGroup="G", destGroup="H", topic=topic, offline="true").code == 0

    assert world.context.offsets.get("H", "T", 0) == 2
    assert world.context.offsets.get("H", "T", 1) == -1
    assert world.context.offsets.get("H", "Gone", 0) == -1


def test_correction_offset_is_the_smallest_of_all_groups(world: AdminWorld) -> None:
    for group, offset in (("A", 3), ("B", 1), ("C", 2)):
        world.context.offsets.commit(group, "T", 0, offset)
    correction = RequestCode.QUERY_CORRECTION_OFFSET

    def ask(**given: str) -> bytes:
        return world.request(correction, topic="T", **given).body

    assert ask() == b'{"correctionOffsets":{0:1}}'
    assert ask(filterGroups="B") == b'{"correctionOffsets":{0:2}}'
    assert ask(filterGroups="B", compareGroup="B") == b'{"correctionOffsets":{0:%d}}' % (2**63 - 1)


def test_units_of_a_queue_are_told_within_bounds(world: AdminWorld) -> None:
    def ask(
        index: int, count: int, queue_id: int = 0, **given: str
    ) -> tuple[int, bytes, str | None]:
        answer = world.request(
            RequestCode.QUERY_CONSUME_QUEUE,
            topic="T",
            queueId=queue_id,
            index=index,
            count=count,
            **given,
        )
        return answer.code, answer.body, answer.remark

    code, body, _ = ask(1, 1 << 40)
    told = json.loads(body)
    assert (code, len(told["queueData"]), told["maxQueueIndex"]) == (0, 2, 3)
    assert ask(3, 1) == (0, b"", "Index 3 of 0@T is not exist!")
    assert ask(0, 1, queue_id=7) == (1, b"", "7@T is not exist!")
    offline = json.loads(ask(0, 1, consumerGroup="G")[1])
    assert offline["filterData"] == "G@T is not online!"
    world.consumer("G", "T")
    assert json.loads(ask(0, 1, consumerGroup="G")[1])["subscriptionData"]["topic"] == "T"


# Lag behind a filter


def subscribed(world: AdminWorld, expression: str, kind: str = "TAG", topic: str = "T") -> None:
    world.consumer("G", topic)
    group = world.context.consumers.group("G")
    assert group is not None
    group.subscriptions[topic] = Subscription(
        topic=topic, sub_string=expression, expression_type=kind
    )


def counted(world: AdminWorld, topic: str = "T") -> list[tuple[int | None, bool | None]]:
    fields = {"consumerGroup": "G", "topicList": topic, "countMatching": "true"}
    stats = ConsumeStats.decode(world.request(RequestCode.GET_CONSUME_STATS, **fields).body)
    return [(one.matching, one.matching_is_estimate) for one in stats.offset_table.values()]


def tagged(world: AdminWorld, *tags: str, topic: str = "Tagged") -> None:
    if topic not in world.context.topics:
        world.topic(topic)
    for tag in tags:
        world.append(topic, b"x", properties=f"TAGS\x01{tag}\x02n\x01{len(tag)}\x02".encode())


@pytest.mark.parametrize(
    ("kind", "expression", "count"),
    [
        ("TAG", "*", 6),
        ("TAG", "A", 2),
        ("TAG", "A || CCC", 4),
        ("TAG", "Z", 0),
        ("SQL92", "n > 1 AND TAGS <> 'Z'", 3),
        ("SQL92", "n = 7", 0),
    ],
)
def test_only_what_the_filter_lets_through_is_lag(
    world: AdminWorld, kind: str, expression: str, count: int
) -> None:
    tagged(world, "A", "BB", "CCC", "A", "D", "CCC")
    subscribed(world, expression, kind, "Tagged")

    assert counted(world, "Tagged") == [(count, False)]


def test_what_was_consumed_is_no_lag(world: AdminWorld) -> None:
    tagged(world, "A", "B", "A", "A")
    subscribed(world, "A", topic="Tagged")
    world.context.offsets.commit("G", "Tagged", 0, 2)

    assert counted(world, "Tagged") == [(2, False)]
    world.context.offsets.commit("G", "Tagged", 0, 4)
    assert counted(world, "Tagged") == [(0, False)]


def test_of_a_group_that_is_not_online_nobody_counts(world: AdminWorld) -> None:
    tagged(world, "A", "B")

    assert counted(world, "Tagged") == [(None, None)]


def test_an_expression_that_means_nothing_is_not_counted(world: AdminWorld) -> None:
    tagged(world, "A", "B")
    subscribed(world, "n >", "SQL92", "Tagged")

    assert counted(world, "Tagged") == [(None, None)]


def test_who_does_not_ask_gets_the_members_that_rocketmq_has(world: AdminWorld) -> None:
    subscribed(world, "A")

    answer = world.request(RequestCode.GET_CONSUME_STATS, consumerGroup="G", topicList="T")

    assert b"matching" not in answer.body
