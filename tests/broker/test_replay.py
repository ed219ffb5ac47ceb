"""What real clients asked a real broker, asked of ours: the answers must be the same.

The recordings were made on one store, one after the other; they are played in that order on one broker
without sockets. Compared are the requests about clients and offsets; everything else (sends, pulls,
topics) is played too, because answers depend on it.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from broker_world import BrokerWorld, FakeConnection
from golden_frames import Frame, good_frames
from orbitmq.broker.processors.clients import ClientsProcessor
from orbitmq.broker.processors.groups_admin import GroupsAdminProcessor
from orbitmq.broker.processors.offsets import OffsetsProcessor
from orbitmq.broker.processors.pull import PullProcessor
from orbitmq.broker.processors.query import QueryProcessor
from orbitmq.broker.processors.send import SendProcessor
from orbitmq.broker.processors.send_back import SendBackProcessor
from orbitmq.broker.processors.topics_admin import TopicsAdminProcessor
from orbitmq.wire.bodies import dialect
from orbitmq.wire.codes import RequestCode as Code
from orbitmq.wire.command import Command

RECORDINGS = (
    "java-json/producer",
    "java-json/broadcast-consumer",
    "java-json/pull-consumer",
    "java-json/lite-pull-consumer",
    "java-json/orderly-consumer",
    "java-json/push-consumer",
    "go/basic",
    "node/basic",
    "cpp/basic",
    "raw/answers",
)
COMPARED = (14, 15, 29, 30, 31, 32, 34, 35, 38, 41, 42, 43, 45, 46)
TIMES = (Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_EARLIEST_MSG_STORETIME)
TABLES = (Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET)

EXPLAINED = {
    (
        "java-json/push-consumer",
        120,
    ): "a retry that was given back by its place in that broker's log",
    ("go/basic", 265): "a committed transaction",
    ("go/basic", 319): "a committed transaction",
    ("raw/answers", 836): "sends to a queue of the broker's choice",
}
"""Answers that follow from messages which are not there when it is played."""


class Pair(NamedTuple):
    """A recorded answer, and ours to the same request."""

    frame: Frame
    ours: Command | None
    asked: Command | None = None

    @property
    def is_told_to_begin(self) -> bool:
        """A group without an offset: RocketMQ says "not found" of a queue without messages, we say 0."""
        assert self.ours is not None
        return self.code == 14 and (self.java.code, self.ours.code) == (22, 0)

    @property
    def code(self) -> int:
        return self.frame.request_code or 0

    @property
    def java(self) -> Command:
        return self.frame.command


class Replay:
    """One broker to which everything is played."""

    def __init__(self, world: BrokerWorld) -> None:
        self.world = world
        self.notices: Counter[tuple[str, str]] = Counter()  # (recording, whose)
        context = world.context
        world.route(
            SendProcessor(context),
            SendBackProcessor(context),
            PullProcessor(context),
            QueryProcessor(context),
            ClientsProcessor(context),
            OffsetsProcessor(context),
            TopicsAdminProcessor(context),
            GroupsAdminProcessor(context),
        )

    def play(self, name: str) -> Iterator[Pair]:
        connections: dict[int, FakeConnection] = {}
        answers: dict[tuple[int, int], Command] = {}
        asked: dict[tuple[int, int], Command] = {}
        now = 0.0
        for frame in good_frames(name):
            if frame.role != "broker":
                continue
            command = frame.command
            self.world.clock.advance(max(frame.time_ms - now, 0))
            now = max(frame.time_ms, now)
            self.world.context.schedule.tick()
            if not command.is_response and frame.to_server:
                connection = connections.setdefault(frame.conn, self.world.connect())
                connection.encoding = command.encoding
                asked[frame.conn, command.opaque] = command
                self.world.handler.on_commands(connection, [command])  # type: ignore[arg-type]
                self.world.settle()
                for sent in connection.take():
                    if sent.is_response:
                        answers[frame.conn, sent.opaque] = sent
                    else:
                        self.notices[name, "ours"] += sent.code == 40
            elif command.is_response and not frame.to_server and frame.request_code in COMPARED:
                key = frame.conn, command.opaque
                yield Pair(frame, answers.get(key), asked.get(key))
            elif command.code == 40 and not frame.to_server:
                self.notices[name, "java"] += 1
        for connection in connections.values():
            self.world.disconnect(connection)


@cache
def replayed() -> tuple[list[Pair], Counter[tuple[str, str]]]:
    import tempfile

    with tempfile.TemporaryDirectory() as root, BrokerWorld(Path(root)) as world:
        replay = Replay(world)
        pairs = [pair for name in RECORDINGS for pair in replay.play(name)]
        return pairs, replay.notices


def pairs_of(code: int) -> list[Pair]:
    explained = EXPLAINED.keys()
    pairs = [pair for pair in replayed()[0] if pair.code == code]
    pairs = [pair for pair in pairs if (pair.frame.name, pair.frame.line) not in explained]
    pairs = [pair for pair in pairs if pair.ours is None or not pair.is_told_to_begin]
    assert pairs
    return pairs


def test_a_client_that_is_told_to_begin_at_0_began_there_anyway() -> None:
    told = [pair for pair in replayed()[0] if pair.code == 14 and pair.is_told_to_begin]

    begins = []
    for pair in told:
        assert pair.ours is not None
        assert pair.ours.fields == {"offset": "0"}
        begins.append(_first_pull_after(pair))
    assert len(told) > 10
    assert set(begins) == {"0", None}
    assert begins.count("0") > 10


def _first_pull_after(pair: Pair) -> str | None:
    """Return where the client began to read the queue; None: the recording ends before."""
    assert pair.asked is not None
    wanted = [(pair.asked.fields or {})[name] for name in ("consumerGroup", "topic", "queueId")]
    for frame in good_frames(pair.frame.name):
        fields = frame.command.fields or {}
        if frame.line < pair.frame.line or frame.command.is_response or frame.command.code != 11:
            continue
        if [fields.get(name) for name in ("consumerGroup", "topic", "queueId")] == wanted:
            return fields["queueOffset"]
    return None


@pytest.mark.parametrize("code", COMPARED)
def test_each_request_is_answered_with_the_code_and_fields_of_a_java_broker(code: int) -> None:
    for pair in pairs_of(code):
        assert pair.ours is not None, pair.frame
        assert pair.ours.code == pair.java.code, pair.frame
        assert (pair.ours.fields is None) == (pair.java.fields is None), pair.frame
        if code in TIMES:
            assert (pair.ours.fields or {}).keys() == (pair.java.fields or {}).keys(), pair.frame
        else:
            assert pair.ours.fields == pair.java.fields, pair.frame


@pytest.mark.parametrize("code", sorted(set(COMPARED) - {46}))
def test_remarks_are_those_of_a_java_broker(code: int) -> None:
    for pair in pairs_of(code):
        assert pair.ours is not None
        if "Exception" not in (pair.java.remark or ""):
            assert pair.ours.remark == pair.java.remark, pair.frame
        else:
            assert pair.ours.remark


@pytest.mark.parametrize("code", sorted(set(COMPARED) - set(TABLES)))
def test_bodies_are_those_of_a_java_broker_but_for_the_order_of_sets(code: int) -> None:
    for pair in pairs_of(code):
        assert pair.ours is not None
        assert bool(pair.ours.body) == bool(pair.java.body), pair.frame
        if pair.java.body:
            ours, java = dialect.loads(pair.ours.body), dialect.loads(pair.java.body)
            assert ours.keys() == java.keys()
            for name, members in java.items():
                assert sorted(map(str, ours[name])) == sorted(map(str, members)), pair.frame


@pytest.mark.parametrize("code", TABLES)
def test_tables_for_replicas_have_the_members_of_a_java_brokers(code: int) -> None:
    for pair in pairs_of(code):
        assert pair.ours is not None
        ours, java = dialect.loads(pair.ours.body), dialect.loads(pair.java.body)
        assert ours.keys() == java.keys()
        assert ours["dataVersion"].keys() == java["dataVersion"].keys()
        assert b'"offsetTable":{"' in pair.ours.body or code == Code.GET_ALL_DELAY_OFFSET


def test_offsets_of_groups_are_what_the_java_broker_had_at_the_end() -> None:
    (pair,) = pairs_of(Code.GET_ALL_CONSUMER_OFFSET)
    assert pair.ours is not None
    ours, java = (dialect.loads(body)["offsetTable"] for body in (pair.ours.body, pair.java.body))
    common = [name for name in ours if name in java]

    assert len(common) > 10
    for name in common:
        if "%RETRY%" not in name:
            assert ours[name] == java[name], name


def test_as_many_notices_of_changed_members_are_sent_as_a_java_broker_sends() -> None:
    notices = replayed()[1]
    for name in RECORDINGS:
        assert notices[name, "ours"] == notices[name, "java"], name
    assert sum(notices.values()) > 20
