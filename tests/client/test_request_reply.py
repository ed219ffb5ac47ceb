"""Requests that wait for replies, and consumers that reply."""

import asyncio
import re
import threading

import pytest

from async_run import run_async, until
from consumer_world import consumer_world
from fake_cluster import FakeCluster, hang_up, refuse
from orbitmq.client import (
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Message,
    Producer,
    ReceivedMessage,
    replies,
    reply_message,
)
from orbitmq.client.producer.request_reply import is_request
from orbitmq.errors import (
    ClientClosedError,
    ClientError,
    InvalidMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    SendFailedError,
)
from orbitmq.format.properties import decode_properties
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

QUESTION = Message("Questions", b"ping", tag="TagR", keys=["rk"])
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def request_of(**given: str) -> ReceivedMessage:
    """Return a request as its consumer gets it."""
    properties = {
        "CORRELATION_ID": "c-1",
        "REPLY_TO_CLIENT": "10.0.0.1@r",
        "TTL": "8000",
        "CLUSTER": "C1",
        "UNIQ_KEY": "K",
        **given,
    }
    properties = {name: value for name, value in properties.items() if value}
    return ReceivedMessage(
        "Questions", b"ping", "broker-a", 0, 0, 0, properties, 0, 0, "", "", "ID", 0, 0, 0
    )


def properties_of(request: Command) -> dict[str, str]:
    return decode_properties((request.fields or {})["i"].encode())


# --- through the front door ---


