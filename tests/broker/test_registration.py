"""Registration at name servers."""

import asyncio
import zlib
from pathlib import Path
from typing import Any

import pytest

from async_run import run_async, until
from golden_frames import good_frames
from live_broker import LiveClient, live_broker, run_live
from orbitmq.broker import registration as module
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.registration import Registration
from orbitmq.broker.tables.topics import TopicTable
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.net.connection import Connection
from orbitmq.net.server import Server
from orbitmq.store.config import StoreConfig
from orbitmq.testing.fake_clock import FakeClock
from orbitmq.wire.bodies import dialect
from orbitmq.wire.bodies.compressed_registration import decode_compressed
from orbitmq.wire.bodies.lists import KvTable
from orbitmq.wire.bodies.route import QueueData, TopicRoute
from orbitmq.wire.bodies.topic_config import Registration as RegistrationBody
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.command import Command

ADDRESS = "127.0.0.2:11311"


class FakeNamesrv:
    """Keeps what it is told, and answers as it is told to."""

    def __init__(self) -> None:
        self.told: list[Command] = []
        self.codes: list[int] = []  # of the next answers; then 0
        self.body = b""
        self.is_silent = False
        self.asked = 0  # how often whether it knows the newest, which it does after the first time
        self.server = Server(self)
        self.more = asyncio.Event()

    def on_open(self, connection: Connection) -> None: ...

    def on_close(self, connection: Connection, error: Exception | None) -> None: ...

    def on_commands(self, connection: Connection, requests: list[Command]) -> None:
        for request in requests:
            self.told.append(request)
            self.more.set()
            if not self.is_silent:
                code = self.codes.pop(0) if self.codes else 0
                fields = {}
                if request.code == 322:
                    self.asked += 1
                    fields["changed"] = "true" if self.asked == 1 else "false"
                connection.send(request.answer(code, fields=fields, body=self.body))

    async def next(self) -> Command:
        async with asyncio.timeout(5):
            while not self.told:
                self.more.clear()
                await self.more.wait()
        return self.told.pop(0)

    def topics(self, command: Command) -> dict[str, TopicConfig]:
        table = RegistrationBody.decode(command.body).topic_config_serialize_wrapper
        return table.topic_config_table


class World:
    """A table of topics and its registration at a name server."""

    def __init__(self, **config: object) -> None:
        self.namesrv = FakeNamesrv()
        self._given = config

    async def __aenter__(self) -> "World":
        await self.namesrv.server.start("127.0.0.1", 0)
        given: dict[str, Any] = {"name": "broker-a", "host": "127.0.0.2", **self._given}
        self.config = BrokerConfig(
            store=StoreConfig(root=Path("nowhere")),
            namesrv=(self.namesrv.server.address,),
            **given,
        )
        self.topics = TopicTable(self.config, FakeClock())
        self.registration = Registration(self.config, self.topics, ADDRESS)
        await self.registration.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.registration.stop()
        await self.namesrv.server.stop(100)


def test_the_first_registration_is_what_a_java_broker_sends() -> None:
    java = next(f.command for f in good_frames("broker/registration") if f.command.code == 103)

    async def main() -> None:
        async with World() as world:
            ours = await world.namesrv.next()
            assert ours.fields is not None
            assert java.fields is not None
            assert ours.fields["bodyCrc32"] == str(zlib.crc32(ours.body) & 0x7FFFFFFF)
            without_crc = [
                {k: v for k, v in fields.items() if k != "bodyCrc32"}
                for fields in (ours.fields, java.fields)
            ]
            assert without_crc[0] == without_crc[1]
            mine, theirs = dialect.loads(ours.body), dialect.loads(java.body)
            assert list(mine) == list(theirs)
            wrapper = "topicConfigSerializeWrapper"
            assert list(mine[wrapper]) == list(theirs[wrapper])
            tables = [body[wrapper]["topicConfigTable"] for body in (mine, theirs)]
            tables[1].pop("RMQ_SYS_TRACE_TOPIC")  # which that broker had switched on
            assert tables[0] == tables[1]

    run_async(main)


def test_a_change_is_told_at_once_with_the_new_version_and_nothing_else() -> None:
    async def main() -> None:
        async with World() as world:
            await world.namesrv.next()
            world.topics.put(TopicConfig(topic_name="A"))
            world.topics.put(TopicConfig(topic_name="B"))

            told = await world.namesrv.next()

            body = RegistrationBody.decode(told.body).topic_config_serialize_wrapper
            assert body.topic_config_table.keys() == {"A", "B"}
            assert body.data_version == world.topics.version

    run_async(main)


