"""Heartbeats of all dialects, consumer lists, locks."""

from pathlib import Path

import pytest

from broker_world import BrokerWorld
from golden_frames import Frame, good_frames
from orbitmq.broker.processors.clients import ClientsProcessor
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.heartbeat import HeartbeatData, Subscription
from orbitmq.wire.command import Command

TAGS = [2598919, 2598920]


def heartbeats(name: str) -> list[Frame]:
    frames = [f for f in good_frames(name) if f.to_server and f.command.code == 34]
    return [f for f in frames if b"subscriptionDataSet" in f.command.body]


def world_of(root: Path, **config: object) -> BrokerWorld:
    world = BrokerWorld(root, **config)  # type: ignore[arg-type]
    world.route(ClientsProcessor(world.context))
    return world


def beat(
    group: str = "G", fingerprint: int = 0, without: bool = False, **consumer: object
) -> Command:
    subscriptions = [] if without else [{"topic": "T", "subString": "*", "subVersion": 1}]
    data = {
        "clientID": "c1",
        "consumerDataSet": [{"groupName": group, "subscriptionDataSet": subscriptions} | consumer],
        "heartbeatFingerprint": fingerprint,
        "withoutSub": without,
    }
    return Command(34, {}, dialect.dumps(data))


@pytest.mark.parametrize(
    "client", ["java-json/push-consumer", "go/basic", "node/basic", "cpp/basic"]
)
def test_the_same_is_understood_of_every_clients_heartbeat(client: str, tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        frame = heartbeats(client)[0]
        connection = world.connect()

        answers = world.tell(connection, frame.command)

        data = HeartbeatData.decode(frame.command.body)
        name = data.consumer_data_set[0].group_name
        group = world.context.consumers.group(name)
        assert group is not None
        assert (group.model, group.consume_type) == ("CLUSTERING", "CONSUME_PASSIVELY")
        assert group.from_where in ("CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_LAST_OFFSET")
        assert group.client_ids == [data.client_id]
        topic = next(topic for topic in group.subscriptions if "%RETRY%" not in topic)
        subscription = group.subscriptions[topic]
        assert (subscription.tags_set, subscription.code_set) == (["TagA", "TagB"], TAGS)
        assert subscription.sub_version > 1_790_000_000_000
        assert subscription.is_tag
        assert group.subscriptions[f"%RETRY%{name}"].code_set == []
        assert world.context.topics.get(f"%RETRY%{name}") is not None
        assert [answer.code for answer in answers] == [40, 0]  # the notice comes first
        assert answers[1].fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


def test_every_recorded_heartbeat_is_understood() -> None:
    frames = [
        f for f in good_frames() if f.to_server and f.command.code == 34 and f.role == "broker"
    ]
    understood = 0
    for frame in frames:
        if frame.name != "raw/answers" or b"clientID" in frame.command.body:
            understood += bool(HeartbeatData.decode(frame.command.body).client_id)
    assert understood > 150


def test_a_client_that_saves_its_words_is_asked_for_them_after_a_restart(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        client = world.connect()

        def changed(request: Command) -> str:
            answer = world.ask(client, request)
            assert answer.fields is not None
            return answer.fields["IS_SUB_CHANGE"]

        assert changed(beat(fingerprint=7, without=True)) == "true"  # nothing is known of it
        assert changed(beat(fingerprint=7)) == "false"
        assert changed(beat(fingerprint=7, without=True)) == "false"
        assert list(world.context.consumers.group("G").subscriptions) == ["T"]  # type: ignore[union-attr]
        assert changed(beat(fingerprint=8)) == "true"
        assert changed(beat(fingerprint=0)) == "true"


def test_the_retry_topic_is_ordered_if_a_subscribed_topic_is(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        topics = world.context.topics
        topics.create_for_send("T", "TBW102", 1)
        topics.set_order_topics(["T"])

        world.ask(world.connect(), beat())

        assert topics.is_order("%RETRY%G")


def test_a_group_that_may_not_be_made_is_passed_over(tmp_path: Path) -> None:
    with world_of(tmp_path, auto_create_group=False) as world:
        assert world.ask(world.connect(), beat()).code == 0

        assert world.context.consumers.group("G") is None
        assert "%RETRY%G" not in world.context.topics


def test_pull_consumers_are_passed_over_where_they_are_rejected(tmp_path: Path) -> None:
    with world_of(tmp_path, reject_pull_consumers=True) as world:
        request = beat(consumeType="CONSUME_ACTIVELY")
        assert world.ask(world.connect(), request).code == 0

        assert world.context.consumers.group("G") is None


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"xx",
        b"[]",
        b"{}",
        b'{"clientID":5,"consumerDataSet":{}}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","consumeType":7}]}',
        b'{"clientID":"c","consumerDataSet":[{"groupName":"G","messageModel":"NONE"}]}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b'{"clientID":"c","a":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
    ids=["empty", "no JSON", "a list", "no id", "types", "number", "name", "no group", "deep"],
)
def test_nonsense_is_refused_and_changes_nothing(body: bytes, tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        answer = world.ask(world.connect(), Command(34, {}, body))

        assert answer.code == 1
        assert answer.remark
        assert not world.context.consumers.all()
        assert not world.context.producers.all()


def test_leaving_is_told_to_the_rest_and_the_last_ends_the_group(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        one, two = world.connect(), world.connect()
        for connection in (one, two):
            world.ask(connection, beat())
        one.take()

        leave = Command(35, {"clientID": "c1", "consumerGroup": "G", "producerGroup": "P"})
        assert world.ask(two, leave).code == 0

        assert [command.code for command in one.take()] == [40]
        world.disconnect(one)
        assert world.context.consumers.group("G") is None
        assert world.ask(two, Command(38, {"consumerGroup": "G"})).code == 1


@pytest.mark.feature("F28")
@pytest.mark.parametrize(
    ("given", "codes"), [({}, (0, 0, 23, 23)), ({"property_filter": False}, (0, 1, 1, 1))]
)
def test_a_filter_is_looked_at_before_a_consumer_starts(
    tmp_path: Path, given: dict[str, bool], codes: tuple[int, ...]
) -> None:
    filters = (("TAG", "A"), ("SQL92", "a > 3"), ("SQL92", "a >"), ("XYZ", "a"))
    with world_of(tmp_path, **given) as world:
        for (kind, text), code in zip(filters, codes, strict=True):
            subscription = Subscription(topic="T", expression_type=kind, sub_string=text)
            body = dialect.dumps({"clientId": "c", "group": "G", "subscriptionData": subscription})
            answer = world.ask(world.connect(), Command(46, {}, body))
            assert answer.code == code
            assert bool(answer.remark) is bool(code)
        assert world.ask(world.connect(), Command(46)).code == 0


def test_a_lock_request_that_is_none_is_refused(tmp_path: Path) -> None:
    with world_of(tmp_path) as world:
        for code in (41, 42):
            assert world.ask(world.connect(), Command(code, {}, b"{}")).code == 1
