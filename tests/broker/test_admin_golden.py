"""Tools' requests of real recordings: the same answers as RocketMQ's, byte for byte where order allows."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from admin_world import AdminWorld
from golden_frames import exchanges
from orbitmq.setting_keys import OWN_KEYS
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.stats import ConsumeTimeSpans, TopicStats
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command

ADDRESS = "127.0.0.2:11311"

ANSWERS = [
    (asked.command, got.command)
    for asked, got in exchanges("raw/answers", "broker")
    if asked.command.is_response is False
]


def answers(*codes: int) -> list[tuple[Command, Command]]:
    return [(asked, got) for asked, got in ANSWERS if asked.code in codes]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    """The broker of the recording as far as its own dumps describe it."""
    clock = FakeClock(1_794_769_500_000)
    with AdminWorld(tmp_path, clock=clock, trace_topic=True) as world:
        world.context.address = ADDRESS
        tables = {code: dialect.loads(answers(code)[0][1].body) for code in (21, 43, 201)}
        world.context.topics.load(tables[21], tmp_path)
        world.context.groups.load(tables[201], tmp_path)
        world.context.offsets.load(tables[43], tmp_path)
        _fill(world)
        yield world


def _fill(world: AdminWorld) -> None:
    """Append as many messages as the recorded queues have, at the recorded times."""
    basic = TopicStats.decode(_body(202, "GwBasicJ"))
    times = {
        queue: (o.max_offset, 0, o.last_update_timestamp) for queue, o in basic.offset_table.items()
    }
    for span in ConsumeTimeSpans.decode(_body(303, "GwPushJ")).consume_time_span_set:
        times[span.message_queue] = (2, span.min_time_stamp, span.max_time_stamp)
    at = [
        (first or last, queue) if number < count - 1 else (last, queue)
        for queue, (count, first, last) in times.items()
        for number in range(count)
    ]
    for time_ms, queue in sorted(at):
        world.clock.set_now_ms(time_ms)
        world.append(queue.topic, b"message", queue_id=queue.queue_id)
    world.clock.set_now_ms(1_794_770_480_000)


def _body(code: int, topic: str) -> bytes:
    for asked, got in answers(code):
        if (asked.fields or {}).get("topic") == topic and got.code == 0:
            return got.body
    raise AssertionError(f"no answer of {code} about {topic}")


EXACT = (17, 200, 202, 203, 204, 207, 208, 215, 222, 225, 303, 306, 307, 308, 309, 314, 315, 328)
EXACT += (345, 351, 352)


@pytest.mark.parametrize("code", EXACT)
def test_answer_is_rocketmqs_byte_for_byte(world: AdminWorld, code: int) -> None:
    for asked, expected in answers(code):
        got = world.replay(asked)

        assert (got.code, got.remark) == (expected.code, expected.remark), asked
        assert got.fields == expected.fields, asked
        assert got.body == expected.body, asked


@pytest.mark.parametrize("code", [21, 201])
def test_dump_has_what_rocketmqs_has(world: AdminWorld, code: int) -> None:
    for asked, expected in answers(code):
        got = world.replay(asked)

        assert (got.code, got.remark, got.fields) == (0, expected.remark, expected.fields)
        told, wanted = dialect.loads(got.body), dialect.loads(expected.body)
        told.pop("mappingDataVersion", None)
        wanted.pop("mappingDataVersion", None)
        assert told == wanted
        assert list(told) == list(wanted)


@pytest.mark.parametrize(
    ("code", "member"), [(300, "groupList"), (343, "topicList"), (305, "topicList")]
)
def test_list_has_the_same_names(world: AdminWorld, code: int, member: str) -> None:
    for asked, expected in answers(code):
        got = world.replay(asked)

        told, wanted = json.loads(got.body), json.loads(expected.body)
        own = (asked.fields or {}).get("topic")  # RocketMQ takes a topic for a group of itself
        assert sorted(told[member]) == sorted(name for name in wanted[member] if name != own)
        assert told.keys() == wanted.keys()
        assert (got.code, got.remark, got.fields) == (0, expected.remark, expected.fields)


def test_queue_units_look_as_rocketmqs(world: AdminWorld) -> None:
    (asked, expected), *_ = answers(321)

    got = world.replay(asked)

    told, wanted = json.loads(got.body), json.loads(expected.body)
    assert (got.code, got.remark, got.fields) == (0, expected.remark, expected.fields)
    assert [list(unit) for unit in told["queueData"]] == [list(u) for u in wanted["queueData"]]
    assert (told["maxQueueIndex"], told["minQueueIndex"]) == (9, 0)


def test_settings_are_refused_and_taken_with_the_same_codes_but_for_unknown_names(
    world: AdminWorld,
) -> None:
    recorded = {asked.body: expected.code for asked, expected in answers(25)}

    told = {asked.body: world.replay(asked).code for asked, _ in answers(25)}

    # RocketMQ answers success to a name that it does not know, and changes nothing.
    assert recorded == {b"brokerConfigPath=x\n": 16, b"noSuchKey=1\n": 0, b"": 0}
    assert told == recorded | {b"noSuchKey=1\n": ResponseCode.INVALID_PARAMETER}


def test_status_of_a_group_that_is_not_online_fails_with_the_same_code(world: AdminWorld) -> None:
    (asked, expected), *_ = answers(223)

    got = world.replay(asked)

    assert got.code == expected.code == 1
    assert got.remark == "No Any Consumer online in the consumer group: [GwNoGroup11]"


MQADMIN: list[tuple[Command, Command]] = [
    (asked.command, got.command) for asked, got in exchanges("java-json/mqadmin", "broker")
]


def mqadmin(code: int, **fields: str) -> tuple[Command, Command]:
    for asked, got in MQADMIN:
        if asked.code == code and fields.items() <= (asked.fields or {}).items():
            return asked, got
    raise AssertionError(f"no such request: {code} {fields}")


def test_runtime_figures_have_every_name_of_rocketmqs(world: AdminWorld) -> None:
    asked, expected = mqadmin(28)

    got = world.replay(asked)

    told: dict[str, Any] = json.loads(got.body)["table"]
    wanted = json.loads(expected.body)["table"]
    other = {name for name in wanted if name.startswith(("commitLogDiskRatio_", "scheduleMessage"))}
    assert wanted.keys() - other <= told.keys()
    assert all(isinstance(value, str) for value in told.values())


def test_settings_are_told_as_properties_with_rocketmqs_names_and_defaults(
    world: AdminWorld,
) -> None:
    asked, expected = mqadmin(26)

    got = world.replay(asked)

    told = dict(line.split("=", 1) for line in got.body.decode().splitlines())
    wanted = dict(line.split("=", 1) for line in expected.body.decode().splitlines() if line)
    # An old name of a key is read and not told; of RocketMQ's the empty ones are not told.
    ours = OWN_KEYS - {"haSlaveFallbehindMax"} | {"readOnlyCommitLogStorePaths", "haMasterAddress"}
    assert told.keys() - wanted.keys() == ours
    given = {
        "namesrvAddr",
        "bindAddress",
        "enablePropertyFilter",
        "haListenPort",
        "recallMessageEnable",
        "transactionCheckInterval",
    }  # of that broker
    sizes = {key for key in told if key.startswith(("mapped", "storePath", "maxHash", "maxIndex"))}
    differing = {key for key in told.keys() & wanted.keys() if told[key] != wanted[key]}
    assert differing <= given | sizes
    assert json.loads((got.fields or {})["version"]).keys() == {
        "counter",
        "stateVersion",
        "timestamp",
    }
    assert list(told) == sorted(told)


def test_life_of_a_topic_and_a_group_under_mqadmin(tmp_path: Path) -> None:
    clock = FakeClock(1_794_769_819_000)
    with AdminWorld(tmp_path, clock=clock) as world:
        world.context.statistics.tick()
        clock.advance(10_000)
        for code, name in ((17, "GwAdmJ"), (200, "")):
            asked, expected = mqadmin(code, **({"topic": name} if name else {}))
            got = world.replay(asked)
            assert (got.code, got.remark, got.fields, got.body) == (0, expected.remark, None, b"")
        for time_ms, queue_id in ((1, 0), (2, 1), (1_794_769_829_215, 0), (1_794_769_829_233, 1)):
            clock.set_now_ms(max(time_ms, clock.now_ms()))
            world.append("GwAdmJ", b"x", queue_id=queue_id)
            world.context.statistics.on_put("GwAdmJ", 1, 100)
        for queue_id in (0, 1):
            world.context.offsets.commit("GwAdmCidJ", "GwAdmJ", queue_id, 2)
            world.context.statistics.on_get("GwAdmJ", "GwAdmCidJ", 2, 200)
        world.context.statistics.tick()
        clock.advance(10_000)
        world.context.statistics.tick()

        # What is asked twice gets the same bytes as RocketMQ's broker gave 20 s after the messages.
        for asked, expected in (
            mqadmin(202, topic="GwAdmJ"),
            mqadmin(351, topic="GwAdmJ"),
            mqadmin(315, statsName="TOPIC_PUT_NUMS", statsKey="GwAdmJ"),
            mqadmin(315, statsName="GROUP_GET_NUMS", statsKey="GwAdmJ@GwAdmJ"),
            mqadmin(315, statsName="GROUP_GET_NUMS", statsKey="GwAdmJ@GwAdmCidJ"),
            mqadmin(208, topic="GwAdmJ", consumerGroup="GwAdmCidJ"),
            mqadmin(208, topic="GwAdmJ", consumerGroup="GwAdmJ"),
            mqadmin(222, timestamp="-1"),
            mqadmin(316),
            mqadmin(207),
            mqadmin(215, topic="GwAdmJ"),
            mqadmin(215, topic="%DLQ%GwAdmCidJ"),
        ):
            got = world.replay(asked)
            assert (got.code, got.remark) == (expected.code, expected.remark)
            assert (got.fields, got.body) == (expected.fields, expected.body)