def test_a_changed_topic_is_told_alone_if_the_setting_says_so() -> None:
    async def main() -> None:
        async with World(single_topic_register=True, permission=4) as world:
            await world.namesrv.next()
            world.topics.put(
                TopicConfig(topic_name="A", read_queue_nums=3, write_queue_nums=2, topic_sys_flag=1)
            )
            world.topics.put(TopicConfig(topic_name="B"))

            told = [await world.namesrv.next() for _ in range(2)]

            assert [one.code for one in told] == [217, 217]
            first = min(told, key=lambda one: one.fields["topic"])  # type: ignore[index]
            assert first.fields == {"topic": "A"}
            assert TopicRoute.decode(first.body).queue_datas == [
                QueueData(
                    broker_name="broker-a",
                    read_queue_nums=3,
                    write_queue_nums=2,
                    perm=4,
                    topic_sys_flag=1,
                )
            ]

    run_async(main)


def test_everything_is_told_in_parts_each_of_a_newer_version() -> None:
    async def main() -> None:
        async with World(split_register=True, split_register_size=4) as world:
            known = set(world.topics.all())
            parts = [await world.namesrv.next() for _ in range(len(known) // 4 + 1)]

            tables = [world.namesrv.topics(part) for part in parts]
            assert [len(table) for table in tables[:-1]] == [4] * (len(known) // 4)
            assert set().union(*tables) == known
            counters = [
                RegistrationBody.decode(
                    part.body
                ).topic_config_serialize_wrapper.data_version.counter
                for part in parts
            ]
            assert counters == sorted(set(counters))

    run_async(main)


@pytest.mark.parametrize("size", [1, 2])
def test_a_name_server_takes_parts_of_any_size(tmp_path: Path, size: int) -> None:
    given = {"split_register": True, "split_register_size": size, "single_topic_register": True}

    async def main() -> None:
        namesrv = NameServer(NamesrvConfig(host="127.0.0.1", port=0))
        await namesrv.start()
        try:
            async with live_broker(tmp_path, namesrv=(namesrv.address,), **given) as broker:
                client, topics = LiveClient(namesrv.address), broker.context.topics
                await until(lambda: broker.context.registration.registered)
                answer = await client.ask(206)
                assert set(dialect.loads(answer.body)["topicList"]) >= set(topics.all())
                topics.put(TopicConfig(topic_name="Alone"))
                await until_route(client, "Alone")
        finally:
            await namesrv.stop()

    run_live(main)


def test_a_refused_change_is_followed_by_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_MS", 5)

    async def main() -> None:
        async with World() as world:
            everything = world.namesrv.topics(await world.namesrv.next())
            world.namesrv.codes = [1]
            world.topics.put(TopicConfig(topic_name="A"))
            assert world.namesrv.topics(await world.namesrv.next()).keys() == {"A"}

            again = world.namesrv.topics(await world.namesrv.next())

            assert again.keys() == everything.keys() | {"A"}

    run_async(main)


def test_a_name_server_that_came_back_is_told_everything_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "AGAIN_MS", 5)
    monkeypatch.setattr(module, "BROKEN_WAIT_MS", 5)

    async def main() -> None:
        async with World() as world:
            everything = world.namesrv.topics(await world.namesrv.next())
            port = world.namesrv.server.port
            await world.namesrv.server.stop(0)
            world.namesrv.server = Server(world.namesrv)
            await world.namesrv.server.start("127.0.0.1", port)

            again = world.namesrv.topics(await world.namesrv.next())

            assert again.keys() == everything.keys()

    run_async(main)


def test_topics_never_permit_more_than_the_broker() -> None:
    async def main() -> None:
        async with World(permission=4) as world:
            topics = world.namesrv.topics(await world.namesrv.next())
            assert {topic.perm for topic in topics.values()} == {4, 0}
            assert world.topics.get("TBW102").perm == 7  # type: ignore[union-attr]

            world.config.permission = 6
            world.registration.register_now()
            assert world.namesrv.topics(await world.namesrv.next())["TBW102"].perm == 7

    run_async(main)


def test_topics_that_the_name_server_orders_become_ordered() -> None:
    async def main() -> None:
        async with World() as world:
            await world.namesrv.next()
            world.namesrv.body = KvTable(table={"A": "broker-a:4"}).encode()
            world.topics.put(TopicConfig(topic_name="A"))
            await world.namesrv.next()

            told = await world.namesrv.next()

            assert world.namesrv.topics(told)["A"].order

    run_async(main)


def test_who_waits_hears_when_the_name_server_has_answered() -> None:
    async def main() -> None:
        async with World() as world:
            await world.namesrv.next()
            done = asyncio.Event()
            world.registration.when_known(done.set)
            assert done.is_set()  # nothing has changed

            done.clear()
            world.topics.put(TopicConfig(topic_name="A"))
            world.registration.when_known(done.set)
            assert not done.is_set()
            async with asyncio.timeout(5):
                await done.wait()
            assert world.namesrv.topics(await world.namesrv.next()).keys() == {"A"}

    run_async(main)


def test_who_waits_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TELL_WAIT_MS", 10)

    async def main() -> None:
        async with World() as world:
            world.namesrv.is_silent = True
            world.topics.put(TopicConfig(topic_name="A"))
            done = asyncio.Event()
            world.registration.when_known(done.set)
            async with asyncio.timeout(5):
                await done.wait()

    run_async(main)


def test_a_name_server_that_is_away_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_MS", 5)

    async def main() -> None:
        async with World() as world:
            gone = FakeNamesrv()
            await gone.server.start("127.0.0.1", 0)
            address = gone.server.address
            await gone.server.stop()
            world.config.namesrv = (*world.config.namesrv, address)
            world.registration.update_servers()
            await until(lambda: world.registration._servers[address].failed)

            world.topics.put(TopicConfig(topic_name="A"))
            done = asyncio.Event()
            world.registration.when_known(done.set)
            async with asyncio.timeout(2):
                await done.wait()
            assert world.registration.registered == [world.namesrv.server.address]
            world.config.namesrv = (world.namesrv.server.address,)
            world.registration.update_servers()

    run_async(main)


def test_a_broker_that_stops_unregisters() -> None:
    async def main() -> None:
        async with World() as world:
            await world.namesrv.next()
            await world.registration.stop()
            last = await world.namesrv.next()
            assert (last.code, last.fields) == (
                104,
                {
                    "brokerName": "broker-a",
                    "brokerAddr": ADDRESS,
                    "clusterName": "DefaultCluster",
                    "brokerId": "0",
                },
            )

    run_async(main)


def compressed_golden(code: int) -> Command:
    """Return what a Java broker with compressedRegister and without forceRegister sent."""
    return next(
        frame.command
        for frame in good_frames("broker/registration-compressed")
        if frame.to_server
        and frame.command.code == code
        and (frame.command.fields or {}).get("brokerName") == "broker-b"
    )


def test_a_compressed_registration_is_that_of_a_java_broker_and_says_what_it_is() -> None:
    java = compressed_golden(103)

    async def main() -> None:
        async with World(compressed_register=True, name="broker-b") as world:
            ours = await world.namesrv.next()

        assert ours.body[0] == java.body[0] == 0x78
        fields = ours.fields or {}
        assert fields["compressed"] == "true"  # Java's says false, and is refused for it
        assert fields["bodyCrc32"] == str(zlib.crc32(ours.body) & 0x7FFFFFFF)
        mine, theirs = (decode_compressed(body, 479) for body in (ours.body, java.body))
        tables = [one.topic_config_serialize_wrapper.topic_config_table for one in (mine, theirs)]
        tables[1].pop("RMQ_SYS_TRACE_TOPIC", None)
        assert tables[0] == tables[1]
        version = mine.topic_config_serialize_wrapper.data_version
        assert version == world.topics.version

    run_async(main)


def test_without_force_a_name_server_is_asked_first_and_told_only_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SECOND_ROUND_MS", 1)
    java = compressed_golden(322)

    async def main() -> None:
        async with World(force_register=False, name="broker-b") as world:
            asked = await world.namesrv.next()
            assert asked.code == java.code == 322
            assert (asked.fields or {}).keys() == (java.fields or {}).keys()
            assert dialect.loads(asked.body).keys() == dialect.loads(java.body).keys()
            assert asked.body == world.topics.version.encode()
            assert (await world.namesrv.next()).code == 103

            assert (await world.namesrv.next()).code == 322  # the second round
            world.topics.put(TopicConfig(topic_name="A"))
            news = await world.namesrv.next()

            assert (news.code, world.namesrv.topics(news).keys()) == (103, {"A"})
            assert world.registration.registered == [world.namesrv.server.address]

    run_async(main)


def test_a_name_server_that_does_not_know_the_question_is_told_everything() -> None:
    async def main() -> None:
        world = World(force_register=False)
        world.namesrv.codes = [3]
        async with world:
            assert (await world.namesrv.next()).code == 322
            assert "TBW102" in world.namesrv.topics(await world.namesrv.next())

    run_async(main)


@pytest.mark.parametrize("compressed", [True, False])
def test_our_name_server_takes_both_forms_and_needs_no_second_telling(
    tmp_path: Path, compressed: bool
) -> None:
    async def main() -> None:
        namesrv = NameServer(NamesrvConfig(host="127.0.0.1", port=0))
        await namesrv.start()
        given = {"namesrv": (namesrv.address,), "force_register": False}
        try:
            async with live_broker(tmp_path, compressed_register=compressed, **given) as broker:
                assert not await is_news(broker, LiveClient(namesrv.address))
        finally:
            await namesrv.stop()

    run_live(main)


async def is_news(broker: Broker, client: LiveClient) -> bool:
    """Return whether the name server needs to be told of a topic that it has a route of."""
    topics = broker.context.topics
    await until(lambda: broker.context.registration.registered)
    topics.put(TopicConfig(topic_name="Orders", attributes={"+message.type": "FIFO"}))
    await until_route(client, "Orders")
    fields = {"brokerName": "broker-a", "clusterName": "DefaultCluster", "brokerId": "0"}
    fields["brokerAddr"] = broker.address
    answer = await client.ask(322, fields, topics.version.encode())
    return (answer.fields or {})["changed"] == "true"


async def until_route(client: LiveClient, topic: str) -> None:
    async with asyncio.timeout(20):
        while (await client.ask(105, {"topic": topic})).code != 0:
            await asyncio.sleep(0.01)
