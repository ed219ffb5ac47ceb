"""Offset resets, and what only consumers themselves can answer."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_world import AdminWorld
from broker_world import FakeConnection
from orbitmq.broker.delivery.long_poll import Parked
from orbitmq.errors import RequestTimeoutError, UnreachableError
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.record import decode_record
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import ConsumerStatus, ResetOffsets
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

RESET = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET


@pytest.fixture
def world(tmp_path: Path) -> Iterator[AdminWorld]:
    with AdminWorld(tmp_path) as world:
        fill(world)
        yield world


def fill(world: AdminWorld) -> None:
    world.topic("T", 2)
    world.context.groups.get_or_create("G")
    for _ in range(3):
        world.append("T", b"x")
        world.clock.advance(1_000)
    for queue_id in (0, 1):
        world.context.offsets.commit("G", "T", queue_id, 1 - queue_id)


def reset(world: AdminWorld, at_ms: int, **given: object) -> Command:
    fields = {"topic": "T", "group": "G", "timestamp": at_ms, "isForce": "true"}
    return world.request(RESET, **{**fields, **given})


def offsets(answer: Command) -> dict[int, int]:
    table = ResetOffsets.decode(answer.body).offset_table
    return {queue.queue_id: offset for queue, offset in table.items()}


def test_reset_by_time_goes_to_the_first_message_since_then(world: AdminWorld) -> None:
    stored = world.store.store_time("T", 0, 1)

    assert offsets(reset(world, stored)) == {0: 1, 1: 0}
    assert offsets(reset(world, -1)) == {0: 3, 1: 0}
    assert offsets(reset(world, 0, queueId=0)) == {0: 0}
    assert offsets(reset(world, 0, queueId=0, offset=2)) == {0: 2}
    assert world.context.offsets.get("G", "T", 0) == 2


def test_reset_is_pending_until_a_pull_takes_it(world: AdminWorld) -> None:
    reset(world, -1, queueId=0)

    world.context.offsets.commit("G", "T", 0, 1)  # of a consumer that does not know yet

    assert world.context.offsets.get("G", "T", 0) == 3
    assert world.context.offsets.take_reset("G", "T", 0) == 3


def test_reset_wakes_parked_pulls_of_its_queues(world: AdminWorld) -> None:
    woken: list[int] = []

    def attempt(parked: Parked, last: bool) -> bool:
        woken.append(parked.queue_id)
        return True

    for queue_id in (0, 1):
        connection = world.connect()
        parked = Parked(connection, "T", queue_id, 3, 1e12, attempt)  # type: ignore[arg-type]
        world.context.long_poll.park(parked)

    reset(world, -1, queueId=1)

    assert woken == [1]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"topic": "Nope"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "Nope"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queueId": 9}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 0, "offset": 5}, ResponseCode.SYSTEM_ERROR),
        ({"queueId": 0, "offset": -2}, ResponseCode.SYSTEM_ERROR),
        ({"timestamp": "yesterday"}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_reset_that_cannot_be_changes_nothing(
    world: AdminWorld, given: dict[str, object], code: int
) -> None:
    answer = reset(world, 0, **given)

    assert answer.code == code
    assert answer.remark
    assert world.context.offsets.get("G", "T", 0) == 1


def test_clients_are_told_where_the_server_does_not_reset(tmp_path: Path) -> None:
    with AdminWorld(tmp_path, server_side_reset=False) as world:
        fill(world)
        assert reset(world, -1).code == ResponseCode.CONSUMER_NOT_ONLINE
        java = world.consumer("G", "T", client_id="j")
        cpp = world.consumer("G", "T", client_id="c", language="CPP")
        java.take()

        answer = reset(world, -1, isForce="false")

        assert offsets(answer) == {0: 1, 1: 0}  # not beyond where the group is
        (told,) = java.take()
        assert (told.code, told.is_oneway) == (RequestCode.RESET_CONSUMER_CLIENT_OFFSET, True)
        assert (told.fields or {})["group"] == "G"
        assert offsets(told) == {0: 1, 1: 0}
        assert json.loads(cpp.take()[-1].body)["offsetTable"][0] == {
            "brokerName": "broker-a",
            "offset": 1,
            "queueId": 0,
            "topic": "T",
        }
        assert reset(world, -1, topic="Nope").code == ResponseCode.TOPIC_NOT_EXIST
        assert reset(world, -1, group="Unread").code == ResponseCode.SYSTEM_ERROR


# Asking consumers


def begin(world: AdminWorld, code: int, **fields: str) -> Command:
    """Send a tool's request that waits for a consumer."""
    request = Command(code, dict(fields), opaque=9)
    world.handler.on_commands(world.tool, [request])  # type: ignore[arg-type]
    world.turn()
    return request


