"""Typed calls of a real broker."""

import asyncio

import pytest

from async_run import run_async
from consumer_world import consumer_world
from orbitmq.client.core.broker_api import PullStatus
from orbitmq.client.core.message import Message
from orbitmq.errors import FieldError, ResponseError
from orbitmq.message import Boundary
from orbitmq.wire.bodies.heartbeat import ConsumerData, HeartbeatData, Subscription
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.command import Command
from orbitmq.wire.headers.pull import PullHeader
from orbitmq.wire.headers.query import QueryHeader
from orbitmq.wire.headers.send_back import SendBackHeader
from orbitmq.wire.pull_flags import PullFlag

QUEUE = MessageQueue("Orders", "broker-a", 0)


def pull_header(offset: int, expression: str = "*") -> PullHeader:
    return PullHeader(
        consumer_group="G",
        topic="Orders",
        queue_id=0,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=PullFlag.SUBSCRIPTION.value,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        bname="broker-a",
    )


def run_with_broker(tmp_path, test):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            for number in range(3):
                message = Message("Orders", b"%d" % number, tag=f"Tag{number}", keys=["all"])
                await world.producer.send(message)
            core = world.producer._core
            assert await asyncio.to_thread(world.broker.context.store.wait_dispatched)
            await test(core.brokers, world.broker.address, core)

    run_async(main)


def test_pulls_of_all_kinds(tmp_path):
    async def test(api, address, core):
        found = await api.pull(address, pull_header(0))
        assert found.status is PullStatus.FOUND
        assert [message.body for message in found.messages()] == [b"0", b"1", b"2"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (3, 0, 3)
        assert found.messages()[0].broker_name == "broker-a"

        assert (await api.pull(address, pull_header(3))).status is PullStatus.NO_NEW
        assert (await api.pull(address, pull_header(99))).status is PullStatus.OFFSET_ILLEGAL
        assert (await api.pull(address, pull_header(0, "none"))).status is PullStatus.NO_MATCH
        lite = await api.pull(address, pull_header(1, "Tag1"), lite=True)
        assert [message.tag for message in lite.messages()] == ["Tag1"]
        header = pull_header(0)
        header.topic = "Nowhere"
        with pytest.raises(ResponseError) as caught:
            await api.pull(address, header)
        assert caught.value.code == 17

    run_with_broker(tmp_path, test)


def test_offsets(tmp_path):
    async def test(api, address, core):
        assert await api.consumer_offset(address, "G", QUEUE, zero_if_not_found=False) == -1
        assert await api.min_offset(address, QUEUE) == 0
        assert await api.max_offset(address, QUEUE) == 3
        assert await api.search_offset(address, QUEUE, 0) == 0
        assert await api.search_offset(address, QUEUE, 1 << 60) == 3
        assert await api.search_offset(address, QUEUE, 1 << 60, Boundary.UPPER) == 2

        await api.heartbeat(address, heartbeat("me"))
        await api.update_consumer_offset(address, "G", QUEUE, 2)
        assert await api.consumer_offset(address, "G", QUEUE) == 2
        await api.update_consumer_offset(address, "G", QUEUE, 3)
        assert await api.consumer_offset(address, "G", QUEUE) == 3

    run_with_broker(tmp_path, test)


def heartbeat(client_id: str) -> HeartbeatData:
    subscription = Subscription(topic="Orders", sub_version=1)
    consumer = ConsumerData(group_name="G", subscription_data_set=[subscription])
    return HeartbeatData(client_id=client_id, consumer_data_set=[consumer])


def test_membership_and_locks(tmp_path):
    async def test(api, address, core):
        with pytest.raises(ResponseError):
            await api.consumer_ids(address, "G")
        assert await api.heartbeat(address, heartbeat("me")) >= 233
        assert await api.consumer_ids(address, "G") == ["me"]

        assert await api.lock(address, "G", "me", [QUEUE]) == {QUEUE}
        assert await api.lock(address, "G", "other", [QUEUE]) == set()
        await api.unlock(address, "G", "me", [QUEUE])
        assert await api.lock(address, "G", "other", [QUEUE]) == {QUEUE}
        await api.unlock(address, "G", "other", [QUEUE])

        await api.check_subscription(address, "me", "G", Subscription(topic="Orders"))
        await api.unregister(address, "me", consumer_group="G")
        with pytest.raises(ResponseError):
            await api.consumer_ids(address, "G")

    run_with_broker(tmp_path, test)


def test_single_messages(tmp_path):
    async def test(api, address, core):
        first = (await api.pull(address, pull_header(0))).messages()[0]
        assert (await api.view_message(address, first.log_offset)).body == b"0"
        with pytest.raises(ResponseError):
            await api.view_message(address, 1 << 40)

        query = QueryHeader(
            topic="Orders", key="all", max_num=2, begin_timestamp=0, end_timestamp=1 << 62
        )
        assert len(await api.query_messages(address, query)) == 2
        query.key = "nothing"
        assert await api.query_messages(address, query) == []

        back = SendBackHeader(offset=first.log_offset, group="G", delay_level=0)
        await api.send_back(address, back)

    run_with_broker(tmp_path, test)


def test_an_answer_without_its_fields_is_an_error(tmp_path):
    async def test(api, address, core):
        async def answer_nothing(*given, **more):
            return Command(0)

        core.calls.request = answer_nothing
        with pytest.raises(FieldError):
            await api.max_offset(address, QUEUE)
        with pytest.raises(FieldError):
            await api.pull(address, pull_header(0))

    run_with_broker(tmp_path, test)
