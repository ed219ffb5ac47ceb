"""Pops that wait: who is woken by what, limits, deadlines; notifications; how many wait."""

from pathlib import Path

import pytest

from broker_world import FakeConnection
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from pop_world import GROUP, INVISIBLE_MS, TOPIC, PopWorld


def notify(
    world: PopWorld, client: FakeConnection, opaque: int = 900, **given: str
) -> list[Command]:
    fields = {
        "consumerGroup": GROUP,
        "topic": TOPIC,
        "queueId": "-1",
        "pollTime": "5000",
        "bornTime": str(world.clock.now_ms()),
    }
    command = Command(RequestCode.NOTIFICATION, {**fields, **given}, opaque=opaque)
    world.handler.on_commands(client, [command])  # type: ignore[list-item,arg-type]
    world.turn()
    return client.take()


def polling(world: PopWorld, queue_id: int = -1) -> int:
    fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id)}
    answer = world.ask(world.connect(), Command(RequestCode.POLLING_INFO, fields, opaque=5))
    assert answer.code == 0
    return int((answer.fields or {})["pollingNum"])


def test_a_pop_waits_for_a_message(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        parked = world.park()
        assert polling(world) == 1
        world.send("a")
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["a"]
        assert polling(world) == 0


def test_a_pop_of_one_queue_waits_for_that_queue(tmp_path: Path) -> None:
    with PopWorld(tmp_path, queues=2) as world:
        parked = world.park(queue_id=1)
        assert polling(world, 1) == 1
        world.send("a", queue_id=0)
        assert world.parked_answer(parked) is None
        world.send("b", queue_id=1)
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["b"]


@pytest.mark.parametrize("newer", [False, True])
def test_a_pop_that_waits_is_woken_by_a_retry(tmp_path: Path, newer: bool) -> None:
    """With the older names RocketMQ's own pops wait for their deadline."""
    with PopWorld(tmp_path, retry_topic_v2=newer, retry_topic_both=False) as world:
        world.send("a")
        world.pop()
        parked = world.park(poll_time=60_000)
        world.pass_time(INVISIBLE_MS + 3_000)
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["a"]


def test_one_message_wakes_one_pop(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        others = [world.connect() for _ in range(3)]
        parked = [world.park(client) for client in others]
        world.send("a")
        answers = [
            world.parked_answer(command, client)
            for command, client in zip(parked, others, strict=True)
        ]
        assert [answer and answer.bodies for answer in answers] == [["a"], None, None]


def test_messages_that_are_left_wake_the_next(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        others = [world.connect() for _ in range(3)]
        parked = [world.park(client, max_msg_nums=1) for client in others]
        world.send("a", "b")
        answers = [
            world.parked_answer(command, client)
            for command, client in zip(parked, others, strict=True)
        ]
        assert [answer and answer.bodies for answer in answers] == [["a"], ["b"], None]


def test_a_filter_leaves_a_pop_waiting(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        parked = world.park(exp="x", exp_type="TAG")
        world.send("a", TAGS="y")
        assert world.parked_answer(parked) is None
        world.send("b", TAGS="x")
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.bodies == ["b"]


def test_a_pop_is_answered_at_its_deadline(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        parked = world.park(poll_time=5_000)
        world.clock.advance(4_999)
        world.pops.polls.deadlines.expire()
        assert world.parked_answer(parked) is None
        world.clock.advance(1)
        world.pops.polls.deadlines.expire()
        answer = world.parked_answer(parked)
        assert answer is not None
        assert (answer.code, answer.remark) == (
            *(ResponseCode.POLLING_TIMEOUT, "NO_MESSAGE_IN_QUEUE"),
        )
        assert answer.answer.start_offset_info == answer.answer.msg_offset_info == ""


def test_too_many_waiting_pops_of_one_queue_are_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_polls_each=0) as world:
        world.park()
        assert world.pop(poll_time=15_000).code == ResponseCode.POLLING_FULL


def test_too_many_waiting_pops_are_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_polls_max=1) as world:
        world.park()
        refused = world.pop(poll_time=15_000, consumer_group="Other")
        assert refused.code == ResponseCode.POLLING_FULL


def test_a_closed_connection_is_forgotten(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        gone = world.connect()
        world.park(gone)
        world.disconnect(gone)
        assert polling(world) == 0
        world.send("a")
        assert world.pop().bodies == ["a"]


def test_a_pop_on_its_way_for_too_long_takes_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        now = world.clock.now_ms()
        late = world.pop(born_time=now - 5_501, poll_time=5_000)
        assert (late.code, late.bodies) == (ResponseCode.POLLING_TIMEOUT, [])
        assert world.pop(born_time=now - 5_500, poll_time=5_000).bodies == ["a"]


def test_a_stop_answers_those_who_wait_and_takes_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        parked = world.park()
        world.context.stopping = True
        world.context.long_poll.stop()
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.code == ResponseCode.POLLING_TIMEOUT


def test_a_deleted_topic_answers_those_who_wait(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        parked = world.park()
        world.context.topics.delete(TOPIC)
        world.context.long_poll.wake(TOPIC)
        answer = world.parked_answer(parked)
        assert answer is not None
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


def test_a_notification_tells_at_once_what_is_there(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        (answer,) = notify(world, world.client)
        assert (answer.fields, answer.remark) == (
            {"hasMsg": "true", "pollingFull": "false"},
            "not set any response code",
        )
        assert world.pop().bodies == ["a"]  # nothing was taken


def test_a_notification_waits_for_messages_and_for_retries(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        assert notify(world, world.client) == []
        world.send("a")
        assert [answer.fields for answer in world.client.take()] == [
            {"hasMsg": "true", "pollingFull": "false"}
        ]
        world.pop()
        assert notify(world, world.client, pollTime="60000") == []
        world.pass_time(INVISIBLE_MS + 3_000)
        assert len(world.client.take()) == 1


def test_a_notification_is_answered_at_its_deadline(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        assert notify(world, world.client) == []
        world.clock.advance(5_000)
        world.pops.notices.deadlines.expire()
        (answer,) = world.client.take()
        assert (answer.fields or {})["hasMsg"] == "false"


def test_a_blocked_queue_is_no_news_for_an_ordered_group(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        taken = world.pop(order=True, max_msg_nums=1)
        assert notify(world, world.client, order="true") == []
        world.ack(taken.messages[0])
        world.turn()
        assert [(one.fields or {})["hasMsg"] for one in world.client.take()] == ["true"]


def test_too_many_notifications_are_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_polls_max=1) as world:
        assert notify(world, world.client, 1) == []
        (answer,) = notify(world, world.client, 2)
        assert answer.fields == {"hasMsg": "false", "pollingFull": "true"}
