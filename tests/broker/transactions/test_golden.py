"""The recorded conversations of RocketMQ's transactional producers, played to our broker."""

from pathlib import Path

import pytest
from msgspec.structs import replace as changed

from golden_frames import good_frames
from message_replay import SENDS, recorded_records, replay, without_port
from orbitmq.format.record import Record, decode_record
from orbitmq.wire.command import Command
from transaction_world import HALF_TOPIC, TransactionWorld

KINDS = [("java-json", "J"), ("java-binary", "B")]
AGE_MS = 8_900  # of the half messages when the recorded broker asked
BROKER_OWN = {"commitLogOffset", "offsetMsgId", "tranStateTableOffset"}


def play(world: TransactionWorld, kind: str) -> tuple[list[Command], list[Command]]:
    """Play a recording; return the questions of the recorded broker and those of ours."""
    theirs: list[Command] = []
    ours: list[Command] = []
    places: dict[str, str] = {}  # log offset there -> log offset here
    connections = {}
    answers = {}
    for frame in good_frames(f"{kind}/transaction"):
        command = frame.command
        if frame.role != "broker":
            continue
        client = connections.setdefault(frame.conn, world.connect())
        if frame.to_server and command.code in (*SENDS, 34):
            answers[command.opaque] = replay(world, client, command)
        elif frame.to_server and command.code == 37:
            fields = dict(command.fields or {})
            fields["commitLogOffset"] = places[fields["commitLogOffset"]]
            fields["tranStateTableOffset"] = str(int(fields["tranStateTableOffset"]) - first(kind))
            assert replay(world, client, changed(command, fields=fields)) is None  # one-way
        elif command.is_response and frame.request_code in SENDS:
            answer, wanted = answers[command.opaque], command.fields or {}
            assert (answer.code, answer.remark) == (command.code, without_port(command.remark))
            offset = str(int(answer.fields["queueOffset"]) + first(kind))
            ours_there = {**answer.fields, "msgId": wanted["msgId"], "queueOffset": offset}
            assert ours_there == wanted
            places[str(int(wanted["msgId"][16:], 16))] = str(int(answer.fields["msgId"][16:], 16))
        elif command.code == 39:
            if not theirs:
                world.round(AGE_MS)
                ours = [one for each in connections.values() for one in each.take()]
            theirs.append(command)
            question = ours[len(theirs) - 1]
            places[command.fields["commitLogOffset"]] = question.fields["commitLogOffset"]
    return theirs, ours


def first(kind: str) -> int:
    """Return how many half messages the recorded broker had before."""
    answers = (f.command for f in good_frames(f"{kind}/transaction") if f.request_code == 310)
    return min(int(one.fields["queueOffset"]) for one in answers if one.is_response)


def content(record: Record, before: int = 0) -> tuple[object, ...]:
    """Return what a message is, without where and when it was stored."""
    return (
        record.topic,
        record.queue_id,
        record.queue_offset - before,
        record.flag,
        record.sys_flag,
        record.born_ms,
        record.reconsume_times,
        record.body,
        record.property_map,
    )


@pytest.mark.parametrize(("kind", "letter"), KINDS)
def test_a_java_producer_is_answered_and_asked_as_recorded(
    tmp_path: Path, kind: str, letter: str
) -> None:
    born_ms = [int((f.command.fields or {})["g"]) for f in sends(kind)]
    with TransactionWorld(tmp_path, transaction_check_ms=4_000) as world:
        world.clock.set_now_ms(born_ms[-1])
        theirs, ours = play(world, kind)
        assert len(ours) == len(theirs) == 2
        for asked, wanted in zip(ours, theirs, strict=True):
            assert {k: v for k, v in asked.fields.items() if k not in BROKER_OWN} == {
                k: v for k, v in wanted.fields.items() if k not in BROKER_OWN
            }
            assert (asked.code, asked.flag) == (wanted.code, wanted.flag)
            theirs_here = content(decode_record(wanted.body), first(kind))
            assert content(decode_record(asked.body)) == theirs_here
            assert int(wanted.fields["tranStateTableOffset"]) - first(kind) == int(
                asked.fields["tranStateTableOffset"]
            )
            assert len(asked.body) == len(wanted.body)
        seen = [record for queue in range(4) for record in world.records(f"GwTrans{letter}", queue)]
        wanted_seen = recorded_records(f"{kind}/read-back", f"GwTrans{letter}")
        assert len(wanted_seen) == 2
        by_place = sorted(wanted_seen, key=lambda record: (record.queue_id, record.queue_offset))
        assert [content(record) for record in seen] == [content(record) for record in by_place]
        halves = {record.log_offset: record for record in world.records(HALF_TOPIC)}
        for record in seen:
            assert halves[record.prepared_offset].properties == record.properties


def sends(kind: str) -> list:
    """Return the recorded half messages."""
    return [f for f in good_frames(f"{kind}/transaction") if f.to_server and f.command.code == 310]
