"""Requests about offsets."""

from pathlib import Path

import pytest

from broker_world import BrokerWorld
from orbitmq.broker.processors.offsets import OffsetsProcessor
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import Command


@pytest.fixture
def world(tmp_path: Path):  # type: ignore[no-untyped-def]
    with BrokerWorld(tmp_path) as made:
        made.route(OffsetsProcessor(made.context))
        made.context.topics.put(TopicConfig(topic_name="T"))
        made.context.groups.get_or_create("G")
        yield made


def ask(world: BrokerWorld, code: int, **fields: object) -> Command:
    texts = {"topic": "T", "queueId": "0", "consumerGroup": "G"}
    texts |= {name: str(value) for name, value in fields.items()}
    return world.ask(world.connect(), Command(code, texts))


@pytest.mark.feature("F30")
def test_times_lead_to_offsets(world: BrokerWorld) -> None:
    times = []
    for n in range(4):
        world.append("T", b"%d" % n)
        times.append(world.clock.now_ms())
        world.clock.advance(10)

    def search(time_ms: int, **boundary: str) -> str:
        answer = ask(world, 29, timestamp=time_ms, **boundary)
        assert answer.fields is not None
        return answer.fields["offset"]

    assert search(times[2]) == "2"
    assert search(times[1] + 1) == "2"
    assert search(times[1] + 1, boundaryType="upper") == "1"
    assert search(times[3] + 1) == "4"
    assert search(times[3] + 1, boundaryType="UPPER") == "3"
    assert search(0) == search(0, boundaryType="UPPER") == "0"
    assert ask(world, 30).fields == {"offset": "4"}
    assert ask(world, 31).fields == {"offset": "0"}
    assert ask(world, 32).fields == {"timestamp": str(times[0])}


def test_a_group_without_an_offset_reads_a_young_queue_from_its_beginning(
    world: BrokerWorld,
) -> None:
    world.append("T", b"x")

    assert ask(world, 14).fields == {"offset": "0"}
    assert ask(world, 14, setZeroIfNotFound="false").code == 22
    world.context.config.zero_if_in_memory = False
    assert ask(world, 14).code == 22


@pytest.mark.parametrize("queue_id", [0, 15])
def test_a_queue_that_never_held_a_message_is_read_from_its_beginning(
    world: BrokerWorld, queue_id: int
) -> None:
    world.context.config.zero_if_in_memory = False

    assert ask(world, 14, queueId=queue_id).fields == {"offset": "0"}
    assert ask(world, 14, queueId=queue_id, setZeroIfNotFound="true").fields == {"offset": "0"}
    assert ask(world, 14, queueId=queue_id, setZeroIfNotFound="false").code == 22


@pytest.mark.parametrize(("topic", "queue_id"), [("Unknown", 0), ("T", 16), ("T", -1)])
def test_a_queue_that_is_none_has_no_offset(world: BrokerWorld, topic: str, queue_id: int) -> None:
    assert ask(world, 14, topic=topic, queueId=queue_id).code == 22


def test_a_queue_whose_messages_are_gone_has_held_some(world: BrokerWorld) -> None:
    world.append("T", b"x")
    world.context.config.zero_if_in_memory = False
    world.store.min_offset = lambda topic, queue_id: 1  # type: ignore[method-assign]

    assert ask(world, 14).code == 22


@pytest.mark.parametrize("queue_type", ["SimpleCQ", "BatchCQ"])
def test_a_new_group_does_not_miss_the_first_message_of_a_queue(
    world: BrokerWorld, queue_type: str
) -> None:
    world.context.topics.put(TopicConfig(topic_name="New", attributes={"queue.type": queue_type}))
    world.context.config.zero_if_in_memory = False

    asked = ask(world, 14, topic="New")
    world.append("New", b"first")  # between its two questions
    if asked.code == 22:
        asked = ask(world, 30, topic="New")  # as a client that begins at the end does

    start = int((asked.fields or {})["offset"])
    assert len(world.store.get("New", 0, start).records) == 1


def test_a_report_during_a_pending_reset_is_acknowledged_and_passed_over(
    world: BrokerWorld,
) -> None:
    world.context.offsets.reset("G", "T", 0, 3)

    answer = ask(world, 15, commitOffset=9)

    assert (answer.code, answer.remark) == (0, "Offset has been previously reset")
    assert ask(world, 14).fields == {"offset": "3"}


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"consumerGroup": "Unknown"}, 26),
        ({"topic": "Unknown"}, 17),
        ({"commitOffset": "x"}, 1),
        ({"queueId": str(1 << 70)}, 1),
        ({"queueId": str(1 << 40)}, 29),
        ({"queueId": "-1"}, 29),
    ],
)
def test_a_report_that_cannot_be_kept_is_refused(
    world: BrokerWorld, fields: dict[str, str], code: int
) -> None:
    assert ask(world, 15, **({"commitOffset": "1"} | fields)).code == code
    assert world.context.offsets.all() == {}


@pytest.mark.parametrize("code", [14, 15, 29, 30, 31, 32])
def test_a_request_without_its_fields_is_refused(world: BrokerWorld, code: int) -> None:
    answer = world.ask(world.connect(), Command(code))

    assert answer.code == 1
    assert "is missing" in (answer.remark or "")


def test_replicas_get_all_offsets_with_bare_numbers_as_keys(world: BrokerWorld) -> None:
    ask(world, 15, commitOffset=7)

    answer = ask(world, 43)

    assert b'"offsetTable":{"T@G":{0:7}}' in answer.body
    assert dialect.loads(answer.body)["groupTopicMap"] == {"G": ["T"]}
    assert dialect.loads(ask(world, 45).body).keys() == {"dataVersion", "offsetTable"}
