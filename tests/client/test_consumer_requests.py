"""What brokers and tools ask of consumers that are online: resets, progress, running info, one message."""

import pytest

from async_run import run_async
from consumer_world import Seen, consumer_world, names, until
from orbitmq.client.admin.admin import AsyncAdmin
from orbitmq.client.consumer.consumer import AsyncConsumer
from orbitmq.wire.bodies.running_info import DirectConsumeResult
from orbitmq.wire.codes import RequestCode


@pytest.mark.parametrize("server_side", [True, False], ids=["by the broker", "by the members"])
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_a_group_that_is_online_follows_a_reset(tmp_path, server_side, orderly):
    async def main():
        async with consumer_world(tmp_path, server_side_reset=server_side) as world:
            await world.create("Orders", queues=2)
            await world.send("Orders", *names(10))
            seen = Seen()
            given = {"start_from": "first", "orderly": orderly, "suspend_ms": 200}
            async with (
                AsyncConsumer(
                    world.namesrv, "demo", "Orders", seen, persist_interval_ms=100, **given
                ),
                AsyncAdmin(world.namesrv) as admin,
            ):
                await until(lambda: len(seen.messages) == 10)
                await until(lambda: sum(world.offset("demo", "Orders", q) for q in (0, 1)) == 10)
                await admin.reset_offsets("demo", "Orders", "earliest")
                await until(lambda: len(seen.messages) == 20)
                await world.send("Orders", "last")
                await until(lambda: len(seen.messages) == 21)

            assert sorted(seen.bodies[10:20]) == sorted(names(10))
            assert sum(world.offset("demo", "Orders", queue) for queue in (0, 1)) == 11

    run_async(main)


def test_tools_see_how_far_a_member_is_and_what_it_does(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            await world.send("Orders", *names(3))
            seen = Seen()
            async with (
                AsyncConsumer(
                    world.namesrv, "demo", "Orders", seen, start_from="first"
                ) as consumer,
                AsyncAdmin(world.namesrv) as admin,
            ):
                await until(lambda: len(seen.messages) == 3)
                await until(lambda: len(consumer.queues) == 2)
                info = await admin.running_info("demo", consumer.client_id)
                state = await admin.consumers("demo")
                core = consumer._context.core
                answer = await core.calls.checked(
                    world.broker.address,
                    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
                    {"topic": "Orders", "group": "demo"},
                )

            assert info.mq_table[world.queue("Orders", 0)].commit_offset == 3
            assert info.properties["PROP_CONSUMEORDERLY"] == "false"
            assert [client.client_id for client in state.clients] == [consumer.client_id]
            assert b'"topic":"Orders"}:3' in answer.body

    run_async(main)


def test_a_tool_can_have_one_message_handled(tmp_path):
    async def main():
        async with consumer_world(tmp_path) as world:
            await world.create("Orders", queues=1)
            seen = Seen()
            async with AsyncConsumer(
                world.namesrv, "demo", "Orders", seen, start_from="first"
            ) as consumer:
                await world.send("Orders", "one")
                await until(lambda: seen.messages)
                core = consumer._context.core
                answer = await core.calls.checked(
                    world.broker.address,
                    RequestCode.CONSUME_MESSAGE_DIRECTLY,
                    {
                        "consumerGroup": "demo",
                        "clientId": consumer.client_id,
                        "msgId": seen.messages[0].offset_id,
                        "topic": "Orders",
                    },
                )

            assert DirectConsumeResult.decode(answer.body).consume_result == "CR_SUCCESS"
            assert seen.bodies == ["one", "one"]
            assert seen.messages[1].topic == "Orders"

    run_async(main)
