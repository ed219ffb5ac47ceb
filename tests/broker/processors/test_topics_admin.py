"""Topics for tools: creating, changing, deleting, listing."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from orbitmq.broker.delivery.long_poll import Parked
from orbitmq.wire.bodies.topic_config import TopicConfig, TopicConfigList
from orbitmq.wire.codes import RequestCode, ResponseCode

PUT = RequestCode.UPDATE_AND_CREATE_TOPIC
DELETE = RequestCode.DELETE_TOPIC_IN_BROKER


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        yield world


def wanted(topic: str, **given: object) -> dict[str, object]:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "order": "false",
    }
    return fields | given


def stored_topics(world: AdminWorld) -> set[str]:
    store = world.store
    return {topic for topic, queue_id in store.queues() if store.max_offset(topic, queue_id)}


def test_topic_is_created_with_what_was_asked(world: AdminWorld) -> None:
    version = world.context.topics.version

    answer = world.request(PUT, **wanted("Orders", order="true", attributes="+message.type=FIFO"))

    assert answer.code == 0
    assert world.context.topics.get("Orders") == TopicConfig(
        topic_name="Orders",
        read_queue_nums=4,
        write_queue_nums=4,
        order=True,
        attributes={"message.type": "FIFO"},
    )
    assert world.context.topics.version.counter == version.counter + 1


def test_topic_that_stays_as_it_is_makes_no_new_version(world: AdminWorld) -> None:
    world.request(PUT, **wanted("Orders"))
    version = world.context.topics.version

    answer = world.request(PUT, **wanted("Orders"))

    assert answer.code == 0
    assert world.context.topics.version == version


def test_change_keeps_attributes_that_it_does_not_name(world: AdminWorld) -> None:
    world.request(PUT, **wanted("Orders", attributes="+queue.type=BatchCQ"))

    assert world.request(PUT, **wanted("Orders", perm=4)).code == 0

    config = world.context.topics.get("Orders")
    assert config is not None
    assert (config.perm, config.attributes) == (4, {"queue.type": "BatchCQ"})


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"topic": ""}, ResponseCode.INVALID_PARAMETER, "blank"),
        ({"topic": "x" * 128}, ResponseCode.INVALID_PARAMETER, "longer"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, ResponseCode.INVALID_PARAMETER, "system topic"),
        ({"readQueueNums": -1}, ResponseCode.INVALID_PARAMETER, "readQueueNums"),
        ({"writeQueueNums": 1 << 40}, ResponseCode.INVALID_PARAMETER, "writeQueueNums"),
        ({"perm": 77}, ResponseCode.INVALID_PARAMETER, "perm"),
        ({"perm": "six"}, ResponseCode.SYSTEM_ERROR, "perm"),
        ({"attributes": "+message.type=MIXED"}, ResponseCode.INVALID_PARAMETER, "MIXED"),
        ({"attributes": "queue.type=BatchCQ"}, ResponseCode.SYSTEM_ERROR, "format is wrong"),
        ({"attributes": "-reserve.time"}, ResponseCode.SYSTEM_ERROR, "only add"),
    ],
)
def test_what_cannot_be_is_refused_and_says_why(
    world: AdminWorld, given: dict[str, object], code: int, words: str
) -> None:
    before = dict(world.context.topics.all())

    answer = world.request(PUT, **{**wanted("Orders"), **given})

    assert answer.code == code
    assert words in (answer.remark or "")
    assert dict(world.context.topics.all()) == before


def test_list_of_topics_is_created_together_or_not_at_all(world: AdminWorld) -> None:
    many = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
    good = [TopicConfig(topic_name=name, attributes={"+reserve.time": "5"}) for name in "AB"]
    bad = [*good, TopicConfig(topic_name="TBW102")]

    assert world.request(many, TopicConfigList(topic_config_list=bad).encode()).code == 29
    assert world.context.topics.get("A") is None
    assert world.request(many, TopicConfigList(topic_config_list=good).encode()).code == 0
    found = world.context.topics.get("B")
    assert found is not None
    assert found.attributes == {"reserve.time": "5"}


def test_deleted_topic_takes_its_queues_offsets_and_pop_retries_along(world: AdminWorld) -> None:
    for name in ("Orders", "%RETRY%G_Orders", "%RETRY%G+Orders", "Other"):
        world.topic(name)
        world.append(name, b"x")
        world.context.offsets.commit("G", name, 0, 1)
    world.context.statistics.on_put("Orders", 1, 1)

    answer = world.request(DELETE, topic="Orders")

    assert (answer.code, answer.remark) == (0, None)
    assert stored_topics(world) == {"Other"}
    assert world.context.offsets.topics_of("G") == {"Other"}
    assert world.context.topics.get("Orders") is None
    assert world.context.statistics.rates("TOPIC_PUT_NUMS", "Orders") is None


def test_topic_created_anew_after_its_deletion_starts_at_zero(world: AdminWorld) -> None:
    world.topic("Orders")
    world.append("Orders", b"a", b"b")
    world.request(DELETE, topic="Orders")
    world.topic("Orders")

    (result,) = world.append("Orders", b"c")

    assert result.queue_offset == 0
    assert world.store.max_offset("Orders", 0) == 1


def test_parked_pulls_of_a_deleted_topic_are_answered(world: AdminWorld) -> None:
    world.topic("Orders")
    tried: list[bool] = []

    def attempt(parked: Parked, last: bool) -> bool:
        tried.append(last)
        return True

    parked = Parked(world.connect(), "Orders", 0, 0, 1e12, attempt)  # type: ignore[arg-type]
    world.context.long_poll.park(parked)

    world.request(DELETE, topic="Orders")

    assert tried == [True]


@pytest.mark.parametrize("topic", ["", " ", "TBW102", "rmq_sys_wheel_timer"])
def test_topic_of_the_system_is_not_deleted(world: AdminWorld, topic: str) -> None:
    assert world.request(DELETE, topic=topic).code == ResponseCode.INVALID_PARAMETER


def test_failed_deletion_is_answered(world: AdminWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(topic: str) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(world.store, "delete_topic", fail)

    answer = world.request(DELETE, topic="Orders")

    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "the disk is gone" in (answer.remark or "")


def test_queues_without_a_topic_are_cleaned(world: AdminWorld) -> None:
    world.topic("Orders")
    for name in ("Orders", "Forgotten", "SCHEDULE_TOPIC_XXXX"):
        world.append(name, b"x")

    assert world.request(RequestCode.CLEAN_UNUSED_TOPIC).code == 0

    assert stored_topics(world) == {"Orders", "SCHEDULE_TOPIC_XXXX"}


def test_stats_cover_all_queues_of_a_topic_that_has_more_to_read_than_to_write(
    world: AdminWorld,
) -> None:
    world.context.topics.put(
        TopicConfig(topic_name="Orders", read_queue_nums=3, write_queue_nums=1)
    )
    world.append("Orders", b"x")

    answer = world.request(RequestCode.GET_TOPIC_STATS_INFO, topic="Orders")

    assert answer.body.count(b'"queueId"') == 3
    now = world.clock.now_ms()
    expected = b'{"lastUpdateTimestamp":%d,"maxOffset":1,"minOffset":0}' % now
    assert expected in answer.body


def test_all_topics_are_told_with_their_version(world: AdminWorld) -> None:
    told = json.loads(world.request(RequestCode.GET_ALL_TOPIC_CONFIG).body)

    assert told["topicConfigTable"].keys() == world.context.topics.all().keys()
    assert told["dataVersion"]["counter"] == world.context.topics.version.counter
