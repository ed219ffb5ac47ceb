"""Assignment by the broker: who gets which queues, and the modes that operators set."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker_world import FakeConnection
from orbitmq.broker.processors.assignment import AssignmentProcessor
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.broker.tables.request_modes import RequestModeTable
from orbitmq.broker.tables.state_files import StateText
from orbitmq.errors import StateFileError
from orbitmq.files.state_file import read_state
from orbitmq.wire.bodies.assignment import RequestMode
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import QueueData, TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from pop_world import GROUP, TOPIC, PopWorld


def world_of(tmp_path: Path, *clients: str, queues: int = 4, **given: Any) -> PopWorld:
    world = PopWorld(tmp_path, queues=queues, **given)
    world.route(AssignmentProcessor(world.context))
    for client_id in clients:
        connection: Any = FakeConnection(f"127.0.0.1:{60_000 + len(client_id)}")
        client = ClientConnection(
            connection=connection, client_id=client_id, language="JAVA", version=479, heard_ms=0
        )
        world.context.consumers.register(
            GROUP,
            client,
            consume_type="CONSUME_PASSIVELY",
            model="CLUSTERING",
            from_where="CONSUME_FROM_LAST_OFFSET",
            subscriptions=[],
        )
    return world


def assigned(world: PopWorld, client_id: str, **given: str) -> Any:
    question = {
        "topic": TOPIC,
        "consumerGroup": GROUP,
        "clientId": client_id,
        "strategyName": "AVG",
        "messageModel": "CLUSTERING",
    }
    body = json.dumps({**question, **given}).encode()
    command = Command(RequestCode.QUERY_ASSIGNMENT, None, body, opaque=66)
    answer = world.ask(world.client, command)
    assert answer.code == 0, answer
    return json.loads(answer.body)


def queue_ids(world: PopWorld, client_id: str, **given: str) -> list[int]:
    rows = assigned(world, client_id, **given)["messageQueueAssignments"]
    return [row["messageQueue"]["queueId"] for row in rows]


def set_mode(world: PopWorld, share: int, mode: str = "POP", **given: str) -> Command:
    wanted = {"topic": TOPIC, "consumerGroup": GROUP, "mode": mode, "popShareQueueNum": share}
    body = json.dumps({**wanted, **given}).encode()
    command = Command(RequestCode.SET_MESSAGE_REQUEST_MODE, None, body, opaque=67)
    return world.ask(world.client, command)


def test_queues_are_pulled_unless_somebody_says_otherwise(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", "bb", "ccc") as world:
        rows = assigned(world, "a")["messageQueueAssignments"]
        assert rows == [
            {
                "messageQueue": {"brokerName": "broker-a", "queueId": queue_id, "topic": TOPIC},
                "mode": "PULL",
            }
            for queue_id in (0, 1)
        ]
        assert [queue_ids(world, one) for one in ("bb", "ccc")] == [[2], [3]]
        by_circle = [queue_ids(world, one, strategyName="AVG_BY_CIRCLE") for one in ("a", "bb")]
        assert by_circle == [[0, 3], [1]]


def test_who_pops_everything_is_given_brokers_instead_of_queues(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", "bb") as world:
        assert set_mode(world, 0).code == 0
        (row,) = assigned(world, "a")["messageQueueAssignments"]
        assert row == {
            "messageQueue": {"brokerName": "broker-a", "queueId": -1, "topic": TOPIC},
            "mode": "POP",
        }


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (1, {"a": [0, 1], "bb": [1, 2], "ccc": [2, 3], "dddd": [3, 0]}),
        (2, {"a": [0, 1, 2], "dddd": [3, 0, 1]}),
        (3, {"a": [-1]}),
    ],
)
def test_shares_of_the_next_consumers_are_popped_too(
    tmp_path: Path, share: int, expected: dict[str, Sequence[int]]
) -> None:
    with world_of(tmp_path, "a", "bb", "ccc", "dddd") as world:
        set_mode(world, share)
        assert {one: queue_ids(world, one) for one in expected} == expected


def test_nobody_is_left_out_when_there_are_more_consumers_than_queues(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", "bb", "ccc", "dddd", queues=2) as world:
        set_mode(world, 1)
        found = [queue_ids(world, one) for one in ("a", "bb", "ccc", "dddd")]
        assert found == [[0], [1], [0], [1]]


def test_without_an_answer_the_body_has_no_list(tmp_path: Path) -> None:
    with world_of(tmp_path, "a") as world:
        assert assigned(world, "stranger") == {}
        assert assigned(world, "a", topic="Nowhere") == {}
        assert assigned(world, "a", consumerGroup="Nobody") == {}
        assert assigned(world, "a", strategyName="MINE") == {}


def test_who_reads_everything_gets_all_queues(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", "bb") as world:
        assert queue_ids(world, "a", messageModel="BROADCASTING") == [0, 1, 2, 3]
        world.config.server_assignment = False
        assert queue_ids(world, "a") == [0, 1, 2, 3]


def test_retry_topics_are_always_pulled(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", default_request_mode="POP") as world:
        world.topic(f"%RETRY%{GROUP}")
        (row,) = assigned(world, "a", topic=f"%RETRY%{GROUP}")["messageQueueAssignments"]
        assert row["mode"] == "PULL"
        refused = set_mode(world, 0, topic=f"%RETRY%{GROUP}")
        assert refused.code == ResponseCode.NO_PERMISSION


def test_modes_that_cannot_be(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        assert set_mode(world, 0, topic="Nowhere").code == ResponseCode.TOPIC_NOT_EXIST
        assert set_mode(world, 0, mode="PUSH").code == ResponseCode.INVALID_PARAMETER
        world.config.auto_create_group = False
        unknown = set_mode(world, 0, consumerGroup="Nobody")
        assert unknown.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def test_all_modes_can_be_asked_for(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        set_mode(world, 4)
        command = Command(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, None, opaque=68)
        answer = world.ask(world.client, command)
        assert json.loads(answer.body) == {
            "messageRequestModeMap": {
                TOPIC: {
                    GROUP: {
                        "consumerGroup": GROUP,
                        "mode": "POP",
                        "popShareQueueNum": 4,
                        "topic": TOPIC,
                    }
                }
            }
        }


def test_modes_are_saved_in_rocketmqs_form(tmp_path: Path) -> None:
    table, path = RequestModeTable(), tmp_path / "messageRequestMode.json"
    table.put(RequestMode(topic="T", consumer_group="G", mode="POP", pop_share_queue_num=2))
    path.write_text(StateText().text(table.snapshot()))
    again = RequestModeTable()
    again.load(read_state(path), path)
    mode = again.get("T", "G")
    assert mode is not None
    assert (mode.mode, mode.pop_share_queue_num) == ("POP", 2)
    path.write_text('{"messageRequestModeMap":{"T":{"G":{"mode":[]}}}}')
    with pytest.raises(StateFileError, match="setConsumeMode"):
        again.load(read_state(path), path)


def test_queues_of_other_brokers_come_from_the_name_server(tmp_path: Path) -> None:
    with world_of(tmp_path, "a", queues=1) as world:
        row = QueueData(broker_name="broker-b", read_queue_nums=1, write_queue_nums=1, perm=6)
        blocked = QueueData(broker_name="broker-c", read_queue_nums=1, write_queue_nums=1, perm=2)
        route = TopicRoute(queue_datas=[row, blocked])
        world.context.routes._known[TOPIC] = world.clock.monotonic_ms(), route
        rows = assigned(world, "a")["messageQueueAssignments"]
        assert [MessageQueue(**_plain(one["messageQueue"])) for one in rows] == [
            MessageQueue(TOPIC, "broker-a", 0),
            MessageQueue(TOPIC, "broker-b", 0),
        ]


def _plain(queue: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": queue["topic"],
        "broker_name": queue["brokerName"],
        "queue_id": queue["queueId"],
    }
