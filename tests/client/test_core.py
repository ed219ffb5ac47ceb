"""What the clients of one client id share."""

import pytest

from async_run import run_async, until
from fake_cluster import FakeCluster, hang_up
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.message import Message, ReceivedMessage
from orbitmq.client.producer.producer import AsyncProducer, send_inner
from orbitmq.errors import ClientError
from orbitmq.wire.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo, DirectConsumeResult
from orbitmq.wire.codes import RequestCode


class FakeConsumer:
    """A consumer that only remembers what it is told."""

    def __init__(self, group: str = "CG") -> None:
        self.group = group
        self.heard: list[object] = []

    def consumer_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group, subscription_data_set=[Subscription(topic="T", sub_version=5)]
        )

    def on_members_changed(self) -> None:
        self.heard.append("members")

    def on_reset_offsets(self, topic, offsets) -> None:
        self.heard.append((topic, dict(offsets)))

    def offsets(self, topic):
        return {}

    def running_info(self) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY"})

    async def consume_directly(self, message: ReceivedMessage, broker_name: str):
        return DirectConsumeResult()


def config(cluster: FakeCluster, **settings) -> ClientConfig:
    return ClientConfig(namesrv=(cluster.namesrv_address,), **settings)


def test_clients_with_one_instance_name_share_a_core():
    async def main():
        async with FakeCluster() as cluster:
            same = config(cluster, instance_name="one", client_ip="127.0.0.1")
            first = await ClientCore.acquire(same)
            second = await ClientCore.acquire(same)
            other = await ClientCore.acquire(config(cluster))

            assert first is second
            assert other is not first
            await first.release()
            assert await second.namesrv.route("T") is None  # still open
            await second.release()
            assert await ClientCore.acquire(same) is not first
            await (await ClientCore.acquire(same)).release()
            await other.release()

    run_async(main)


def test_heartbeats_tell_brokers_who_we_are():
    async def main():
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("T")
            core = await ClientCore.acquire(config(cluster))
            await core.routes.publish_route("T")
            assert await core.heartbeat() == 0  # nobody is in here

            core.add_consumer(FakeConsumer())
            async with AsyncProducer.on_core(core, "PG"):
                assert await core.heartbeat() == 2

            for broker in cluster.brokers.values():
                data = HeartbeatData.decode(broker.of_code(RequestCode.HEART_BEAT)[-1].body)
                assert data.client_id == core.client_id
                assert [one.group_name for one in data.producer_data_set] == ["PG"]
                assert [one.group_name for one in data.consumer_data_set] == ["CG"]
            assert set(core.broker_versions) == {b.address for b in cluster.brokers.values()}
            await core.release()

    run_async(main)


def test_producers_alone_greet_primaries_only():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            route = cluster.namesrv.routes["T"]
            route.broker_datas[0].broker_addrs[1] = "127.0.0.1:1"
            core = await ClientCore.acquire(config(cluster))
            await core.routes.publish_route("T")
            async with AsyncProducer.on_core(core, "PG"):
                assert await core.heartbeat() == 1
                core.add_consumer(FakeConsumer())
                assert await core.heartbeat() == 1  # the replica is not there: only logged
            assert "127.0.0.1:1" not in core.broker_versions
            await core.release()

    run_async(main)


def test_leaving_a_group_is_told_to_the_brokers():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            core = await ClientCore.acquire(config(cluster))
            await core.routes.publish_route("T")
            consumer = FakeConsumer()
            core.add_consumer(consumer)
            await core.heartbeat()

            await core.remove_consumer(consumer)

            (request,) = cluster.brokers["broker-a"].of_code(RequestCode.UNREGISTER_CLIENT)
            assert request.fields == {"clientID": core.client_id, "consumerGroup": "CG"}
            await core.release()

    run_async(main)


def test_one_group_cannot_be_twice_in_a_client():
    async def main():
        async with FakeCluster() as cluster:
            core = await ClientCore.acquire(config(cluster))
            core.add_consumer(FakeConsumer())

            with pytest.raises(ClientError, match="instance_name"):
                core.add_consumer(FakeConsumer())
            await core.release()

    run_async(main)


def test_a_new_connection_is_greeted_at_once():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            broker = cluster.brokers["broker-a"]
            async with AsyncProducer(config=config(cluster)) as producer:
                await producer.send(Message("T", b"1"))
                await until(lambda: len(broker.of_code(RequestCode.HEART_BEAT)) == 1)
                broker.script = [hang_up]

                await producer.send(Message("T", b"2"))

                await until(lambda: len(broker.of_code(RequestCode.HEART_BEAT)) == 2)

    run_async(main)


def test_messages_of_consumers_go_out_under_the_inner_group():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("%RETRY%CG", queues=1)
            core = await ClientCore.acquire(config(cluster))

            retried = Message("%RETRY%CG", b"x", reserved={"RECONSUME_TIME": "2"})
            result = await send_inner(core, retried)

            (request,) = cluster.brokers["broker-a"].sends
            assert request.fields["a"] == "CLIENT_INNER_PRODUCER"
            assert request.fields["j"] == "2"
            assert result.queue.topic == "%RETRY%CG"
            await core.release()

    run_async(main)


def test_routes_and_heartbeats_come_by_themselves():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            settings = {"heartbeat_interval_ms": 5, "route_interval_ms": 5}
            core = await ClientCore.acquire(config(cluster, **settings))
            core.add_consumer(FakeConsumer())
            core.routes.watch("T")

            await until(lambda: cluster.brokers["broker-a"].of_code(RequestCode.HEART_BEAT))
            await core.release()

    run_async(main)