@pytest.mark.feature("X3")
def test_a_request_gets_the_reply_of_the_consumer_that_handled_it(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Questions", queues=2)

            async def answer(message):
                return b"reply to " + message.body

            async with (
                AsyncProducer(world.namesrv, group="repliers") as replier,
                AsyncConsumer(
                    world.namesrv,
                    "answers",
                    "Questions",
                    replies(replier, answer),
                    start_from="first",
                ),
            ):
                reply = await world.producer.request(QUESTION, timeout_ms=10_000)
                asked = [
                    world.producer.request_async(Message("Questions", b"%d" % n)) for n in range(50)
                ]
                bodies = [one.body for one in await asyncio.gather(*asked)]

            assert reply.body == b"reply to ping"
            assert reply.topic == "DefaultCluster_REPLY_TOPIC"
            assert reply.properties["MSG_TYPE"] == "reply"
            assert reply.properties["REPLY_TO_CLIENT"] == world.producer.client_id
            assert reply.properties["TTL"] == "10000"
            assert (
                int(reply.properties["ARRIVE_TIME"]) >= int(reply.properties["PUSH_REPLY_TIME"]) > 0
            )
            assert UUID.fullmatch(reply.properties["CORRELATION_ID"])
            assert bodies == [b"reply to %d" % n for n in range(50)]
            assert len(world.producer._requests) == 0

    run_async(main)


def test_any_thread_may_ask_and_reply(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Questions", queues=1)
            await asyncio.to_thread(ask_and_reply, world.namesrv)

    def ask_and_reply(namesrv):
        with (
            Producer(namesrv, group="repliers") as replier,
            Consumer(
                namesrv,
                "answers",
                "Questions",
                replies(replier, lambda message: message.body.upper() or None),
                start_from="first",
            ),
            Producer(namesrv, group="askers") as asker,
        ):
            assert asker.request(QUESTION, timeout_ms=10_000).body == b"PING"
            futures = [asker.request_async(Message("Questions", b"m%d" % n)) for n in range(20)]
            assert [one.result(10).body for one in futures] == [b"M%d" % n for n in range(20)]
            found: list[bytes] = []

            def ask() -> None:
                found.append(asker.request(QUESTION, key="k", timeout_ms=10_000).body)

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
            assert found == [b"PING"] * 4

    run_async(main)


def test_nobody_replies_in_time_and_the_late_reply_is_dropped(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Questions", queues=1)
            held = []
            async with AsyncConsumer(
                world.namesrv, "answers", "Questions", held_by(held), start_from="first"
            ):
                with pytest.raises(RequestTimeoutError, match="no reply came within 300 ms"):
                    await world.producer.request(QUESTION, timeout_ms=300)
                await until(lambda: held)
            # The requester is there, and takes what nobody waits for.
            result = await world.producer.reply(held[0], b"late")
            assert result.queue.topic == "DefaultCluster_REPLY_TOPIC"
            assert len(world.producer._requests) == 0

    run_async(main)


def held_by(held):
    async def hold(message):
        held.append(message)

    return hold


def test_two_replies_and_a_requester_that_is_gone(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Questions", queues=1)
            held = []
            async with AsyncConsumer(
                world.namesrv, "answers", "Questions", held_by(held), start_from="first"
            ):
                async with AsyncProducer(world.namesrv, group="askers") as asker:
                    asked = asker.request_async(QUESTION, timeout_ms=10_000)
                    await until(lambda: held)
                    await world.producer.reply(held[0], b"one")
                    assert (await world.producer.reply(held[0], b"two")).is_ok
                    assert (await asked).body == b"one"
                with pytest.raises(ResponseError, match="not found") as failure:
                    await world.producer.reply(held[0], b"three")
                assert failure.value.code == 1

    run_async(main)


def test_a_replying_handler_is_done_when_its_requester_is_gone(tmp_path, caplog):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Questions", queues=1)
            handled = []

            async def answer(message):
                handled.append(message.reconsume_times)
                return b"too late"

            store = world.broker.context.store
            async with AsyncProducer(world.namesrv, group="askers") as asker:
                asked = asker.request_async(QUESTION, timeout_ms=60_000)
                await until(lambda: store.max_offset("Questions", 0) == 1)
            with pytest.raises(ClientClosedError):
                await asked
            await world.send("Questions", "no request")
            async with (
                AsyncProducer(world.namesrv, group="repliers") as replier,
                AsyncConsumer(
                    world.namesrv,
                    "answers",
                    "Questions",
                    replies(replier, answer),
                    start_from="first",
                ),
            ):
                await until(lambda: len(handled) == 2)
            assert handled == [0, 0]
            assert world.offset("answers", "Questions", 0) == 2  # acknowledged, not tried again

    run_async(main)
    assert "who asked is gone" in caplog.text


# --- what goes over the wire ---


def test_a_request_is_sent_when_each_broker_of_the_topic_knows_us():
    async def main():
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("T")
            brokers = list(cluster.brokers.values())
            async with AsyncProducer(cluster.namesrv_address, group="askers") as producer:
                asked = producer.request_async(Message("T", b"ping"), timeout_ms=5_000)
                await until(lambda: any(broker.sends for broker in brokers))
                for broker in brokers:
                    assert broker.of_code(34)
                    if broker.sends:
                        codes = [one.code for one in broker.requests]
                        assert codes.index(34) < codes.index(RequestCode.SEND_MESSAGE_V2)
                        text = properties_of(broker.sends[0])
                        connection = broker.connections[0]
                assert text["TTL"] == "5000"
                assert text["REPLY_TO_CLIENT"] == producer.client_id
                # Somebody else's reply is not ours, and a second one is nobody's.
                for correlation_id, body in ((text["CORRELATION_ID"] + "x", b"other"),):
                    await push(connection, correlation_id, body)
                assert not asked.done()
                await push(connection, text["CORRELATION_ID"], b"one")
                await push(connection, text["CORRELATION_ID"], b"two")
                assert (await asked).body == b"one"
                route = await producer.engine.routes.publish_route("T")
                assert producer._requests.strangers(route) == []

    run_async(main)


async def push(connection, correlation_id, body):
    properties = f"CORRELATION_ID\x01{correlation_id}\x02"
    fields = {"topic": "R", "queueId": "0", "sysFlag": "0", "properties": properties}
    answer = await connection.request(Command(326, fields, body), 1000)
    assert answer.code == 0


def test_a_connection_that_is_there_already_hears_of_us_before_the_first_request():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            async with AsyncProducer(cluster.namesrv_address, group="askers") as producer:
                await producer.send(Message("T", b"plain"))
                asked = producer.request_async(Message("T", b"ping"), timeout_ms=5_000)
                await until(lambda: len(broker.sends) == 2)
                codes = [request.code for request in broker.requests]
                assert (
                    RequestCode.HEART_BEAT in codes[: codes.index(RequestCode.SEND_MESSAGE_V2, 2)]
                )
                # After a new connection the broker has to hear it again.
                count = len(broker.of_code(34))
                broker.connections[0].abort()
                await until(lambda: producer.engine.channels.get_nowait(broker.address) is None)
                again = producer.request_async(Message("T", b"again"), timeout_ms=5_000)
                await until(lambda: len(broker.sends) == 3)
                assert len(broker.of_code(34)) > count
                asked.cancel()
                again.cancel()

    run_async(main)


def test_a_broker_that_hears_nothing_holds_up_the_first_request_only():
    async def main():
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("T")
            await cluster.brokers["broker-b"].stop()
            broker = cluster.brokers["broker-a"]
            async with AsyncProducer(cluster.namesrv_address, group="askers") as producer:
                for count in (1, 2):
                    asked = producer.request_async(Message("T", b"ping"), timeout_ms=5_000)
                    await until(lambda: len(broker.sends) >= count)  # noqa: B023
                    asked.cancel()
                assert (
                    producer._requests.strangers(await producer.engine.routes.publish_route("T"))
                    == []
                )

    run_async(main)


def test_a_request_that_cannot_be_sent_fails_at_once():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            async with AsyncProducer(cluster.namesrv_address, group="askers") as producer:
                broker.script = [refuse(13)]
                with pytest.raises(ResponseError, match="13"):
                    await producer.request(Message("T", b"x"), timeout_ms=20_000)
                with pytest.raises(NoRouteError):
                    await producer.request(Message("Nowhere", b"x"), timeout_ms=20_000)
                with pytest.raises(InvalidMessageError):
                    await producer.request(Message("T", b""))
                broker.script = [hang_up] * 3
                with pytest.raises(SendFailedError):
                    await producer.request(Message("T", b"x"), timeout_ms=20_000)
                waits = producer.request_async(Message("T", b"x"), timeout_ms=20_000)
                await until(lambda: broker.sends)
            with pytest.raises(ClientClosedError):
                await waits
            with pytest.raises(ClientClosedError):
                await producer.request(Message("T", b"x"))

    run_async(main)


def test_a_reply_goes_by_the_broker_of_its_request_and_then_by_another():
    async def main():
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("C1_REPLY_TOPIC", queues=1)
            brokers = cluster.brokers
            for broker in brokers.values():
                broker.reactions[325] = broker.store
            async with AsyncProducer(cluster.namesrv_address, group="repliers") as producer:
                for _ in range(3):
                    result = await producer.reply(request_of(), b"pong", timeout_ms=5_000)
                    assert result.queue.broker_name == "broker-a"
                (sent, *_) = brokers["broker-a"].of_code(325)
                assert sent.body == b"pong"
                assert {k: v for k, v in properties_of(sent).items() if k != "UNIQ_KEY"} == {
                    "MSG_TYPE": "reply",
                    "CORRELATION_ID": "c-1",
                    "REPLY_TO_CLIENT": "10.0.0.1@r",
                    "TTL": "8000",
                    "WAIT": "true",
                }
                brokers["broker-a"].reactions[325] = refuse(1, "not found")
                result = await producer.reply(request_of(), b"pong")
                assert result.queue.broker_name == "broker-b"
                brokers["broker-b"].reactions[325] = refuse(1, "not found")
                with pytest.raises(ResponseError, match="not found"):
                    await producer.reply(request_of(), b"pong")
                moved = request_of()
                moved.broker_name = "broker-z"
                with pytest.raises(SendFailedError):
                    await producer.reply(moved, b"pong")

    run_async(main)


def test_a_reply_may_have_a_tag_keys_and_properties():
    message = reply_message(request_of(), b"pong", tag="T", keys=["k"], properties={"a": "b"})

    assert (message.topic, message.tag, message.key_list) == ("C1_REPLY_TOPIC", "T", ["k"])
    assert message.properties == {"a": "b"}


@pytest.mark.parametrize("missing", ["CORRELATION_ID", "REPLY_TO_CLIENT", "CLUSTER"])
def test_what_is_no_request_has_no_reply(missing):
    with pytest.raises(InvalidMessageError, match="is no request"):
        reply_message(request_of(**{missing: ""}), b"pong")
    assert is_request(request_of(**{missing: ""})) is (missing == "CLUSTER")


def test_functions_and_producers_must_be_of_one_kind():
    async def answer(message):
        return b""

    with pytest.raises(ClientError, match="async"):
        replies(Producer(group="repliers"), answer)
    with pytest.raises(ClientError, match="async"):
        replies(AsyncProducer(group="repliers"), lambda message: b"")


class Fails:
    """A producer whose replies are lost on the way."""

    def reply(self, request, body):
        raise SendFailedError("T", [("broker-a", RequestTimeoutError("p", "late"))])


def test_a_reply_that_is_lost_on_the_way_lets_the_request_come_again():
    handle = replies(Fails(), lambda message: b"pong" if message.body else None)

    with pytest.raises(SendFailedError):
        handle(request_of())
    handle(request_of(CORRELATION_ID=""))  # nobody waits
    silent = request_of()
    silent.body = b""
    handle(silent)  # no reply is wanted
