"""Simple consumers on brokers that say what a test wants; real brokers are in tests/compat."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from async_run import run_async, until
from consumer_world import consumer_world
from fake_cluster import FakeBroker, FakeCluster, refuse, silent
from orbitmq.client import AsyncSimpleConsumer, SimpleConsumer, sql
from orbitmq.errors import (
    ClientClosedError,
    ConfigError,
    InvalidMessageError,
    NoRouteError,
    RequestTimeoutError,
    ResponseError,
    UnreachableError,
)
from orbitmq.format.record import encode_record
from orbitmq.message import LOOPBACK, AppendRequest
from orbitmq.wire.bodies.heartbeat import HeartbeatData
from orbitmq.wire.bodies.pop import BatchAckBody
from orbitmq.wire.command import Command, Encoding

POP, ACK, CHANGE, NOTIFICATION, BATCH_ACK = 200050, 200051, 200053, 200054, 200151


class PopBroker:
    """Gives messages to a fake broker's pops, one offset after the other."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker, self.waiting, self.offset = broker, [], 0
        self.parked: list[tuple[Any, Command]] = []
        broker.reactions |= {
            POP: self.pop,
            NOTIFICATION: self.notification,
            ACK: lambda connection, request: request.answer(),
            BATCH_ACK: lambda connection, request: request.answer(),
            CHANGE: lambda connection, request: request.answer(
                fields={"popTime": "99", "invisibleTime": "5000", "reviveQid": "4"}
            ),
        }

    def add(self, *bodies: str, tag: str = "") -> None:
        self.waiting += [(body, tag) for body in bodies]
        for connection, request in self.parked:
            connection.send(self.notice(request))
        self.parked.clear()

    def pop(self, connection: Any, request: Command) -> Command:
        fields = request.fields or {}
        taken = self.waiting[: int(fields["maxMsgNums"])]
        del self.waiting[: len(taken)]
        if not taken:
            return request.answer(210, fields=dict.fromkeys(POP_FIELDS, "0"))
        start, records = self.offset, b""
        for body, tag in taken:
            properties = f"TAGS\x01{tag}\x02".encode() if tag else b""
            append = AppendRequest(fields["topic"], 0, body.encode(), properties)
            records += encode_record(
                append, log_offset=0, queue_offset=self.offset, store_ms=1, store_host=LOOPBACK
            )
            self.offset += 1
        answer = {"popTime": "77", "invisibleTime": fields["invisibleTime"], "reviveQid": "3"}
        answer |= {"restNum": "0", "startOffsetInfo": f"0 0 {start}"}
        return request.answer(fields=answer, body=records)

    def notification(self, connection: Any, request: Command) -> Command | None:
        if self.waiting:
            return self.notice(request)
        self.parked.append((connection, request))
        return None

    def notice(self, request: Command) -> Command:
        has = "true" if self.waiting else "false"
        return request.answer(fields={"hasMsg": has, "pollingFull": "false"})

    def asked(self, code: int) -> list[dict[str, str]]:
        return [request.fields or {} for request in self.broker.of_code(code)]


POP_FIELDS = ("popTime", "invisibleTime", "reviveQid", "restNum")


def run_on(count: int, test: Callable[..., Any], *topics: str) -> None:
    """Run a test on a cluster of so many brokers that can be popped from."""

    async def main() -> None:
        names = [f"broker-{letter}" for letter in "abc"[:count]]
        async with FakeCluster(names) as cluster:
            for topic in topics or ("T",):
                cluster.add_topic(topic)
            await test(cluster, *(PopBroker(cluster.brokers[name]) for name in names))

    run_async(main)


def bodies(messages: list[Any]) -> list[str]:
    return [message.body.decode() for message in messages]


def test_a_pop_asks_for_what_was_said_and_an_ack_has_the_receipt():
    async def test(cluster, broker):
        broker.add("a", "b", tag="A")
        async with AsyncSimpleConsumer(
            cluster.namesrv_address, "G", {"T": "A || B"}, start_from="first"
        ) as consumer:
            (one,) = await consumer.receive(1, invisible_ms=20_000, wait_ms=4_000)
            assert (one.body, one.topic, one.broker_name) == (b"a", "T", "broker-a")
            await consumer.ack(one)
            (heartbeat, *_) = broker.broker.of_code(34)
        asked = broker.asked(POP)[0]
        assert int(asked.pop("pollTime")) in range(3_000, 4_001)
        assert asked == {
            "consumerGroup": "G",
            "topic": "T",
            "queueId": "-1",
            "maxMsgNums": "1",
            "invisibleTime": "20000",
            "bornTime": "0",  # of the broker's clock: ours may differ
            "initMode": "0",
            "expType": "TAG",
            "exp": "A || B",
            "order": "false",
            "bname": "broker-a",
        }
        assert broker.asked(ACK) == [
            {
                "consumerGroup": "G",
                "topic": "T",
                "queueId": "0",
                "extraInfo": "0 77 20000 3 0 broker-a 0 0",
                "offset": "0",
                "bname": "broker-a",
            }
        ]
        (said,) = HeartbeatData.decode(heartbeat.body).consumer_data_set
        assert (said.group_name, said.consume_type) == ("G", "CONSUME_POP")
        assert [wish.topic for wish in said.subscription_data_set] == ["T"]
        assert broker.asked(35)[-1]["consumerGroup"] == "G"

    run_on(1, test)


