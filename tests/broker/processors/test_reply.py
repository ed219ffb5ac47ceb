"""Replies go to who asked and into the log; repliers hear of both."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_world import FakeConnection
from golden_frames import good_frames
from message_replay import (
    MessageWorld,
    recorded,
    recorded_records,
    replay,
    send_command,
    without_port,
)
from orbitmq.broker.processors.reply import ReplyProcessor
from orbitmq.broker.tables.clients import ClientConnection
from orbitmq.errors import RequestTimeoutError, UnreachableError
from orbitmq.format.properties import decode_properties
from orbitmq.message import AppendRequest, AppendResult, SysFlag
from orbitmq.store.config import FlushMode
from orbitmq.wire.command import Command, Encoding

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
REQUESTER = "10.77.0.5@requester"


class ReplyWorld(MessageWorld):
    """A broker that passes replies on."""

    def __init__(self, root: Path, **given: object) -> None:
        super().__init__(root, **given)
        self.replies = ReplyProcessor(self.context)
        self.route(self.replies)
        asyncio.set_event_loop(self.loop)

    def requester(self, client_id: str = REQUESTER, *groups: str) -> FakeConnection:
        """Put a producer online that waits for replies."""
        connection = self.connect()
        for group in groups or ("Pid",):
            client = ClientConnection(connection, client_id, "JAVA", 479, 0)  # type: ignore[arg-type]
            self.context.producers.register(group, client)
        return connection

    def pushed(self, requester: FakeConnection, answer: Command | Exception) -> Command:
        """Return the reply that a requester was given, and let it answer."""
        command, future = requester.requests.pop(0)
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        self.turn()
        return command


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplyWorld]:
    with ReplyWorld(tmp_path) as world:
        yield world
    asyncio.set_event_loop(None)


def reply(to: str | None = REQUESTER, body: bytes = b"pong", **given: object) -> Command:
    properties = "MSG_TYPE\x01reply\x02CORRELATION_ID\x01c-1\x02TTL\x018000\x02UNIQ_KEY\x01K\x02"
    if to is not None:
        properties += f"REPLY_TO_CLIENT\x01{to}\x02"
    return send_command(REPLY_TOPIC, body, code=325, properties=properties, **given)


def ok() -> Command:
    return Command(0)


@pytest.mark.parametrize("encoding", ["java-json", "java-binary"])
def test_recorded_replies_are_answered_pushed_and_stored_as_recorded(
    world: ReplyWorld, encoding: str
) -> None:
    name = f"{encoding}/request-reply"
    suffix = "J" if encoding == "java-json" else "B"
    requester, replier = world.requester(), world.connect()
    if suffix == "B":
        requester.encoding = Encoding.BINARY
    pushes = {}
    for request, answer in recorded(name, 325):
        told = world.tell(replier, request.command)
        if requester.requests:
            assert told == []  # the requester has not said yet that it has it
            push = world.pushed(requester, ok())
            pushes[(push.fields or {})["bornTimestamp"]] = push
            told = replier.take()
        (ours,), theirs = told, answer.command
        assert (ours.code, ours.remark) == (theirs.code, theirs.remark)
        assert (ours.fields or {}).keys() == (theirs.fields or {}).keys()
        assert ours.encoding is request.command.encoding
    recorded_pushes = [f.command for f in good_frames(name) if f.command.code == 326]
    assert len(pushes) == len(recorded_pushes) == 2
    for theirs in recorded_pushes:
        wanted = dict(theirs.fields or {})
        ours_fields = dict(pushes[wanted["bornTimestamp"]].fields or {})
        for changing in ("storeTimestamp", "bornHost", "storeHost"):
            assert ours_fields.pop(changing).rpartition(":")[2].isdecimal()
            del wanted[changing]
        told, meant = (
            decode_properties(f.pop("properties").encode()) for f in (ours_fields, wanted)
        )
        assert told.pop("PUSH_REPLY_TIME").isdecimal()
        assert meant.pop("PUSH_REPLY_TIME").isdecimal()
        assert (ours_fields, told) == (wanted, meant)
        assert pushes[wanted["bornTimestamp"]].body == theirs.body
    ours = {(r.body, tuple(sorted(r.property_map.items()))) for r in world.records(REPLY_TOPIC)}
    theirs_stored = recorded_records(f"{encoding}/read-back", REPLY_TOPIC)
    assert len(world.records(REPLY_TOPIC)) == 5
    born = {request.command.fields["g"] for request, _ in recorded(name, 325)}
    wanted_records = [r for r in theirs_stored if str(r.born_ms) in born]
    assert len(wanted_records) == 5
    assert ours == {(r.body, tuple(sorted(r.property_map.items()))) for r in wanted_records}


def test_a_requester_that_is_not_there_is_told_and_the_reply_kept(world: ReplyWorld) -> None:
    answer = world.ask(world.connect(), reply("gone@1"))

    assert (answer.code, answer.remark) == (
        1,
        "push reply message fail, channel of <gone@1> not found.",
    )
    (record,) = world.records(REPLY_TOPIC)
    assert (answer.fields or {})["msgId"] == record.offset_id
    nobody = world.ask(world.connect(), reply(None))
    assert (nobody.code, nobody.remark) == (
        1,
        "reply message properties[REPLY_TO_CLIENT] is null",
    )
    assert (nobody.fields or {})["queueOffset"] == "1"


@pytest.mark.parametrize(
    "answer",
    [Command(1, remark="no"), UnreachableError("p", "it broke"), RequestTimeoutError("p", "late")],
    ids=["refused", "gone", "silent"],
)
def test_a_requester_that_does_not_take_its_reply(
    world: ReplyWorld, answer: Command | Exception
) -> None:
    requester, replier = world.requester(), world.connect()
    assert world.tell(replier, reply()) == []
    world.pushed(requester, answer)

    (told,) = replier.take()
    assert (told.code, told.remark) == (1, f"push reply message to {REQUESTER} fail.")
    assert (told.fields or {})["queueOffset"] == "0"
    assert len(world.records(REPLY_TOPIC)) == 1


def test_each_of_two_replies_is_passed_on(world: ReplyWorld) -> None:
    requester, replier = world.requester(), world.connect()
    world.tell(replier, reply(body=b"one"), reply(body=b"two"))

    assert [world.pushed(requester, ok()).body for _ in range(2)] == [b"one", b"two"]
    assert [answer.code for answer in replier.take()] == [0, 0]


def test_replies_of_one_read_are_stored_by_one_call_and_each_is_answered_by_itself(
    world: ReplyWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    requester, replier = world.requester(), world.connect()
    append_many, calls = world.store.append_many_nowait, []

    def noted(appends: list[AppendRequest], **given: bool) -> list[AppendResult]:
        calls.append([append.body for append in appends])
        return append_many(appends, **given)

    monkeypatch.setattr(world.store, "append_many_nowait", noted)
    bodies = [b"one", b"", b"gone", b"two"]
    commands = [reply("gone@1" if body == b"gone" else REQUESTER, body) for body in bodies]
    for opaque, command in enumerate(commands):
        command.opaque = opaque
    told = world.tell(replier, *commands)
    assert [(answer.opaque, answer.code) for answer in told] == [(1, 1), (2, 1)]
    assert "no body" in str(told[0].remark)
    assert "not found" in str(told[1].remark)
    assert calls == [[b"one", b"gone", b"two"]]

    world.pushed(requester, Command(1))
    world.pushed(requester, ok())

    assert [(answer.opaque, answer.code) for answer in replier.take()] == [(0, 1), (3, 0)]


def test_a_reply_that_was_pushed_before_has_one_time(world: ReplyWorld) -> None:
    requester, replier = world.requester(), world.connect()
    request = reply()
    assert request.fields is not None
    request.fields["i"] = f"PUSH_REPLY_TIME\x011\x02{request.fields['i']}"
    world.tell(replier, request)

    told = (world.pushed(requester, ok()).fields or {})["properties"]
    assert told.count("PUSH_REPLY_TIME") == 1
    assert decode_properties(told.encode())["PUSH_REPLY_TIME"] == str(world.clock.now_ms())


def test_full_field_names_are_understood_too(world: ReplyWorld) -> None:
    requester, replier = world.requester(), world.connect()
    fields = {
        "topic": REPLY_TOPIC,
        "queueId": "-1",
        "sysFlag": "0",
        "bornTimestamp": "5",
        "flag": "0",
        "properties": f"REPLY_TO_CLIENT\x01{REQUESTER}\x02",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
    }
    world.tell(replier, Command(324, fields, b"pong", 7))
    assert (world.pushed(requester, ok()).fields or {})["queueId"] == "-1"
    assert (replier.take()[0].fields or {})["queueId"] == "0"


def test_without_a_store_of_replies_they_are_only_passed_on(world: ReplyWorld) -> None:
    world.config.store_replies = False
    requester, replier = world.requester(), world.connect()
    world.tell(replier, reply())
    world.pushed(requester, ok())

    (answer,) = replier.take()
    assert (answer.code, (answer.fields or {})["msgId"]) == (0, "0")
    gone = world.ask(replier, reply("gone@1"))
    assert (gone.code, gone.fields) == (1, {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"})
    assert world.records(REPLY_TOPIC) == []


def test_a_reply_that_cannot_be_stored_reaches_the_requester_anyway(world: ReplyWorld) -> None:
    requester, replier = world.requester(), world.connect()
    huge = b"x" * (world.config.store.message_bytes_max + 1)
    world.tell(replier, reply(body=huge))
    assert len(world.pushed(requester, ok()).body) == len(huge)

    (answer,) = replier.take()
    assert (answer.code, (answer.fields or {})["msgId"]) == (0, "0")


def test_a_stored_reply_can_still_be_unpacked(world: ReplyWorld) -> None:
    packed = int(SysFlag.COMPRESSED) | 0x300
    world.ask(world.connect(), reply("gone@1", f=packed | int(SysFlag.PREPARED)))

    assert world.records(REPLY_TOPIC)[0].sys_flag == packed


@pytest.mark.parametrize(
    ("letters", "code"),
    [
        ({"b": "a b"}, 29),
        ({"b": "SCHEDULE_TOPIC_XXXX"}, 16),
        ({"e": 9}, 29),
        ({"b": "No", "c": "x"}, 17),
    ],
)
def test_a_reply_is_checked_as_a_send_is(
    world: ReplyWorld, letters: dict[str, object], code: int
) -> None:
    requester, replier = world.requester(), world.connect()
    refused = world.ask(replier, reply(**letters))
    sent = replay(world, replier, send_command(REPLY_TOPIC, **letters))

    assert (refused.code, without_port(refused.remark)) == (code, without_port(sent.remark))
    assert refused.fields == {"TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
    assert requester.requests == []


def test_with_sync_flush_the_replier_hears_of_it_when_the_disk_has_it(tmp_path: Path) -> None:
    with ReplyWorld(tmp_path, store={"flush_mode": FlushMode.SYNC}) as world:
        replier = world.connect()
        world.handler.on_commands(replier, [reply("gone@1")])  # type: ignore[arg-type]
        assert world.store.flushed_offset == 0
        assert replier.take() == []
        world.turn()

        assert world.store.flushed_offset > 0
        assert [answer.code for answer in replier.take()] == [1]
        requester = world.requester()
        world.tell(replier, reply())
        world.turn()
        assert replier.take() == []  # on disk, but nobody knows whether the requester has it
        world.pushed(requester, ok())
        assert [answer.code for answer in replier.take()] == [0]
    asyncio.set_event_loop(None)


def test_the_newest_connection_of_a_requester_is_used(world: ReplyWorld) -> None:
    producers = world.context.producers
    old, new = world.requester("c@1", "A", "B"), world.requester("c@1", "A")

    def found() -> object:
        client = producers.find("c@1")
        return None if client is None else client.connection

    assert found() is new
    world.disconnect(new)
    assert found() is old
    producers.unregister("A", old)  # type: ignore[arg-type]
    assert found() is old  # its other group is still there
    producers.unregister("B", old)  # type: ignore[arg-type]
    assert found() is None


def test_a_client_that_changes_its_id_leaves_nothing_behind(world: ReplyWorld) -> None:
    connection = world.requester("before@1")
    client = ClientConnection(connection, "after@1", "JAVA", 479, 0)  # type: ignore[arg-type]
    world.context.producers.register("Pid", client)
    world.disconnect(connection)

    assert world.context.producers.find("before@1") is None
    assert world.context.producers.find("after@1") is None
