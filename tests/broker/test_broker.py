"""A whole broker on real sockets."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from async_run import until
from golden_stores import settings, unpack
from live_broker import (
    LOOPBACK,
    LiveClient,
    letters,
    live_broker,
    live_config,
    records_of,
    run_live,
    send_header,
)
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import StateFileError, StoreLockedError, UnreachableError
from orbitmq.files.state_file import read_state
from orbitmq.format.message_id import decode_offset_id
from orbitmq.message import Host
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.net.channels import Channels
from orbitmq.store.config import FlushMode
from orbitmq.store.store import MessageStore
from orbitmq.wire.bodies.route import TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command


async def route(namesrv: str, topic: str) -> TopicRoute | None:
    channels = Channels()
    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await channels.request(namesrv, command, 5_000)
    await channels.close()
    return TopicRoute.decode(answer.body) if answer.code == 0 else None


@pytest.mark.feature("F21")
def test_a_client_sends_pulls_and_keeps_its_offset(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)

            beat = await client.heartbeat("G", "Orders")
            assert beat.fields == {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}
            notice = await client.asked.get()
            assert (notice.code, notice.fields) == (40, {"consumerGroup": "G"})
            ids = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "G"})
            assert ids.body == b'{"consumerIdList":["client-1"]}'

            sent = [await client.send("Orders", b"message %d" % n) for n in range(3)]
            assert [answer.fields["queueOffset"] for answer in sent if answer.fields] == list("012")
            assert sent[0].fields is not None
            host, log_offset = decode_offset_id(sent[0].fields["msgId"])
            assert log_offset == 0
            assert host == Host(b"\x7f\x00\x00\x01", int(broker.address.split(":")[1]))

            await asyncio.to_thread(broker.context.store.wait_dispatched)
            pulled = await client.pull("G", "Orders", 0)
            assert pulled.code == 0
            assert [record.body for record in records_of(pulled)] == [
                b"message 0",
                b"message 1",
                b"message 2",
            ]
            assert (await client.commit("G", "Orders", 2)).code == 0
            assert (await client.offset("G", "Orders")).fields == {"offset": "2"}
            await client.close()

    run_live(main)


@pytest.mark.feature("F20")
def test_a_parked_pull_is_answered_when_a_message_comes(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "Orders")
            await client.send("Orders", b"first")
            await asyncio.to_thread(broker.context.store.wait_dispatched)

            parked = asyncio.ensure_future(client.pull("G", "Orders", 1, suspend_ms=10_000))
            await client.offset("G", "Orders")  # behind the pull on the same connection
            assert not parked.done()
            await client.send("Orders", b"second")

            assert [record.body for record in records_of(await parked)] == [b"second"]
            await client.close()

    run_live(main)


@pytest.mark.feature("F81")
def test_everything_is_there_again_after_a_stop_and_a_start(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "Orders")
            await client.send("Orders", b"kept", queue_id=3)
            await client.commit("G", "Orders", 1, queue_id=3)
            await client.close()
        config = tmp_path / "config"
        assert read_state(config / "consumerOffset.json")["offsetTable"] == {"Orders@G": {"3": 1}}
        assert {"Orders", "%RETRY%G"} <= read_state(config / "topics.json")[
            "topicConfigTable"
        ].keys()
        assert "G" in read_state(config / "subscriptionGroup.json")["subscriptionGroupTable"]
        assert "offsetTable" in read_state(config / "delayOffset.json")

        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            assert (await client.offset("G", "Orders", 3)).fields == {"offset": "1"}
            await client.heartbeat("G", "Orders")
            pulled = await client.pull("G", "Orders", 0, queue_id=3)
            assert [record.body for record in records_of(pulled)] == [b"kept"]
            assert broker.context.topics.get("Orders").write_queue_nums == 4  # type: ignore[union-attr]
            await client.close()

    run_live(main)


def test_a_stop_answers_what_is_on_its_way(tmp_path: Path) -> None:
    async def main() -> None:
        broker = live_broker(tmp_path, store={"flush_mode": FlushMode.SYNC})
        await broker.start()
        client = LiveClient(broker.address)
        await client.heartbeat("G", "Orders")
        await client.send("Orders", b"first")
        await asyncio.to_thread(broker.context.store.wait_dispatched)
        parked = asyncio.ensure_future(client.pull("G", "Orders", 0, queue_id=2, suspend_ms=20_000))
        await until(lambda: broker.context.long_poll.count == 1)
        sends = [asyncio.ensure_future(client.send("Orders", b"x" * 100)) for _ in range(50)]
        store = broker.context.store
        await until(lambda: store.max_log_offset > 50 * 100)  # all are in the log

        await broker.stop()

        assert {answer.code for answer in await asyncio.gather(*sends)} == {0}
        assert (await parked).code == ResponseCode.PULL_NOT_FOUND
        await client.close()
        await broker.stop()  # a second stop has nothing to do

    run_live(main)


def test_the_second_port_answers_the_same(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            first, second = (int(a.split(":")[1]) for a in (broker.address, broker.fast_address))
            assert first - second == 2
            client = LiveClient(broker.fast_address)
            assert (await client.send("Orders", b"x")).code == 0
            await client.close()

    run_live(main)


def test_consumers_hear_of_each_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            one, two = LiveClient(broker.address, "c1"), LiveClient(broker.address, "c2")
            await one.heartbeat("G", "Orders")
            await one.asked.get()
            await two.heartbeat("G", "Orders")
            assert (await one.asked.get()).code == 40
            assert (await two.asked.get()).code == 40
            await two.close()
            assert (await one.asked.get()).code == 40
            assert broker.context.consumers.group("G").client_ids == ["c1"]  # type: ignore[union-attr]
            await one.close()

    run_live(main)


def test_offsets_are_on_disk_within_seconds_without_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path, offset_save_ms=20) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "Orders")
            await client.send("Orders", b"x")
            path = tmp_path / "config" / "consumerOffset.json"
            for offset in (1, 2, 1):
                await client.commit("G", "Orders", offset)
                async with asyncio.timeout(5):
                    while read_state(path).get("offsetTable") != {"Orders@G": {"0": offset}}:
                        await asyncio.sleep(0.005)
            await client.close()

    run_live(main)


def test_a_new_topic_is_on_disk_without_a_stop(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            await client.send("Orders", b"x")
            path = tmp_path / "config" / "topics.json"
            async with asyncio.timeout(5):
                while "Orders" not in read_state(path).get("topicConfigTable", {}):
                    await asyncio.sleep(0.005)
            await client.close()

    run_live(main)


def test_a_broker_registers_and_its_topics_have_routes(tmp_path: Path) -> None:
    async def main() -> None:
        namesrv = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
        await namesrv.start()
        broker = live_broker(tmp_path, namesrv=(namesrv.address,))
        await broker.start()
        try:
            assert broker.context.registration.registered == [namesrv.address]
            template = await route(namesrv.address, "TBW102")
            assert template is not None
            assert template.broker_datas[0].broker_addrs == {0: broker.address}
            assert template.queue_datas[0].perm == 7
            assert await route(namesrv.address, "Orders") is None

            client = LiveClient(broker.address)
            await client.send("Orders", b"x")
            async with asyncio.timeout(5):
                while (found := await route(namesrv.address, "Orders")) is None:
                    await asyncio.sleep(0.005)
            assert found.queue_datas[0].write_queue_nums == 4
            await client.close()
        finally:
            await broker.stop()
        assert await route(namesrv.address, "TBW102") is None
        await namesrv.stop()

    run_live(main)


def test_a_name_server_that_comes_later_or_again_is_told_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.broker.registration.AGAIN_MS", 20)

    async def main() -> None:
        first = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
        await first.start()
        port = first.port
        await first.stop()
        async with live_broker(tmp_path, namesrv=(f"{LOOPBACK}:{port}",)) as broker:
            assert broker.context.registration.registered == []
            for _ in range(2):
                namesrv = NameServer(NamesrvConfig(host=LOOPBACK, port=port))
                await namesrv.start()
                async with asyncio.timeout(10):
                    while await route(namesrv.address, "TBW102") is None:
                        broker.context.registration.register_now()
                        await asyncio.sleep(0.02)
                await namesrv.stop()

    run_live(main)


@pytest.mark.feature("F81")
def test_a_broker_opens_the_store_of_a_java_broker(tmp_path: Path) -> None:
    root = unpack("mixed", tmp_path)
    before = read_state(root / "config" / "consumerOffset.json")["offsetTable"]
    given = settings("mixed") | {
        "storePathRootDir": str(root),
        "brokerIP1": LOOPBACK,
        "bindAddress": LOOPBACK,
        "listenPort": "0",
        "brokerName": "golden-mixed",
    }

    async def main() -> None:
        async with Broker(BrokerConfig.from_settings(given)) as broker:
            client = LiveClient(broker.address)
            answer = await client.offset("Gold_cg", "GoldAa", 2)
            assert answer.fields == {"offset": str(before["GoldAa@Gold_cg"]["2"])}
            assert broker.context.topics.get("GoldTx") is not None
            assert broker.context.groups.get("Gold_cg2") is not None
            await client.heartbeat("Gold_cg", "GoldAa")
            pulled = await client.pull("Gold_cg", "GoldAa", 0)
            assert len(records_of(pulled)) > 1
            await client.close()
        assert read_state(root / "config" / "consumerOffset.json")["offsetTable"] == before

    run_live(main)


def test_a_second_broker_on_the_same_store_or_port_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path / "a") as broker:
            with pytest.raises(StoreLockedError):
                await live_broker(tmp_path / "a").start()
            port = int(broker.address.split(":")[1])
            with pytest.raises(UnreachableError, match="listenPort"):
                await live_broker(tmp_path / "b", port=port).start()
            with pytest.raises(UnreachableError, match="listenPort"):
                await live_broker(tmp_path / "b", port=port + 2).start()  # its second port
            assert not (tmp_path / "b").exists()
            client = LiveClient(broker.address)
            assert (await client.send("Orders", b"x")).code == 0
            await client.close()

    run_live(main)


def test_an_unreadable_table_stops_the_start_and_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config" / "topics.json"
    path.parent.mkdir()
    path.write_text('{"topicConfigTable":{"Orders":')

    async def main() -> None:
        with pytest.raises(StateFileError, match=r"topics\.json"):
            await live_broker(tmp_path).start()

    run_live(main)
    assert path.read_text() == '{"topicConfigTable":{"Orders":'


def test_a_client_that_goes_silent_is_forgotten(tmp_path: Path) -> None:
    async def main() -> None:
        config = live_config(tmp_path, client_expiry_ms=30, client_scan_ms=10)
        async with Broker(config) as broker:
            client = LiveClient(broker.address)
            await client.heartbeat("G", "Orders")
            async with asyncio.timeout(5):
                while broker.context.consumers.group("G") is not None:
                    await asyncio.sleep(0.005)
            assert broker.context.producers.all() == {}
            await client.close()

    run_live(main)


def test_one_way_requests_leave_no_answer(tmp_path: Path) -> None:
    async def main() -> None:
        async with live_broker(tmp_path) as broker:
            client = LiveClient(broker.address)
            header = letters(send_header("Orders"))
            for code, fields in ((310, header), (4711, {}), (15, {})):
                await client.channels.oneway(broker.address, Command(code, dict(fields), b"x"))
            answer = await client.ask(
                RequestCode.GET_MIN_OFFSET, {"topic": "Orders", "queueId": "0"}
            )
            assert answer.fields == {"offset": "0"}
            assert broker.context.store.max_log_offset > 0
            assert client.asked.empty()
            await client.close()

    run_live(main)


def test_a_start_that_is_given_up_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = MessageStore.open

    def slow(*args: Any, **given: Any) -> MessageStore:
        begun.set()
        go_on.wait(10)
        return real(*args, **given)

    async def main() -> None:
        with monkeypatch.context() as slowly:
            slowly.setattr(MessageStore, "open", slow)
            starting = asyncio.ensure_future(live_broker(tmp_path).start())
            await asyncio.to_thread(begun.wait, 10)
            starting.cancel()
            for _ in range(20):  # so that it has begun to close what is not open yet
                await asyncio.sleep(0)
            assert not starting.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await starting
        async with live_broker(tmp_path) as broker:  # its lock was given back
            assert broker.context.store.recovery_report is not None

    run_live(main)