def test_a_receive_takes_32_for_a_minute_and_waits_five_seconds_unless_it_is_told_otherwise():
    async def test(cluster, broker):
        broker.add("a")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            await consumer.receive()
        asked = broker.asked(POP)[0]
        assert (asked["maxMsgNums"], asked["invisibleTime"]) == ("32", "60000")
        assert int(asked["pollTime"]) in range(4_000, 5_001)

    run_on(1, test)


def test_a_long_wait_is_several_requests():
    async def test(cluster, broker):
        broker.add("a")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            await consumer.receive(wait_ms=600_000)
        assert broker.asked(POP)[0]["pollTime"] == "20000"

    run_on(1, test)


def test_several_are_acknowledged_in_one_request_to_each_broker():
    async def test(cluster, one, two):
        one.add("a", "b", "c")
        two.add("x")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            got = await consumer.receive(40)
            assert sorted(bodies(got)) == ["a", "b", "c", "x"]
            await consumer.ack(message for message in got if message.body != b"b")
            two.broker.reactions[ACK] = refuse(208, "no such message")
            with pytest.raises(ResponseError, match="208"):
                await consumer.ack(got)
            got[0].properties.clear()
            with pytest.raises(InvalidMessageError):
                await consumer.ack(got[0])
        first, second = one.broker.of_code(BATCH_ACK)
        (ack,) = BatchAckBody.decode(first.body).acks
        assert (ack.consumer_group, ack.topic, ack.offsets()) == ("G", "T", [0, 2])
        assert BatchAckBody.decode(second.body).acks[0].offsets() == [0, 1, 2]
        assert len(two.asked(ACK)) == 2

    run_on(2, test)


def test_a_changed_invisible_time_gives_the_message_another_receipt():
    async def test(cluster, broker):
        broker.add("a", "b")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            _, message = await consumer.receive(2, invisible_ms=1_000)
            await consumer.change_invisible(message, 5_000)
            await consumer.ack(message)
            broker.broker.reactions[CHANGE] = refuse(208)
            with pytest.raises(ResponseError):
                await consumer.change_invisible(message, 5_000)
        change = broker.asked(CHANGE)[0]
        assert (change["invisibleTime"], change["offset"]) == ("5000", "1")
        assert change["extraInfo"] == "0 77 1000 3 0 broker-a 0 1"
        assert broker.asked(ACK)[0]["extraInfo"] == "1 99 5000 4 0 broker-a 0 1"

    run_on(1, test)


def test_a_message_of_a_retry_topic_is_acknowledged_there():
    async def test(cluster, broker):
        broker.add("a")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            (message,) = await consumer.receive()
            for kind, topic in (("1", "%RETRY%G_T"), ("2", "%RETRY%G+T")):
                message.properties["POP_CK"] = f"0 77 1000 3 {kind} broker-a 0 0"
                await consumer.ack(message)
                await consumer.change_invisible(message, 10)
                assert broker.asked(ACK)[-1]["topic"] == topic
                assert broker.asked(CHANGE)[-1]["topic"] == topic
                assert message.properties["POP_CK"].split()[4] == kind

    run_on(1, test)


def test_more_than_a_broker_gives_at_once_is_several_requests():
    async def test(cluster, broker):
        broker.add(*(f"m{number}" for number in range(70)))
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            assert len(await consumer.receive(70, wait_ms=0)) == 70
        counts = [(fields["maxMsgNums"], fields["pollTime"]) for fields in broker.asked(POP)]
        assert counts == [("32", "0"), ("32", "0"), ("6", "0")]

    run_on(1, test)


def test_of_several_brokers_each_is_asked_and_then_told_to_say_when_it_has_something():
    async def test(cluster, one, two):
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            received = asyncio.ensure_future(consumer.receive(8, wait_ms=10_000))
            await until(lambda: one.parked and two.parked)
            two.add("late")
            assert bodies(await received) == ["late"]
            assert {fields["pollTime"] for fields in one.asked(POP) + two.asked(POP)} == {"0"}
            # The notice that still waits at the first broker is used again.
            received = asyncio.ensure_future(consumer.receive(8, wait_ms=10_000))
            await until(lambda: two.parked)
            one.add("later")
            assert bodies(await received) == ["later"]
            assert len(one.asked(NOTIFICATION)) == 1
            assert await consumer.receive(8, wait_ms=100) == []

    run_on(2, test)


