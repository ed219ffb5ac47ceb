"""What brokers ask clients."""

from async_run import run_async
from client.test_core import FakeConsumer, config
from fake_cluster import FakeCluster
from orbitmq.client.core.core import ClientCore
from orbitmq.format.record import encode_record
from orbitmq.message import LOOPBACK, AppendRequest
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo
from orbitmq.wire.bodies.stats import ConsumerStatus, ResetOffsets
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command


class FakeProducer:
    group = "PG"

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_check_transaction(self, address, request, message) -> None:
        self.heard.append((address, message.body))

    def on_reply(self, message) -> None:
        self.heard.append(message)


def stored(body: bytes, properties: bytes = b"") -> bytes:
    request = AppendRequest("T", 0, body, properties)
    return encode_record(request, log_offset=0, queue_offset=0, store_ms=1, store_host=LOOPBACK)


def run_with_client(test):
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            core = await ClientCore.acquire(config(cluster))
            consumer, producer = FakeConsumer(), FakeProducer()
            core.add_consumer(consumer)
            core.add_producer(producer)
            await core.routes.publish_route("T")
            await core.heartbeat()
            broker = cluster.brokers["broker-a"]
            try:
                await test(broker.connections[0], consumer, producer)
            finally:
                await core.release()

    run_async(main)


async def settled(connection) -> None:
    """Wait until the client has seen what was sent before: it reads in order."""
    await connection.request(Command(307, {"consumerGroup": "nobody"}), 1000)


def test_changed_members_are_told_to_the_group():
    async def test(connection, consumer, producer):
        connection.oneway(Command(40, {"consumerGroup": "CG"}))
        connection.oneway(Command(40, {"consumerGroup": "unknown"}))
        connection.oneway(Command(40))
        await settled(connection)

        assert consumer.heard == ["members"]

    run_with_client(test)


def test_offsets_are_reset():
    async def test(connection, consumer, producer):
        queue = MessageQueue("T", "broker-a", 0)
        fields = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
        connection.oneway(Command(220, fields, ResetOffsets(offset_table={queue: 7}).encode()))
        await settled(connection)

        assert consumer.heard == [("T", {queue: 7})]

    run_with_client(test)


def test_questions_about_a_consumer_are_answered():
    async def test(connection, consumer, producer):
        fields = {"topic": "T", "group": "CG", "consumerGroup": "CG", "clientId": "x"}
        status = await connection.request(Command(221, fields), 1000)
        info = await connection.request(Command(307, fields), 1000)
        nobody = await connection.request(Command(307, fields | {"consumerGroup": "other"}), 1000)

        assert ConsumerStatus.decode(status.body).message_queue_table == {}
        assert "PROP_CONSUME_TYPE" in ConsumerRunningInfo.decode(info.body).properties
        assert (nobody.code, nobody.remark) == (1, "group other is not consumed by this client")
        assert info.language == "PYTHON"

    run_with_client(test)


def test_a_message_is_consumed_directly():
    async def test(connection, consumer, producer):
        fields = {"consumerGroup": "CG", "clientId": "x", "brokerName": "broker-a"}
        answer = await connection.request(Command(309, fields, stored(b"m")), 1000)
        broken = await connection.request(Command(309, fields, b"garbage"), 1000)

        assert answer.code == 0
        assert b'"consumeResult":"CR_SUCCESS"' in answer.body
        assert broken.code == 1

    run_with_client(test)


def test_a_failing_consumer_is_an_answer_not_a_silence():
    async def test(connection, consumer, producer):
        async def fail(message, broker_name):
            raise ValueError("no")

        consumer.consume_directly = fail
        consumer.running_info = lambda: 1 / 0
        fields = {"consumerGroup": "CG", "clientId": "x"}
        for code in (307, 309):
            answer = await connection.request(Command(code, fields, stored(b"m")), 1000)
            assert answer.code == 1

    run_with_client(test)


def test_checks_of_transactions_reach_the_producer_of_the_group():
    async def test(connection, consumer, producer):
        fields = {"tranStateTableOffset": "0", "commitLogOffset": "0"}
        connection.oneway(Command(39, fields, stored(b"half", b"PGROUP\x01PG\x02")))
        connection.oneway(Command(39, fields, stored(b"other", b"PGROUP\x01another\x02")))
        await settled(connection)

        assert producer.heard == [(connection.local, b"half")]

    run_with_client(test)


def test_replies_reach_producers():
    async def test(connection, consumer, producer):
        fields = {"topic": "R", "queueId": "1", "sysFlag": "0", "properties": "A\x01b\x02"}
        answer = await connection.request(Command(326, fields, b"reply"), 1000)

        assert answer.code == 0
        (message,) = producer.heard
        assert int(message.properties.pop("ARRIVE_TIME")) > 0
        assert (message.body, message.properties) == (b"reply", {"A": "b"})

    run_with_client(test)


def test_unknown_requests_are_refused_and_oneway_ones_ignored():
    async def test(connection, consumer, producer):
        connection.oneway(Command(RequestCode.SEND_MESSAGE))
        answer = await connection.request(Command(RequestCode.SEND_MESSAGE), 1000)

        assert answer.code == 3

    run_with_client(test)
