"""The admin client on a real name server and real brokers."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from async_run import run_async
from consumer_world import Seen, broker_config, consumer_world, until
from fake_cluster import FakeCluster, refuse
from orbitmq.broker.broker import Broker
from orbitmq.client import Admin, AsyncAdmin, AsyncConsumer, Message
from orbitmq.client.admin.base import is_system_group, is_system_topic
from orbitmq.errors import (
    ClientClosedError,
    ClientError,
    InvalidMessageError,
    NoRouteError,
    ResponseError,
    UnreachableError,
)
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import BrokerData, ClusterInfo
from orbitmq.wire.bodies.stats import ConsumeStats, QueueProgress
from orbitmq.wire.bodies.topic_config import TopicConfig, TopicTable


@asynccontextmanager
async def admin_world(tmp_path: Path, **given):
    async with consumer_world(tmp_path, **given) as world, AsyncAdmin(world.namesrv) as admin:
        yield world, admin


async def dispatched(world) -> None:
    assert await asyncio.to_thread(world.broker.context.store.wait_dispatched)


def run_with_admin(tmp_path, test):
    async def main():
        async with admin_world(tmp_path) as (world, admin):
            await test(world, admin)

    run_async(main)


# --- topics ---


def test_topics_are_created_changed_and_deleted(tmp_path):
    async def test(world, admin):
        made = await admin.create_topic("Orders", queues=3, attributes={"message.type": "NORMAL"})
        assert (made.read_queues, made.write_queues, made.brokers) == (3, 3, ["broker-a"])
        assert made.attributes == {"message.type": "NORMAL"}
        assert await admin.topics() == ["Orders"]
        assert {"TBW102", "Orders"} <= set(await admin.topics(system=True))
        assert await admin.topics(cluster="DefaultCluster") == ["Orders"]

        changed = await admin.create_topic("Orders", read_queues=3, write_queues=1, perm=4)
        await until(lambda: read_only(admin))
        assert changed.topic == "Orders"

        await admin.delete_topic("Orders")
        assert await admin.topics() == []
        with pytest.raises(NoRouteError):
            await admin.topic("Orders")

    async def read_only(admin):
        (share,) = (await admin.topic("Orders")).shares
        return (share.read_queues, share.write_queues, share.is_writable) == (3, 1, False)

    run_with_admin(tmp_path, test)


def test_an_ordered_topic_is_told_to_the_name_servers(tmp_path):
    async def test(world, admin):
        made = await admin.create_topic("Steps", queues=2, ordered=True)

        assert made.ordered
        assert await admin.get_kv("ORDER_TOPIC_CONFIG", "Steps") == "broker-a:2"

    run_with_admin(tmp_path, test)


def test_queues_of_a_topic(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=2)
        await world.send("Orders", "a", "b", "c", queue_id=1)
        await dispatched(world)

        empty, full = await admin.topic_stats("Orders")

        assert (empty.message_count, empty.last_ms) == (0, 0)
        assert (full.queue, full.min_offset, full.max_offset) == (world.queue("Orders", 1), 0, 3)
        assert full.last_ms > 0
        assert await admin.offsets_at("Orders", 0) == {
            world.queue("Orders", 0): 0,
            world.queue("Orders", 1): 0,
        }
        config = await admin.topic_config("Orders", "broker-a")
        assert config.read_queue_nums == 2
        assert await admin.topic_config("Nowhere", world.broker.address) is None

    run_with_admin(tmp_path, test)


def test_names_are_checked_before_anybody_is_asked(tmp_path):
    async def test(world, admin):
        with pytest.raises(InvalidMessageError):
            await admin.create_topic("bad name")
        with pytest.raises(InvalidMessageError):
            await admin.create_group("bad name")
        with pytest.raises(ClientError, match="no primary broker in broker-x"):
            await admin.create_topic("T", broker="broker-x")
        with pytest.raises(ClientError, match="no primary broker in NoCluster"):
            await admin.create_topic("T", cluster="NoCluster")

    run_with_admin(tmp_path, test)


# --- groups ---


def test_groups_are_created_and_deleted(tmp_path):
    async def test(world, admin):
        await admin.create_group("G", retries_max=3, orderly=True)

        (info,) = await admin.groups()
        assert (info.group, info.retries_max, info.orderly) == ("G", 3, True)
        assert info.brokers == ["broker-a"]
        assert await admin.group("G") == info
        assert await admin.group("none") is None
        assert len(await admin.groups(system=True)) > 1
        await admin.delete_group("G", dead_letters=True)
        assert await admin.groups() == []

    run_with_admin(tmp_path, test)


def test_progress_members_and_subscriptions_of_a_group(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=2)
        await world.send("Orders", "a", "b", "c", queue_id=0)
        seen = Seen()
        async with AsyncConsumer(
            world.namesrv, "G", {"Orders": "*"}, handler=seen, start_from="first"
        ):
            await until(lambda: len(seen.messages) == 3)
            state = await admin.consumers("G")
            assert state.is_online
            assert [client.language for client in state.clients] == ["PYTHON"]
            assert {one.topic for one in state.subscriptions} == {"Orders", "%RETRY%G"}
            assert state.message_model == "CLUSTERING"
            info = await admin.running_info("G", state.clients[0].client_id)
            assert world.queue("Orders", 0) in info.mq_table
            progress = await admin.progress("G", "Orders", members=True)
            assert {lag.client_id for lag in progress.queues} == {state.clients[0].client_id}
        assert not (await admin.consumers("G")).is_online

        await world.send("Orders", "d", "e", queue_id=0)
        await dispatched(world)
        progress = await admin.progress("G")
        assert progress.lag == 2
        assert progress.of_topic("Orders")[0].consumer_offset == 3
        assert "Orders" in progress.topics
        assert progress.of_topic("Orders")[0].last_ms > 0
        assert "G" in await admin.groups_of_topic("Orders")
        assert "Orders" in await admin.topics_of_group("G")
        spans = await admin.time_spans("G", "Orders")
        assert len(spans) == 2
        with pytest.raises(ResponseError):
            await admin.running_info("G", "nobody")

    run_with_admin(tmp_path, test)


def test_producers_of_a_group(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders")
        await world.send("Orders", "a")
        core = world.producer._core
        await core.heartbeat()

        (client,) = await admin.producers("test-producer", "Orders")

        assert client.client_id == core.client_id
        assert await admin.producers("nobody", "Orders") == []

    run_with_admin(tmp_path, test)


def test_a_group_is_moved(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=2)
        await admin.create_group("G")
        for queue_id in (0, 1):
            await world.send("Orders", "a", "b", "c", queue_id=queue_id)
        await dispatched(world)

        plan = await admin.plan_reset("G", "Orders", "latest")
        assert [(change.old_offset, change.new_offset) for change in plan] == [(-1, 3), (-1, 3)]
        assert (await admin.progress("G")).queues == []  # nothing was changed

        done = await admin.reset_offsets("G", "Orders", "latest")
        assert [change.new_offset for change in done] == [3, 3]
        assert (await admin.progress("G")).lag == 0
        done = await admin.reset_offsets("G", "Orders", 0, queue_id=1)
        assert [(change.queue.queue_id, change.new_offset) for change in done] == [(1, 0)]
        assert (await admin.progress("G")).lag == 3
        await admin.set_offset("G", world.queue("Orders", 0), 1)
        assert (await admin.progress("G")).lag == 5
        done = await admin.reset_offsets("G", "Orders", "earliest")
        assert (await admin.progress("G")).lag == 6
        await admin.clone_offsets("G", "Copy", "Orders")
        assert (await admin.progress("Copy", "Orders")).lag == 6
        with pytest.raises(ClientError, match="does not serve"):
            await admin.set_offset("G", MessageQueue("Orders", "broker-x", 0), 0)

    run_with_admin(tmp_path, test)


def test_an_older_broker_without_members_gets_the_offsets_written():
    written = []

    async def main():
        async with FakeCluster() as cluster, AsyncAdmin(cluster.namesrv_address) as admin:
            cluster.add_topic("Orders", queues=1)
            broker = cluster.brokers["broker-a"]
            broker.reactions |= {
                14: refuse(22),
                30: lambda connection, request: request.answer(fields={"offset": "7"}),
                222: refuse(206, "not online"),
                15: lambda connection, request: written.append(request) or request.answer(),
            }

            (change,) = await admin.reset_offsets("G", "Orders", "latest")

            assert (change.old_offset, change.new_offset) == (-1, 7)
            assert written[0].fields["commitOffset"] == "7"

    run_async(main)


def test_a_group_that_an_older_broker_never_saw_is_written_too_but_not_one_with_members():
    async def main():
        async with FakeCluster() as cluster, AsyncAdmin(cluster.namesrv_address) as admin:
            cluster.add_topic("Orders", queues=1)
            broker = cluster.brokers["broker-a"]
            broker.reactions |= {
                14: refuse(22),
                31: lambda connection, request: request.answer(fields={"offset": "2"}),
                222: refuse(1, "THe consumer group <G> not exist"),
                203: refuse(206, "not online"),
                15: lambda connection, request: request.answer(),
            }
            await admin.reset_offsets("G", "Orders", "earliest")
            assert broker.of_code(15)[0].fields["commitOffset"] == "2"

            broker.reactions[203] = lambda connection, request: request.answer(body=b"{}")
            with pytest.raises(ResponseError, match="not exist"):
                await admin.reset_offsets("G", "Orders", "earliest")

    run_async(main)


def test_what_older_brokers_do_not_know_is_asked_in_another_way():
    async def main():
        async with FakeCluster() as cluster, AsyncAdmin(cluster.namesrv_address) as admin:
            cluster.add_topic("Orders", queues=1)
            config = TopicConfig(topic_name="Orders", order=True)
            queue = MessageQueue("Orders", "broker-a", 0)
            stats = ConsumeStats(offset_table={queue: QueueProgress()})
            cluster.brokers["broker-a"].reactions |= {
                21: lambda connection, request: request.answer(
                    body=TopicTable(topic_config_table={"Orders": config}).encode()
                ),
                208: lambda connection, request: request.answer(body=stats.encode()),
            }

            assert (await admin.topic("Orders")).ordered
            assert await admin.topics_of_group("G") == ["Orders"]

    run_async(main)


# --- messages ---


def test_a_message_is_found_by_everything_that_is_known_of_it(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=1)
        sent = [
            await world.producer.send(Message("Orders", b"%d" % n, keys=[f"k{n}", "all"]))
            for n in range(5)
        ]
        await dispatched(world)
        one = sent[3]

        for found in (
            await admin.message(one.message_id, "Orders"),
            await admin.message(one.offset_id, "Orders"),
            await admin.message(one.offset_id),
            await admin.message_at(one.queue, one.queue_offset),
            (await admin.messages_by_key("Orders", "k3"))[0],
        ):
            assert found is not None
            assert (found.body, found.broker_name) == (b"3", "broker-a")
        bodies = [m.body for m in await admin.messages_by_key("Orders", "all")]
        assert bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert len(await admin.messages_by_key("Orders", "all", count_max=2)) == 2
        assert await admin.messages_by_key("Orders", "all", end_ms=5) == []

    run_with_admin(tmp_path, test)


def test_messages_that_are_not_there(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=1)
        result = await world.producer.send(Message("Orders", b"x"))
        beyond = result.offset_id[:-1] + "7"

        assert await admin.message("no id at all", "Orders") is None
        assert await admin.message(beyond) is None
        assert await admin.messages_by_key("Orders", "nothing") == []
        assert await admin.message_at(result.queue, 99) is None
        with pytest.raises(ClientError, match="give the topic"):
            await admin.message("0" * 32)
        assert await admin.message("0" * 32, "Orders") is None
        with pytest.raises(NoRouteError):
            await admin.messages_by_key("Nowhere", "k")

    run_with_admin(tmp_path, test)


def test_a_queue_is_browsed(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders", queues=1)
        queue = world.queue("Orders", 0)
        for number in range(100):
            await world.send("Orders", str(number), tag="even" if number % 2 == 0 else "odd")
        await dispatched(world)

        assert await admin.queue_range(queue) == (0, 100)
        bodies = [int(m.body) async for m in admin.browse(queue, 10, 90)]
        assert bodies == list(range(10, 90))
        even = [int(m.body) async for m in admin.browse(queue, 0, 200, expression="even")]
        assert even == list(range(0, 100, 2))
        with pytest.raises(ClientError, match="does not serve"):
            await admin.queue_range(MessageQueue("Orders", "broker-x", 0))

    run_with_admin(tmp_path, test)


# --- brokers ---


def test_brokers_and_their_figures(tmp_path):
    async def test(world, admin):
        assert await admin.clusters() == {"DefaultCluster": ["broker-a"]}
        (broker,) = await admin.brokers()
        assert (broker.name, broker.is_primary, broker.error) == ("broker-a", True, "")
        assert broker.address == world.broker.address
        assert broker.version
        assert -1 <= broker.disk_ratio <= 1
        assert (broker.put_tps, broker.get_tps) == (0.0, 0.0)
        (bare,) = await admin.brokers(runtime=False)
        assert bare.runtime == {}
        assert await admin.brokers(cluster="NoCluster") == []
        config = await admin.broker_config("broker-a")
        assert config["brokerName"] == "broker-a"
        assert "bootTimestamp" in await admin.broker_runtime(world.broker.address)

    run_with_admin(tmp_path, test)


def test_a_broker_that_is_down_is_listed_with_the_reason():
    async def main():
        async with FakeCluster() as cluster, AsyncAdmin(cluster.namesrv_address) as admin:
            cluster.namesrv.cluster.broker_addr_table["gone"] = BrokerData(
                broker_name="gone", cluster="c", broker_addrs={0: "127.0.0.1:1"}
            )

            brokers = {broker.name: broker for broker in await admin.brokers()}

            assert "127.0.0.1:1" in brokers["gone"].error
            assert brokers["broker-a"].error  # it answers, but not this

    run_async(main)


def test_producers_can_be_kept_away_from_a_broker(tmp_path):
    async def test(world, admin):
        await admin.create_topic("Orders")
        assert await admin.wipe_write_permission("broker-a") > 1
        assert (await admin.topic("Orders")).write_queues == 0
        assert await admin.add_write_permission("broker-a") > 1
        assert (await admin.topic("Orders")).write_queues > 0
        await admin.put_kv("n", "k", "v")
        assert await admin.get_kv("n", "k") == "v"
        await admin.delete_kv("n", "k")
        assert await admin.get_kv("n", "k") is None
        assert list(await admin.namesrv_config()) == [world.namesrv]

    run_with_admin(tmp_path, test)


def test_two_brokers_are_one_cluster(tmp_path):
    async def test(world, admin):
        second = broker_config(tmp_path / "second", world.namesrv, "broker-b")
        async with Broker(second):
            made = await admin.create_topic("Orders", queues=2)
            assert (made.brokers, made.write_queues) == (["broker-a", "broker-b"], 4)
            only = await admin.create_topic("Alone", queues=1, broker="broker-b")
            assert only.brokers == ["broker-b"]
            results = [await world.producer.send(Message("Orders", b"x", keys="k")) for _ in "1234"]
            assert {result.queue.broker_name for result in results} == {"broker-a", "broker-b"}
            await until(lambda: found(admin))
            assert sum(stats.message_count for stats in await admin.topic_stats("Orders")) == 4

    async def found(admin):
        return len(await admin.messages_by_key("Orders", "k")) == 4

    run_with_admin(tmp_path, test)


# --- the synchronous face ---


def test_the_synchronous_admin_does_the_same(tmp_path):
    def work(world):
        with Admin(world.namesrv) as admin:
            admin.create_topic("Orders", queues=1)
            admin.create_group("G")
            assert admin.topics() == ["Orders"]
            assert admin.clusters() == {"DefaultCluster": ["broker-a"]}
            queue = world.queue("Orders", 0)
            assert list(admin.browse(queue, 0, 10)) == []
            assert admin.queue_range(queue) == (0, 0)
            assert admin.progress("G").lag == 0
            assert [group.group for group in admin.groups()] == ["G"]
            assert admin.topic_stats("Orders")[0].message_count == 0
            admin.delete_topic("Orders")
        with pytest.raises(ClientClosedError):
            admin.topics()

    async def main():
        async with consumer_world(tmp_path) as world:
            await asyncio.to_thread(work, world)

    run_async(main)


def test_nobody_there_is_said_with_a_next_step():
    with (
        Admin("127.0.0.1:1") as admin,
        pytest.raises(UnreachableError, match="orbitmq namesrv run"),
    ):
        admin.topics()


def test_what_belongs_to_the_system():
    cluster = ClusterInfo(
        cluster_addr_table={"C": ["b"]}, broker_addr_table={"b": BrokerData(broker_name="b")}
    )

    for topic in ("TBW102", "%RETRY%g", "%DLQ%g", "rmq_sys_x", "C", "b", "C_REPLY_TOPIC"):
        assert is_system_topic(topic, cluster)
    assert not is_system_topic("Orders", cluster)
    assert not is_system_topic("C")
    assert is_system_group("TOOLS_CONSUMER")
    assert not is_system_group("G")
