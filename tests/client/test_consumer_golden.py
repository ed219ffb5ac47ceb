"""What our consumers send, beside what the Java client 5.3.3 sent in the same situation."""

import json

import pytest

from async_run import run_async
from consumer_world import Seen, consumer_world, until
from golden_frames import frames
from orbitmq.client import AsyncConsumer, AsyncPullConsumer
from orbitmq.client.core.core import ClientCore
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


def java_request(recording: str, code: int, number: int = 0) -> Command:
    """Return a request that a Java consumer sent."""
    found = [
        frame.command
        for frame in frames(f"java-json/{recording}")
        if frame.to_server and frame.command.code == code and not frame.command.is_response
    ]
    return found[number]


class Requests:
    """Records what a client sends."""

    def __init__(self, core) -> None:
        self.commands: list[Command] = []
        made = core.calls.command

        def command(code, fields=None, body=b""):
            sent = made(code, fields, body)
            self.commands.append(sent)
            return sent

        core.calls.command = command

    def first(self, code: int, **fields: str) -> Command:
        for command in self.commands:
            if command.code == code and fields.items() <= (command.fields or {}).items():
                return command
        raise AssertionError(f"no request {code} with {fields}")


def conversation(tmp_path, group: str, topic: str, *, orderly: bool = False) -> Requests:
    """Consume two messages; the second fails once."""

    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create(topic, queues=1)
            seen = Seen(lambda message: message.body == b"bad" and message.reconsume_times == 0)
            consumer = AsyncConsumer(
                world.namesrv,
                group,
                {topic: "TagA || TagB"},
                seen,
                start_from="first",
                orderly=orderly,
                suspend_queue_ms=10,
                persist_interval_ms=100,
                instance_name="cons",
                client_ip="10.77.0.5",
            )

            core = await ClientCore.acquire(consumer.settings.client)
            requests = Requests(core)
            async with consumer:
                await until(lambda: consumer.queues)
                await world.send(topic, "good", "bad", tag="TagA")
                await until(lambda: len(seen.messages) >= 2)
                await until(lambda: world.offset(group, topic, 0) == 2)
                await world.send(topic, "good", tag="TagA")
                await until(lambda: world.offset(group, topic, 0) == 3)
            await core.release()
            return requests

    return run_async(main)


@pytest.fixture(scope="module")
def push(tmp_path_factory) -> Requests:
    return conversation(tmp_path_factory.mktemp("push"), "GwPushCidJ", "GwPushJ")


@pytest.fixture(scope="module")
def orderly(tmp_path_factory) -> Requests:
    return conversation(tmp_path_factory.mktemp("orderly"), "GwOrdCidJ", "GwOrdJ", orderly=True)


def without(fields: dict[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in fields.items() if name not in names}


def test_a_push_consumer_pulls_as_java_does(push):
    java = java_request("push-consumer", RequestCode.PULL_MESSAGE)

    ours = push.first(RequestCode.PULL_MESSAGE, topic="GwPushJ")

    changing = ("subVersion", "queueId", "queueOffset")
    assert without(ours.fields, *changing) == without(java.fields, *changing)


def test_a_pull_carries_the_consumer_offset_once_there_is_one(push):
    java = next(
        frame.command
        for frame in frames("java-json/push-consumer")
        if frame.to_server
        and frame.command.code == RequestCode.PULL_MESSAGE
        and frame.command.fields["sysFlag"] == "3"
    )

    ours = push.first(RequestCode.PULL_MESSAGE, topic="GwPushJ", sysFlag="3")

    assert ours.fields.keys() == java.fields.keys()
    assert int(ours.fields["commitOffset"]) > 0


def test_the_heartbeat_says_what_java_says(push):
    java = [
        json.loads(frame.command.body)
        for frame in frames("java-json/push-consumer")
        if frame.to_server and frame.command.code == RequestCode.HEART_BEAT
    ]
    expected = next(data for data in java if data["consumerDataSet"])

    body = json.loads(push.first(RequestCode.HEART_BEAT).body)

    for data in (body, expected):
        data["producerDataSet"] = []
        for consumer in data["consumerDataSet"]:
            consumer["subscriptionDataSet"].sort(key=lambda one: one["topic"])
            for one in consumer["subscriptionDataSet"]:
                one["subVersion"] = 0
    assert body == expected


def test_a_failed_message_is_given_back_as_java_does(push):
    java = java_request("push-consumer", RequestCode.CONSUMER_SEND_MSG_BACK)

    ours = push.first(RequestCode.CONSUMER_SEND_MSG_BACK)

    changing = ("offset", "originMsgId", "delayLevel")
    assert without(ours.fields, *changing) == without(java.fields, *changing)
    assert ours.fields["delayLevel"] == "0"


@pytest.mark.parametrize(
    "code",
    [
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.GET_CONSUMER_LIST_BY_GROUP,
    ],
    ids=lambda code: code.name,
)
def test_offsets_and_members_are_asked_for_as_java_does(push, code):
    java = java_request("push-consumer", code)

    # The broker's name matters for topics of several brokers with a mapping, which we do not have.
    assert push.first(code).fields.keys() | {"bname"} == java.fields.keys() | {"bname"}


def test_leaving_the_group_is_told_as_java_tells_it(push):
    java = next(
        frame.command
        for frame in frames("java-json/push-consumer")
        if frame.to_server
        and frame.command.code == RequestCode.UNREGISTER_CLIENT
        and "consumerGroup" in frame.command.fields
    )

    ours = push.first(RequestCode.UNREGISTER_CLIENT, consumerGroup="GwPushCidJ")

    assert ours.fields.keys() == java.fields.keys()


@pytest.mark.parametrize("code", [41, 42], ids=["lock", "unlock"])
def test_queues_are_locked_as_java_does(orderly, code):
    java = json.loads(java_request("orderly-consumer", code).body)

    ours = json.loads(orderly.first(code).body)

    assert ours.keys() == java.keys()
    assert ours["mqSet"][0].keys() == java["mqSet"][0].keys()
    assert without(ours, "mqSet", "clientId") == without(java, "mqSet", "clientId")


def test_a_pull_consumer_asks_as_java_does(tmp_path):
    java = java_request("lite-pull-consumer", RequestCode.LITE_PULL_MESSAGE)

    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("GwLiteJ", queues=1)
            consumer = AsyncPullConsumer(world.namesrv, "GwLiteCidJ", pull_count=10)
            async with consumer:
                requests = Requests(consumer._context.core)
                await consumer.assign(await consumer.topic_queues("GwLiteJ"))
                code = RequestCode.LITE_PULL_MESSAGE
                await until(lambda: any(command.code == code for command in requests.commands))
                return requests.first(code).fields

    fields = run_async(main)

    changing = ("queueId", "queueOffset")
    # ReqT tells Java's own brokers that a request came from a stream client; they do not look at it.
    assert without(fields, *changing) == without(java.fields, "ReqT", *changing)