def test_topics_are_taken_in_turn():
    async def test(cluster, broker):
        broker.add("a", "b", "c", "d")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", ["T", "U"]) as consumer:
            topics = [(await consumer.receive(1))[0].topic for _ in range(4)]
        assert sorted(topics) == ["T", "T", "U", "U"]
        assert topics[0] != topics[1]

    run_on(1, test, "T", "U")


def test_a_broker_that_is_gone_does_not_keep_the_others_messages():
    async def test(cluster, one, two):
        two.add("x")
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            await one.broker.stop()
            assert bodies(await consumer.receive(8)) == ["x"]
            one.broker.reactions[POP] = two.broker.reactions[POP] = refuse(26, "no such group")
            with pytest.raises((ResponseError, UnreachableError)):  # the first that failed
                await consumer.receive(8, wait_ms=0)

    run_on(2, test)


@pytest.mark.parametrize("code", [209, 210, 19])
def test_a_broker_that_does_not_wait_is_not_asked_like_mad(code):
    async def test(cluster, broker):
        broker.broker.reactions[POP] = refuse(code)
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            started = time.monotonic()
            assert await consumer.receive(8, wait_ms=300) == []
            assert time.monotonic() - started >= 0.29
            assert 2 <= len(broker.asked(POP)) <= 6

    run_on(1, test)


def test_what_only_looks_like_ours_is_acknowledged_and_not_returned():
    async def test(cluster, broker):
        broker.add("a", tag="Aa")
        broker.add("b", tag="BB")  # the same hash
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", {"T": "Aa"}) as consumer:
            assert bodies(await consumer.receive(8)) == ["a"]
            await until(lambda: broker.asked(ACK))
        assert [fields["offset"] for fields in broker.asked(ACK)] == ["1"]

    run_on(1, test)


def test_an_expression_in_sql_goes_with_the_pop():
    async def test(cluster, broker):
        wanted = {"T": sql("price > 3")}
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", wanted) as consumer:
            await consumer.receive(8, wait_ms=0)
        asked = broker.asked(POP)[0]
        assert (asked["expType"], asked["exp"], asked["initMode"]) == ("SQL92", "price > 3", "1")

    run_on(1, test)


def test_a_pop_has_a_json_header_whatever_the_client_speaks():
    async def test(cluster, broker):
        broker.add("a")
        async with AsyncSimpleConsumer(
            cluster.namesrv_address, "G", "T", encoding=Encoding.BINARY
        ) as consumer:
            await consumer.ack(await consumer.receive())
        codes = {request.code: request.encoding for request in broker.broker.requests}
        assert codes[POP] is codes[ACK] is Encoding.JSON
        assert codes[34] is Encoding.BINARY

    run_on(1, test)


