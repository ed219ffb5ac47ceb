"""A stop that sends clients away first (enableShutdownGracefully)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from async_run import until
from live_broker import (
    LOOPBACK,
    LiveClient,
    close_clients,
    letters,
    live_broker,
    run_live,
    send_header,
)
from orbitmq.broker.broker import LAST_WORDS, Broker
from orbitmq.client.core.message import Message
from orbitmq.client.producer.producer import AsyncProducer
from orbitmq.errors import WireError
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.net.go_away import UNDERSTOOD_AFTER
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import ONEWAY_FLAG, Command

GO_AWAY = ResponseCode.GO_AWAY
LONG = 60  # seconds: no test waits for them


def graceful(root: Path, **given: Any) -> Broker:
    return live_broker(root, **({"graceful_stop": True, "graceful_stop_seconds": LONG} | given))


@asynccontextmanager
async def started(broker: Broker) -> AsyncIterator[Broker]:
    """Start a broker; stop it whatever the test does, for which its clients have to leave."""
    await broker.start()
    try:
        yield broker
    finally:
        await close_clients()
        await asyncio.wait_for(broker.stop(), 30)


async def begin_stop(broker: Broker) -> "asyncio.Task[None]":
    """Begin to stop a broker; return when it accepts nobody any more."""
    port = int(broker.address.rpartition(":")[2])
    task = asyncio.ensure_future(broker.stop())
    async with asyncio.timeout(20):
        while True:
            try:
                _, writer = await asyncio.open_connection(LOOPBACK, port)
            except OSError:
                return task
            writer.close()
            await asyncio.sleep(0.005)


def send_command(version: int = UNDERSTOOD_AFTER + 1) -> Command:
    fields = letters(send_header("T"))
    return Command(RequestCode.SEND_MESSAGE_V2, fields, b"x", version=version)


async def request(client: LiveClient, command: Command) -> Command:
    return await client.channels.request(client.address, command, 10_000)


def test_who_understands_is_sent_away_and_who_does_not_is_served(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(graceful(tmp_path)) as broker:
            client = LiveClient(broker.address)
            assert (await client.send("T", b"before")).code == 0
            end = broker.context.store.max_log_offset

            task = await begin_stop(broker)
            away = await request(client, send_command())
            unchanged = broker.context.store.max_log_offset
            served = await request(client, send_command(UNDERSTOOD_AFTER))

            assert away.code == GO_AWAY
            assert unchanged == end
            assert served.code == 0
            await client.close()
            await asyncio.wait_for(task, 20)  # as soon as the last one has left

    run_live(main)


def test_last_words_and_oneway_requests_are_heard(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(graceful(tmp_path)) as broker:
            context, client = broker.context, LiveClient(broker.address)
            await client.heartbeat("G", "T")
            await client.send("T", b"before")

            task = await begin_stop(broker)
            committed = await client.commit("G", "T", 1)
            end = context.store.max_log_offset
            connection = await client.channels.get(client.address)
            oneway = send_command()
            oneway.flag |= ONEWAY_FLAG
            connection.send(oneway)
            await until(lambda: context.store.max_log_offset > end)

            assert committed.code == 0
            assert context.offsets.get("G", "T", 0) == 1
            assert (await client.heartbeat("G", "T")).code == GO_AWAY
            await client.close()
            await asyncio.wait_for(task, 20)

    run_live(main)


def test_parked_pulls_are_answered_and_not_parked_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(graceful(tmp_path)) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "T")
            await client.send("T", b"first")
            parked = asyncio.ensure_future(client.pull("G", "T", 1, suspend_ms=50_000))
            await until(lambda: broker.context.long_poll.count == 1)

            task = await begin_stop(broker)

            assert (await parked).code == ResponseCode.PULL_NOT_FOUND
            assert (await client.pull("G", "T", 1, suspend_ms=50_000)).code == GO_AWAY
            await client.close()
            await asyncio.wait_for(task, 20)

    run_live(main)


def test_it_waits_no_longer_than_it_was_told(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(graceful(tmp_path, graceful_stop_seconds=0)) as broker:
            client = LiveClient(broker.address)
            await client.send("T", b"x")

            await asyncio.wait_for(broker.stop(), 20)  # the client is still there

    run_live(main)


def test_without_the_setting_nobody_is_sent_away(tmp_path: Path) -> None:
    async def main() -> None:
        async with started(live_broker(tmp_path)) as broker:
            client = LiveClient(broker.address)
            codes = [(await client.send("T", b"x")).code]
            stop = asyncio.ensure_future(broker.stop())
            while not stop.done():
                try:
                    codes.append((await client.send("T", b"x")).code)
                except WireError:  # the connection is gone
                    break
            await stop

            assert set(codes) == {0}

    run_live(main)


def test_last_words_are_requests_that_only_tell() -> None:
    assert {code.name for code in LAST_WORDS} == {
        "UPDATE_CONSUMER_OFFSET",
        "UNREGISTER_CLIENT",
        "UNLOCK_BATCH_MQ",
    }


def test_our_producer_turns_to_the_other_broker_and_no_send_fails(tmp_path: Path) -> None:
    async def main() -> None:
        namesrv = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
        await namesrv.start()
        try:
            await stop_one_while_sending(tmp_path, namesrv.address)
        finally:
            await namesrv.stop()

    run_live(main, seconds=60)


async def stop_one_while_sending(root: Path, namesrv: str) -> None:
    given = {"namesrv": (namesrv,), "graceful_stop_seconds": 10}
    async with (
        graceful(root / "a", name="a", **given) as leaving,
        graceful(root / "b", name="b", **given) as other,
        AsyncProducer(namesrv, group="PG") as producer,
    ):
        for broker in (leaving, other):
            registration = broker.context.registration
            await until(lambda: registration.registered)  # noqa: B023
            broker.context.topics.put(TopicConfig(topic_name="T"))
            told = asyncio.Event()
            registration.when_known(told.set)
            await told.wait()  # else the topic would be made on the first broker only
        task, sent = None, 0
        while task is None or not task.done() or sent < 20:
            await producer.send(Message("T", str(sent).encode()))
            sent += 1
            if sent == 8:
                task = asyncio.ensure_future(leaving.stop())
        await task
        assert other.context.store.max_log_offset > 0


def test_a_name_server_sends_clients_away_too() -> None:
    async def main() -> None:
        config = NamesrvConfig(
            host=LOOPBACK, port=0, graceful_stop=True, graceful_stop_ms=LONG * 1000
        )
        namesrv = NameServer(config)
        await namesrv.start()
        client = LiveClient(namesrv.address)
        assert (await client.ask(106)).code == 0
        task = asyncio.ensure_future(namesrv.stop())
        async with asyncio.timeout(20):
            while (await client.ask(106)).code != GO_AWAY:
                await asyncio.sleep(0.005)
        await client.close()
        await asyncio.wait_for(task, 20)

    run_live(main)
