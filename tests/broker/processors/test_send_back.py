"""Messages that are given back come again, or end among the dead letters."""

from pathlib import Path

import msgspec
import pytest

from message_replay import (
    MessageWorld,
    recorded_records,
    recorded_requests,
    replay,
    send_command,
)
from orbitmq.store.config import FlushMode
from orbitmq.wire.command import Command


def back(offset: int, *, level: int = 0, group: str = "Cid", **given: object) -> Command:
    fields = {"offset": str(offset), "group": group, "delayLevel": str(level)}
    fields |= {name: str(value) for name, value in given.items()}
    return Command(36, fields, opaque=5, language="JAVA")


def test_the_java_push_consumers_retries_are_stored_as_recorded(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        places = {}
        for request in recorded_requests("java-json/push-consumer", 310):
            replay(world, client, request)
        for queue_id in range(4):
            for record in world.records("GwPushJ", queue_id):
                places[record.unique_key] = record.log_offset
        ids = {}
        for request in recorded_requests("java-json/push-consumer", 36):
            fields = dict(request.fields or {})
            fields["offset"] = str(places[fields["originMsgId"]])
            ids[fields["originMsgId"]] = world.store.record_at(int(fields["offset"])).offset_id
            answer = replay(world, client, Command(36, fields, opaque=5))
            assert (answer.code, answer.fields, answer.remark) == (0, None, None)
        world.later(1_000)
        for topic in ("%RETRY%GwPushCidJ", "%DLQ%GwPushCidJ"):
            (ours,) = world.records(topic)
            (theirs,) = recorded_records("java-json/read-back", topic)
            wanted = {**theirs.property_map, "ORIGIN_MESSAGE_ID": ids[theirs.unique_key]}
            assert ours.property_map == wanted
            assert (ours.reconsume_times, ours.queue_id, ours.body, ours.sys_flag) == (
                theirs.reconsume_times,
                theirs.queue_id,
                theirs.body,
                theirs.sys_flag,
            )


def test_without_a_level_the_wait_grows_with_each_round(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        (record,) = world.records("Orders")
        first_id = record.offset_id
        for wait_ms in (10_000, 30_000, 60_000):  # levels 3, 4, 5
            assert replay(world, client, back(record.log_offset)).code == 0
            count = len(world.records("%RETRY%Cid"))
            world.later(wait_ms - 1)
            assert len(world.records("%RETRY%Cid")) == count
            world.later(1)
            record = world.records("%RETRY%Cid")[-1]
        assert record.reconsume_times == 3
        assert record.property_map["RETRY_TOPIC"] == "Orders"
        assert record.property_map["ORIGIN_MESSAGE_ID"] == first_id


@pytest.mark.feature("F83")
def test_the_seventeenth_failure_lands_among_the_dead_letters(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        (record,) = world.records("Orders")
        for _ in range(16):
            assert world.records("%DLQ%Cid") == []
            replay(world, client, back(record.log_offset, level=1))
            world.later(1_000)
            record = world.records("%RETRY%Cid")[-1]
        replay(world, client, back(record.log_offset, level=1))
        (dead,) = world.records("%DLQ%Cid")
        assert (dead.reconsume_times, dead.body) == (17, b"hello")
        world.store.flush()
        queues = {path.parent.name for path in (tmp_path / "consumequeue").glob("*/*")}
        assert {"Orders", "%RETRY%Cid", "%DLQ%Cid", "SCHEDULE_TOPIC_XXXX"} <= queues


@pytest.mark.parametrize(
    ("version", "limit", "dead"), [(479, 0, 1), (479, 1, 0), (120, 0, 0), (479, None, 0)]
)
def test_the_limit_is_the_consumers_or_the_groups(
    tmp_path: Path, version: int, limit: int | None, dead: int
) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        (record,) = world.records("Orders")
        given = {} if limit is None else {"maxReconsumeTimes": limit}
        request = back(record.log_offset, **given)
        request.version = version
        assert replay(world, client, request).code == 0
        assert len(world.records("%DLQ%Cid")) == dead


def test_what_cannot_be_given_back_is_refused_with_words(tmp_path: Path) -> None:
    with MessageWorld(tmp_path) as world:
        client = world.connect()
        replay(world, client, send_command())
        for offset in (7, 1 << 40, -1, -(1 << 63)):
            answer = replay(world, client, back(offset))
            assert answer.code == 1
            assert answer.remark == f"look message by offset failed, {offset}"
        assert replay(world, client, back(0, group="a b")).code == 26
        assert replay(world, client, Command(36, {"group": "Cid"})).code == 1
        topics, groups = world.context.topics, world.context.groups
        topics.put(msgspec.structs.replace(topics.create_retry("Cid"), perm=4))
        assert replay(world, client, back(0)).code == 16
        groups.put(msgspec.structs.replace(groups.get("Cid"), retry_queue_nums=0))
        assert replay(world, client, back(0)).code == 0
        world.config.take(world.config.changed({"brokerPermission": "4"}))
        assert replay(world, client, back(0)).code == 16
        assert world.records("%RETRY%Cid") == []


def test_sync_flush_answers_when_the_disk_has_it(tmp_path: Path) -> None:
    with MessageWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        client = world.connect()
        world.tell(client, send_command())
        world.store.flush()
        world.turn()
        client.take()
        assert world.tell(client, back(0)) == []
        world.store.flush()
        world.turn()
        assert [answer.code for answer in client.take()] == [0]
        world.tell(client, back(0))
        world.clock.advance(5_000)
        world.backs.flush_wait.look()
        assert [answer.code for answer in client.take()] == [1]