@pytest.mark.feature("X3")
def test_on_our_broker_what_is_not_acknowledged_comes_again(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Jobs", queues=2)
            await world.send("Jobs", "a", "b", "c")
            async with AsyncSimpleConsumer(
                world.namesrv, "workers", "Jobs", start_from="first"
            ) as consumer:
                got = await received(consumer, 3, invisible_ms=1_000)
                by_body = {message.body: message for message in got}
                assert sorted(by_body) == [b"a", b"b", b"c"]
                await consumer.ack(by_body[b"a"])
                await consumer.change_invisible(by_body[b"b"], 60_000)
                (again,) = await received(consumer, 1, invisible_ms=60_000)
                assert (again.body, again.reconsume_times) == (b"c", 1)
                await consumer.ack([again, by_body[b"b"]])
                assert await consumer.receive(8, wait_ms=100) == []

    run_async(main)


@pytest.mark.feature("X3")
def test_on_our_broker_an_ordered_queue_waits_for_its_acks(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Steps", queues=1)
            await world.send("Steps", *"abcd")
            settings = {"start_from": "first", "ordered": True}
            async with (
                AsyncSimpleConsumer(world.namesrv, "workers", "Steps", **settings) as one,
                AsyncSimpleConsumer(world.namesrv, "workers", "Steps", **settings) as two,
            ):
                first = await one.receive(2, invisible_ms=2_000)
                assert bodies(first) == ["a", "b"]
                assert await two.receive(2, wait_ms=100) == []  # nothing overtakes
                await one.ack(first[0])
                (again,) = await two.receive(
                    1, invisible_ms=60_000
                )  # what was not acknowledged first
                assert (again.body, again.reconsume_times) == (b"b", 1)
                await two.ack(again)
                rest = await one.receive(8)
                assert [(each.body, each.reconsume_times) for each in rest] == [
                    (b"c", 0),
                    (b"d", 0),
                ]
                await one.ack(rest)
                assert await two.receive(8, wait_ms=100) == []

    run_async(main)


def test_an_ordered_pop_whose_answer_was_lost_is_the_same_attempt():
    async def test(cluster, broker):
        async with AsyncSimpleConsumer(
            cluster.namesrv_address, "G", "T", ordered=True, request_timeout_ms=300
        ) as consumer:
            broker.add("a")
            await consumer.receive(wait_ms=0)
            broker.broker.reactions[POP] = silent
            with pytest.raises(RequestTimeoutError):
                await consumer.receive(wait_ms=0)
            broker.broker.reactions[POP] = broker.pop
            await consumer.receive(wait_ms=0)
            await consumer.receive(wait_ms=0)
        asked = broker.asked(POP)
        assert {fields["order"] for fields in asked} == {"true"}
        answered, lost, same, other = [fields["attemptId"] for fields in asked]
        assert lost == same
        assert len({answered, lost, other}) == 3

    run_on(1, test)


async def received(consumer, count, invisible_ms):
    messages = []
    async with asyncio.timeout(20):
        while len(messages) < count:
            messages += await consumer.receive(count - len(messages), invisible_ms)
    return messages


def test_waits_end_when_the_consumer_is_closed():
    async def test(cluster, one, two):
        consumer = await AsyncSimpleConsumer(cluster.namesrv_address, "G", "T").open()
        received = asyncio.ensure_future(consumer.receive(8, wait_ms=60_000))
        await until(lambda: one.parked and two.parked)
        await consumer.close()
        with pytest.raises(ClientClosedError):
            await received
        for call in (consumer.receive(), consumer.ack([])):
            with pytest.raises(ClientClosedError):
                await call

    run_on(2, test)


def test_a_broker_that_does_not_answer_is_given_up():
    async def test(cluster, broker):
        broker.broker.reactions[POP] = silent
        async with AsyncSimpleConsumer(
            cluster.namesrv_address, "G", "T", request_timeout_ms=100
        ) as consumer:
            with pytest.raises(RequestTimeoutError):
                await consumer.receive(8, wait_ms=50)

    run_on(1, test)


def test_a_topic_that_nobody_knows():
    async def test(cluster, broker):
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "Nowhere") as consumer:
            with pytest.raises(NoRouteError):
                await consumer.receive()

    run_on(1, test)


def test_what_cannot_work_is_refused():
    with pytest.raises(ConfigError, match="topic"):
        AsyncSimpleConsumer(group="G")
    with pytest.raises(ConfigError, match="start_from"):
        AsyncSimpleConsumer(group="G", topics="T", start_from=5)
    with pytest.raises(ConfigError, match="worker"):
        AsyncSimpleConsumer(group="G", topics="T", workers=5)

    async def test(cluster, broker):
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            for given in ({"max_messages": 0}, {"invisible_ms": 0}, {"wait_ms": -1}):
                with pytest.raises(InvalidMessageError, match=next(iter(given))):
                    await consumer.receive(**given)
            with pytest.raises(InvalidMessageError, match="invisible_ms"):
                await consumer.change_invisible(None, 0)

    run_on(1, test)


def test_what_a_broker_may_ask_it():
    async def test(cluster, broker):
        async with AsyncSimpleConsumer(cluster.namesrv_address, "G", "T") as consumer:
            info = consumer.running_info()
            assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_POP"
            assert [wish.topic for wish in info.subscription_set] == ["T"]
            assert consumer.offsets("T") == {}
            consumer.on_members_changed()
            consumer.on_reset_offsets("T", {})
            result = await consumer.consume_directly(None, "broker-a")
            assert result.consume_result == "CR_THROW_EXCEPTION"

    run_on(1, test)


def test_any_thread_may_receive():
    def work(namesrv):
        with SimpleConsumer(namesrv, "G", "T") as consumer:
            messages = consumer.receive(2, invisible_ms=1_000, wait_ms=1_000)
            consumer.change_invisible(messages[0], 10)
            consumer.ack(messages)
            assert consumer.group == "G"
            assert consumer.receive(wait_ms=0) == []
            return bodies(messages)

    async def test(cluster, broker):
        broker.add("a", "b")
        assert await asyncio.to_thread(work, cluster.namesrv_address) == ["a", "b"]
        # After the change the two do not belong to one pop any more.
        (request,) = broker.broker.of_code(BATCH_ACK)
        assert len(BatchAckBody.decode(request.body).acks) == 2

    run_on(1, test)
