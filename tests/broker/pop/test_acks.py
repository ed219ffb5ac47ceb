"""Acks, batch acks and renewals: what is refused, what they leave, when they are safe."""

import base64
import json
from pathlib import Path

import pytest

from orbitmq.broker.pop.check_point import decode_ack
from orbitmq.message import AppendResult, AppendStatus
from orbitmq.store.config import FlushMode
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.receipt import ORDER_QUEUE
from pop_world import GROUP, INVISIBLE_MS, TOPIC, Message, PopWorld


def batch_ack(world: PopWorld, *messages: Message, broker: str = "broker-a") -> Command:
    bits = bytearray(8)
    receipt = messages[0].receipt
    for message in messages:
        place = message.receipt.offset - receipt.start_offset
        bits[place // 8] |= 1 << place % 8
    one = {
        "c": GROUP,
        "t": TOPIC,
        "r": receipt.kind,
        "so": receipt.start_offset,
        "q": receipt.queue_id,
        "rq": receipt.revive_queue,
        "pt": receipt.pop_ms,
        "it": receipt.invisible_ms,
        "b": base64.b64encode(bits).decode(),
    }
    body = json.dumps({"brokerName": broker, "acks": [one]}).encode()
    return world.ask(world.client, Command(RequestCode.BATCH_ACK_MESSAGE, {}, body, opaque=800))


def test_a_batch_ack_is_one_record(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abcde")
        taken = world.pop()
        assert batch_ack(world, *taken.messages[1:4]).code == 0
        _, (due_ms, record) = world.written()
        ack = decode_ack(record.body)
        assert (ack.offsets, record.tags) == ([1, 2, 3], "bAck")
        assert due_ms == taken.answer.pop_time + INVISIBLE_MS
        world.pass_time(INVISIBLE_MS + 4_000)
        assert world.pop().bodies == ["a", "e"]


def test_a_batch_ack_of_ordered_messages(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        taken = world.pop(order=True)
        assert taken.messages[0].receipt.revive_queue == ORDER_QUEUE
        assert batch_ack(world, *taken.messages).code == 0
        assert world.committed() == 3


def test_a_batch_ack_in_the_buffer(tmp_path: Path) -> None:
    with PopWorld(tmp_path, pop_buffer=True) as world:
        world.send(*"abc")
        taken = world.pop(invisible_time=60_000)
        assert batch_ack(world, *taken.messages).code == 0
        assert world.committed() == 3
        assert world.written() == []


def test_a_batch_ack_of_messages_that_came_again(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        world.pop()
        world.pass_time(INVISIBLE_MS + 4_000)
        again = world.pop()
        assert batch_ack(world, *again.messages).code == 0
        world.pass_time(INVISIBLE_MS + 4_000)
        assert world.pop().bodies == []


def test_acks_of_one_pop_that_come_together_are_one_record(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abcde")
        taken = world.pop()
        commands = [world.ack_command(taken.messages[place]) for place in (3, 1, 2, 1)]
        answers = world.tell(world.client, *commands)
        assert [(one.opaque, one.code) for one in answers] == [(one.opaque, 0) for one in commands]
        _, (due_ms, record) = world.written()
        assert (decode_ack(record.body).offsets, record.tags) == ([3, 1, 2], "bAck")
        assert due_ms == taken.answer.pop_time + INVISIBLE_MS
        assert world.engine.in_flight.count((GROUP, TOPIC, 0)) == 2
        world.pass_time(INVISIBLE_MS + 4_000)
        assert world.pop().bodies == ["a", "e"]


def test_acks_of_several_pops_that_come_together(tmp_path: Path) -> None:
    with PopWorld(tmp_path, queues=2) as world:
        world.send(*"ab", queue_id=0)
        world.send(*"cd", queue_id=1)
        messages = [*world.pop(max_msg_nums=1).messages, *world.pop().messages]
        assert len(messages) == 4
        codes = [one.code for one in world.tell(world.client, *map(world.ack_command, messages))]
        assert codes == [0] * 4
        world.pass_time(INVISIBLE_MS + 4_000)
        assert world.pop().bodies == []


def test_an_ack_that_is_refused_does_not_keep_others_from_theirs(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        messages = world.pop().messages
        commands = [world.ack_command(one) for one in messages]
        wrong = [dict(commands[1].fields or {}) for _ in range(4)]
        wrong[0]["offset"] = "77"
        wrong[1]["topic"] = "Nowhere"
        wrong[2]["extraInfo"] = wrong[2]["extraInfo"].rpartition(" ")[0] + " x"
        del wrong[3]["queueId"]
        bad = [Command(RequestCode.ACK_MESSAGE, one, opaque=90 + n) for n, one in enumerate(wrong)]
        answers = world.tell(world.client, commands[0], *bad, commands[2])
        assert {one.opaque: one.code for one in answers} == {
            commands[0].opaque: 0,
            90: ResponseCode.NO_MESSAGE,
            91: ResponseCode.TOPIC_NOT_EXIST,
            92: ResponseCode.SYSTEM_ERROR,
            93: ResponseCode.SYSTEM_ERROR,
            commands[2].opaque: 0,
        }
        _, (_, record) = world.written()
        assert decode_ack(record.body).offsets == [0, 2]


def test_ordered_acks_that_come_together_are_judged_one_by_one(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abcd")
        messages = world.pop(order=True, max_msg_nums=2).messages
        strange = Message(messages[0].record, messages[0].receipt._replace(offset=3))
        commands = [world.ack_command(one) for one in (messages[0], strange, messages[1])]
        codes = [one.code for one in world.tell(world.client, *commands)]
        assert codes == [0, ResponseCode.MESSAGE_ILLEGAL, 0]
        assert world.committed() == 2


def test_acks_that_come_together_and_are_not_stored_are_all_refused(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send(*"abc")
        messages = world.pop().messages
        world.refused = AppendResult(AppendStatus.OS_PAGE_CACHE_BUSY, reason="busy")
        answers = world.tell(world.client, *map(world.ack_command, messages))
        assert [one.code for one in answers] == [ResponseCode.SYSTEM_ERROR] * 3
        assert world.engine.in_flight.count((GROUP, TOPIC, 0)) == 3


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", ResponseCode.NO_MESSAGE),
        (b"{}", ResponseCode.NO_MESSAGE),
        (b'{"acks":[]}', ResponseCode.NO_MESSAGE),
        (b'{"acks":[{"c":"g"}]}', ResponseCode.SYSTEM_ERROR),
        (b"[", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_batch_acks_that_say_nothing(tmp_path: Path, body: bytes, code: int) -> None:
    with PopWorld(tmp_path) as world:
        command = Command(RequestCode.BATCH_ACK_MESSAGE, {}, body, opaque=1)
        assert world.ask(world.client, command).code == code


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic": "Nowhere"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": "1"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"queueId": "-1"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"offset": "3"}, ResponseCode.NO_MESSAGE),
        ({"offset": "-1"}, ResponseCode.NO_MESSAGE),
        ({"extraInfo": "x"}, ResponseCode.SYSTEM_ERROR),
        ({"consumerGroup": "a\x02b"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 1 1 0 0 broker\x01a 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 1 1 77 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({"extraInfo": "0 1_0 1 0 0 broker-a 0 0"}, ResponseCode.SYSTEM_ERROR),
        ({}, ResponseCode.SUCCESS),
    ],
)
@pytest.mark.parametrize(
    "request_code", [RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME]
)
def test_what_is_checked(
    tmp_path: Path, request_code: int, fields: dict[str, str], code: int
) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b")
        message = world.pop().messages[0]
        good = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "offset": "0",
            "extraInfo": message.receipt.text,
            "invisibleTime": "5000",
        }
        answer = world.ask(world.client, Command(request_code, {**good, **fields}, opaque=3))
        assert answer.code == code
        assert "FormatError" not in (answer.remark or "")


def test_a_group_that_no_check_point_can_name_pops_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        answer = world.ask(world.client, world.pop_command(consumer_group="a\x02b"))
        assert answer.code == ResponseCode.INVALID_PARAMETER


def test_an_ack_after_the_message_came_again_changes_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        late = world.pop()
        world.pass_time(INVISIBLE_MS + 4_000)
        assert world.ack(late.messages[0]).code == 0
        world.pass_time(4_000)
        assert world.pop().bodies == ["a"]


def test_an_ack_that_comes_late_and_in_time_counts(tmp_path: Path) -> None:
    with PopWorld(tmp_path, revive_ms=60_000) as world:
        world.send("a")
        world.work()
        late = world.pop()
        world.pass_time(INVISIBLE_MS + 1_000)
        world.ack(late.messages[0])
        world.pass_time(100_000)
        assert world.pop().bodies == []


def test_an_ack_is_answered_when_the_disk_has_it(tmp_path: Path) -> None:
    with PopWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        world.send("a")
        message = world.pop().messages[0]
        fields = {
            "consumerGroup": GROUP,
            "topic": TOPIC,
            "queueId": "0",
            "offset": "0",
            "extraInfo": message.receipt.text,
        }
        command = Command(RequestCode.ACK_MESSAGE, fields, opaque=9)
        world.handler.on_commands(world.client, [command])  # type: ignore[list-item,arg-type]
        assert world.client.take() == []
        world.store.flush()
        world.turn()
        (answer,) = world.client.take()
        assert (answer.opaque, answer.code) == (9, 0)


def test_peeking_takes_nothing(tmp_path: Path) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a", "b", "c")
        fields = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0", "maxMsgNums": "2"}
        for _ in range(2):
            answer = world.ask(world.client, Command(RequestCode.PEEK_MESSAGE, fields, opaque=4))
            assert (answer.code, (answer.fields or {})["restNum"]) == (0, "3")
        assert world.pop().bodies == ["a", "b", "c"]
        answer = world.ask(world.client, Command(RequestCode.PEEK_MESSAGE, fields, opaque=4))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