def asked(connection: FakeConnection) -> Command:
    (command,) = connection.take()
    return command


def answered(world: AdminWorld, connection: FakeConnection, result: Command | Exception) -> Command:
    """Let a consumer answer, and return what the tool gets."""
    _, future = connection.requests.pop()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    world.turn()
    (answer,) = world.tool.take()
    return answer


@pytest.fixture
def loop(world: AdminWorld) -> Iterator[None]:
    import asyncio

    asyncio.set_event_loop(world.loop)
    yield
    asyncio.set_event_loop(None)


@pytest.mark.usefixtures("loop")
def test_running_info_comes_from_the_consumer_untouched(world: AdminWorld) -> None:
    consumer = world.consumer("G", "T")
    given = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "true"}
    begin(world, RequestCode.GET_CONSUMER_RUNNING_INFO, **given)

    assert asked(consumer).fields == given
    answer = answered(world, consumer, Command(0, None, b'{"odd":{1:2}}', remark="so"))

    assert (answer.code, answer.remark, answer.body) == (0, "so", b'{"odd":{1:2}}')
    assert answer.opaque == 9


@pytest.mark.usefixtures("loop")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RequestTimeoutError("p", "no answer"), ResponseCode.CONSUME_MSG_TIMEOUT),
        (UnreachableError("p", "gone"), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_consumer_that_does_not_answer_is_told_to_the_tool(
    world: AdminWorld, error: Exception, code: int
) -> None:
    consumer = world.consumer("G", "T")
    begin(world, RequestCode.GET_CONSUMER_RUNNING_INFO, consumerGroup="G", clientId="c1")
    asked(consumer)

    answer = answered(world, consumer, error)

    assert answer.code == code
    assert "<G> <c1>" in (answer.remark or "")


def test_old_or_absent_consumers_are_not_asked(world: AdminWorld) -> None:
    world.consumer("G", "T", client_id="old", version=61)
    info = RequestCode.GET_CONSUMER_RUNNING_INFO

    assert "too low" in (world.request(info, consumerGroup="G", clientId="old").remark or "")
    assert "not online" in (world.request(info, consumerGroup="G", clientId="c9").remark or "")
    directly = world.request(RequestCode.CONSUME_MESSAGE_DIRECTLY, consumerGroup="G")
    assert directly.remark == "The Consumer <G> <None> not online"


@pytest.mark.usefixtures("loop")
def test_stored_message_is_given_to_the_consumer_to_consume_now(world: AdminWorld) -> None:
    consumer = world.consumer("G", "T")
    (stored,) = world.append("T", b"consume me")
    message_id = encode_offset_id(world.context.store_host, stored.log_offset)
    directly = RequestCode.CONSUME_MESSAGE_DIRECTLY
    given = {"consumerGroup": "G", "clientId": "c1", "topic": "T"}

    begin(world, directly, **given, msgId=message_id)
    got = asked(consumer)

    assert decode_record(got.body).body == b"consume me"
    assert got.fields == given | {
        "msgId": message_id,
        "brokerName": "broker-a",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }
    answered(world, consumer, Command(0, None, b"{}"))
    nowhere = encode_offset_id(world.context.store_host, 1 << 40)
    assert "no message" in (world.request(directly, **given, msgId=nowhere).remark or "")
    assert "no offset id" in (world.request(directly, **given, msgId="xyz").remark or "")


@pytest.mark.usefixtures("loop")
def test_offsets_of_consumers_are_gathered_from_those_that_answer(world: AdminWorld) -> None:
    consumers = [world.consumer("G", "T", client_id=name) for name in ("a", "b")]
    status = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    begin(world, status, topic="T", group="G")
    own = {MessageQueue("T", "broker-a", 0): 2}
    for consumer in consumers:
        consumer.take()

    consumers[0].requests[0][1].set_result(
        Command(0, None, ConsumerStatus(message_queue_table=own).encode())
    )
    world.turn()
    assert world.tool.take() == []
    answer = answered(world, consumers[1], RequestTimeoutError("p", "no answer"))

    assert answer.code == 0
    assert ConsumerStatus.decode(answer.body).consumer_table == {"a": own}
    assert b'"a":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:2}' in answer.body
    begin(world, status, topic="T", group="G", clientAddr="b")
    assert not consumers[0].take()
    answered(world, consumers[1], Command(1, None))
