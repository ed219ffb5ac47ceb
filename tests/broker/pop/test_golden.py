"""What RocketMQ's pop consumer asked RocketMQ's broker, asked of ours: the answers say the same."""

from pathlib import Path
from typing import Any

import pytest

from golden_frames import Frame, good_frames
from live_broker import records_of
from orbitmq.broker.processors.assignment import AssignmentProcessor
from orbitmq.broker.processors.clients import ClientsProcessor
from orbitmq.broker.processors.offsets import OffsetsProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.topics_admin import TopicsAdminProcessor
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command, Encoding
from orbitmq.wire.receipt import Receipt
from pop_world import GROUP, PopWorld

PLAYED = (17, 310, 34, 400, 401, Code.POP_MESSAGE, Code.ACK_MESSAGE, 200053)
TIMES = ("popTime", "reviveQid")


def conversation(name: str) -> list[tuple[Frame, Frame]]:
    """Return requests to the broker with their answers, in the order of the answers' times."""
    frames = [frame for frame in good_frames(name) if frame.role == "broker"]
    asked = {(f.conn, f.command.opaque): f for f in frames if f.to_server}
    pairs = [
        (asked[f.conn, f.command.opaque], f)
        for f in frames
        if f.command.is_response and not f.to_server and (f.conn, f.command.opaque) in asked
    ]
    return [pair for pair in pairs if pair[0].command.code in PLAYED]


def said(answer: Command) -> dict[str, Any]:
    """Return what an answer says apart from times; queues come in any order."""
    fields = {name: text for name, text in (answer.fields or {}).items() if name not in TIMES}
    for name in ("startOffsetInfo", "msgOffsetInfo"):
        if name in fields:
            fields[name] = ";".join(sorted(fields[name].split(";")))
    return {"code": answer.code, "remark": answer.remark, "fields": fields}


def messages(answer: Command) -> list[tuple[Any, ...]]:
    return sorted(
        (one.body, one.topic, one.queue_id, one.queue_offset, one.reconsume_times)
        for one in records_of(answer)
    )


def test_the_recorded_conversation(tmp_path: Path) -> None:
    pairs = conversation("java-json/pop-consumer")
    pops = [pair for pair in pairs if pair[0].command.code == Code.POP_MESSAGE]
    assert len(pops) == 3
    clock = FakeClock(int((pops[0][1].command.fields or {})["popTime"]) - 3_000)
    with PopWorld(tmp_path, clock=clock, pop_retry_percent=0) as world:
        world.route(
            SendProcessor(world.context),
            TopicsAdminProcessor(world.context),
            ClientsProcessor(world.context),
            OffsetsProcessor(world.context),
            AssignmentProcessor(world.context),
        )
        clients = {frame.conn: world.connect() for pair in pairs for frame in pair}
        revive_queues: dict[str, str] = {}
        for asked, answered in pairs:
            request = asked.command
            fields = answered.command.fields or {}
            if "popTime" in fields:
                behind_ms = int(fields["popTime"]) - clock.now_ms()
                world.pass_time(max(behind_ms - 100, 0))
                clock.set_now_ms(int(fields["popTime"]))
            if request.fields and "extraInfo" in request.fields:
                receipt = Receipt.parse(request.fields["extraInfo"])
                own = receipt._replace(revive_queue=int(revive_queues[str(receipt.pop_ms)]))
                request.fields["extraInfo"] = own.text
            answer = world.ask(clients[asked.conn], request)
            world.settle()
            if request.code in (17, 34, 310):
                assert answer.code == 0
                continue
            assert said(answer) == said(answered.command), asked
            if request.code == Code.POP_MESSAGE:
                revive_queues[fields["popTime"]] = (answer.fields or {})["reviveQid"]
                assert messages(answer) == messages(answered.command)
            else:
                assert answer.body == answered.command.body


def test_the_recorded_refusals(tmp_path: Path) -> None:
    codes = (Code.POP_MESSAGE, Code.ACK_MESSAGE, Code.NOTIFICATION, Code.POLLING_INFO, 200052)
    frames = [f for f in good_frames("raw/answers") if f.request_code in codes]
    requests = [f.command for f in frames if f.to_server]
    answers = {f.command.opaque: f.command for f in frames if not f.to_server}
    compared = 0
    with PopWorld(tmp_path, clock=FakeClock(1794770479900), host="127.0.0.2") as world:
        world.topic("GwBasicJ", 4)
        world.topic("GwCreatedJ", 4)
        world.send(*"123456789", topic="GwBasicJ")
        world.context.groups.get_or_create("GwPopRaw")
        for request in requests:
            if (request.fields or {}).get("topic") == "GwCreatedJ":
                continue  # it waits
            theirs, ours = answers[request.opaque], world.ask(world.client, request)
            assert ours.code == theirs.code, request
            if theirs.code not in (0, 1):
                mine, other = said(ours), said(theirs)
                mine["remark"], other["remark"] = (
                    text["remark"].partition(" consumer:")[0] for text in (mine, other)
                )
                assert mine == other
            elif request.code in (Code.NOTIFICATION, Code.POLLING_INFO):
                assert said(ours) == said(theirs)
            compared += 1
    assert compared == 10


@pytest.mark.parametrize("half", [3442, 200050])
def test_half_of_a_code_is_enough_in_a_binary_header(tmp_path: Path, half: int) -> None:
    with PopWorld(tmp_path) as world:
        world.send("a")
        command = world.pop_command()
        command.code, command.encoding = half, Encoding.BINARY
        assert world.ask(world.client, command).code == 0
        plain = world.pop_command()
        plain.code = 3442
        assert world.ask(world.client, plain).code == 3


def test_bodies_of_check_points_and_acks_are_fastjsons(tmp_path: Path) -> None:
    """As RocketMQ 5.3.3 writes them: members in alphabetical order, the sum of two among them."""
    with PopWorld(tmp_path) as world:
        world.send("a", "b", "c")
        taken = world.pop()
        world.ack(taken.messages[2])
        now = taken.answer.pop_time
        (_, point), (_, ack) = world.written()
        assert point.body.decode() == (
            f'{{"bm":0,"bn":"broker-a","c":"{GROUP}","d":[0,1,2],"it":10000,"n":3,"pt":{now},"q":0,'
            f'"reviveTime":{now + 10_000},"ro":0,"so":0,"t":"Orders"}}'
        )
        assert ack.body.decode() == (
            f'{{"ao":2,"bn":"broker-a","c":"{GROUP}","pt":{now},"q":0,"so":0,"t":"Orders"}}'
        )
