"""Which queues may be written or read."""

import pytest

from async_run import run_async
from fake_cluster import FakeCluster
from orbitmq.client.core.config import ClientConfig
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.route_cache import (
    creation_route,
    ordered_queues,
    publish_queues,
    publish_route,
    subscribe_queues,
)
from orbitmq.errors import NoRouteError, UnreachableError
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import BrokerData, QueueData, TopicRoute
from orbitmq.wire.codes import RequestCode


def broker(name: str, **addresses: str) -> BrokerData:
    by_id = {int(broker_id[1:]): address for broker_id, address in addresses.items()}
    return BrokerData(broker_name=name, cluster="c", broker_addrs=by_id)


def queues(name: str, read: int, write: int, perm: int = 6) -> QueueData:
    return QueueData(broker_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)


def names(found: list[MessageQueue]) -> list[str]:
    return [f"{queue.broker_name}{queue.queue_id}" for queue in found]


def test_publish_queues_are_writable_and_of_brokers_with_a_primary():
    route = TopicRoute(
        broker_datas=[
            broker("b", _0="x:1"),
            broker("a", _0="y:1", _1="y:2"),
            broker("r", _1="z:1"),
        ],
        queue_datas=[queues("b", 8, 2), queues("a", 8, 1), queues("r", 8, 8), queues("w", 8, 8)],
    )

    assert names(publish_queues("T", route)) == ["a0", "b0", "b1"]


def test_a_broker_without_write_permission_gets_no_messages():
    route = TopicRoute(broker_datas=[broker("a", _0="x:1")], queue_datas=[queues("a", 4, 4, 4)])

    assert publish_queues("T", route) == []
    assert len(subscribe_queues("T", route)) == 4


def test_subscribe_queues_are_readable_also_without_a_primary():
    route = TopicRoute(
        broker_datas=[broker("a", _1="x:1")],
        queue_datas=[queues("b", 1, 8), queues("a", 2, 8), queues("c", 4, 4, 2)],
    )

    assert names(subscribe_queues("T", route)) == ["a0", "a1", "b0"]


def test_an_order_configuration_fixes_the_queues():
    route = TopicRoute(
        broker_datas=[broker("a", _0="x:1")],
        queue_datas=[queues("a", 8, 8)],
        order_topic_conf="b:1;a:2",
    )

    assert names(publish_queues("T", route)) == ["b0", "a0", "a1"]
    assert publish_route("T", route).ordered


@pytest.mark.parametrize("conf", ["", ";", "a", "a:x", ":3"])
def test_a_broken_order_configuration_gives_no_queues(conf):
    assert ordered_queues("T", conf) == []


def test_a_topic_to_be_created_gets_the_smaller_number_of_queues():
    route = TopicRoute(broker_datas=[], queue_datas=[queues("a", 8, 3), queues("b", 2, 8)])

    made = creation_route(route, 4)

    assert [(data.read_queue_nums, data.write_queue_nums) for data in made.queue_datas] == [
        (4, 4),
        (2, 2),
    ]


async def core_of(cluster: FakeCluster) -> ClientCore:
    return await ClientCore.acquire(ClientConfig(namesrv=(cluster.namesrv_address,)))


def test_an_unknown_topic_goes_to_the_brokers_of_the_creation_topic():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("TBW102", queues=8, perm=7)
            core = await core_of(cluster)

            route = await core.routes.publish_route("New")

            assert [queue.topic for queue in route.queues] == ["New"] * 4
            assert not route.created
            assert core.routes.primary("broker-a") == cluster.brokers["broker-a"].address
            with pytest.raises(NoRouteError):
                await core.routes.subscribe_queues("New")
            await core.release()

    run_async(main)


def test_a_topic_that_came_to_be_replaces_its_template():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("TBW102", queues=8, perm=7)
            core = await core_of(cluster)
            await core.routes.publish_route("New")
            cluster.add_topic("New", queues=2)

            await core.refresh_routes()

            route = await core.routes.publish_route("New")
            assert (len(route.queues), route.created) == (2, True)
            await core.release()

    run_async(main)


def test_no_route_says_what_to_do():
    async def main():
        async with FakeCluster() as cluster:
            core = await core_of(cluster)
            with pytest.raises(NoRouteError, match="orbitmq topic create"):
                await core.routes.publish_route("Nowhere")
            cluster.add_topic("Closed", perm=4)
            with pytest.raises(NoRouteError, match="may be written"):
                await core.routes.publish_route("Closed")
            await core.release()

    run_async(main)


def test_callers_share_one_question():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            core = await core_of(cluster)
            import asyncio

            await asyncio.gather(*(core.routes.publish_route("T") for _ in range(20)))

            assert len(cluster.namesrv.of_code(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == 1
            await core.release()

    run_async(main)


def test_listeners_hear_of_changes_only():
    async def main():
        async with FakeCluster(["broker-a", "broker-b"]) as cluster:
            cluster.add_topic("T", brokers=["broker-a"])
            core = await core_of(cluster)
            heard: list[str] = []
            core.routes.on_changed(heard.append)

            await core.routes.refresh("T")
            await core.routes.refresh("T")
            assert heard == ["T"]
            cluster.add_topic("T", brokers=["broker-b"])
            await core.refresh_routes()

            assert heard == ["T", "T"]
            assert core.routes.primary("broker-a") is None  # in no route any more
            await core.release()

    run_async(main)


def test_a_name_server_that_is_down_leaves_routes_as_they_are():
    async def main():
        async with FakeCluster() as cluster:
            cluster.add_topic("T")
            core = await core_of(cluster)
            await core.routes.publish_route("T")
            await cluster.namesrv.stop()

            await core.refresh_routes()

            assert len((await core.routes.publish_route("T")).queues) == 2
            with pytest.raises(UnreachableError, match="name server"):
                await core.routes.publish_route("Other")
            await core.release()

    run_async(main)


def test_addresses_for_reading_and_writing():
    async def main():
        async with FakeCluster() as cluster:
            core = await core_of(cluster)
            route = TopicRoute(
                broker_datas=[broker("a", _0="x:1", _1="x:2"), broker("b", _2="y:1")],
                queue_datas=[queues("a", 1, 1)],
            )
            core.routes.put("T", route)

            assert (core.routes.primary("a"), core.routes.primary("b")) == ("x:1", None)
            assert core.routes.address("a", 1) == "x:2"
            assert core.routes.address("a", 7) == "x:1"
            assert core.routes.address("b") == "y:1"
            assert core.routes.any_address("T") == "x:1"
            assert core.routes.any_address("unknown") is None
            assert await core.routes.find_address("a", "T", 1) == "x:2"
            with pytest.raises(UnreachableError, match=r"^z: no address"):
                await core.routes.find_address("z", "T")
            await core.release()

    run_async(main)


def test_watched_topics_are_refreshed_until_all_let_go():
    async def main():
        async with FakeCluster() as cluster:
            core = await core_of(cluster)
            core.routes.watch("Later")
            core.routes.watch("Later")
            core.routes.unwatch("Later")
            cluster.add_topic("Later")

            await core.refresh_routes()

            assert core.routes.publish_route_nowait("Later") is not None
            core.routes.unwatch("Later")
            core.routes.forget("Later")
            assert core.routes.topics == []
            await core.release()

    run_async(main)
