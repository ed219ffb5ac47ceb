"""What a replica has of its primary beside the log, over real sockets: tables, offsets, timers."""

import dataclasses
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from async_run import until
from ha_world import equal, primary, replica, send_many
from live_broker import LOOPBACK, LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.files.state_file import read_state
from orbitmq.message import TIMER_TOPIC
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.store.config import Role
from orbitmq.wire.bodies.assignment import RequestMode
from orbitmq.wire.bodies.group_config import GroupConfig
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode

pytestmark = pytest.mark.feature("F84")

QUICK: dict[str, Any] = {"state_sync_ms": 20, "state_sync_all_ms": 20}


@asynccontextmanager
async def name_server() -> AsyncIterator[dict[str, Any]]:
    server = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
    await server.start()
    try:
        yield {"namesrv": (server.address,), "offset_save_ms": 20}
    finally:
        await server.stop()


def offset(broker: Broker, queue_id: int = 0) -> int:
    return broker.context.offsets.get("G", "T", queue_id)


def put_offset(broker: Broker, value: int, queue_id: int = 0) -> None:
    assert broker.context.offsets.commit("G", "T", queue_id, value)


async def fill(broker: Broker) -> None:
    """Give a primary something of everything."""
    client, context = LiveClient(broker.address), broker.context
    assert (await client.send("T", b"a", 1)).code == 0
    context.topics.put(TopicConfig(topic_name="Wide", read_queue_nums=3, attributes={"a": "b"}))
    context.groups.put(GroupConfig(group_name="G", retry_max_times=7))
    context.groups.set_forbidden("G", "Wide", 4)
    context.request_modes.put(RequestMode(topic="T", consumer_group="G", mode="POP"))
    put_offset(broker, 5, 2)
    assert (await client.send("T", b"b", properties="DELAY\x011\x02")).code == 0
    await until(lambda: context.schedule.progress().get(1, (0, 0))[0] == 1)
    await context.loop.run_in_executor(None, context.store.wait_flushed)


@pytest.mark.feature("F84")
def test_a_replica_has_the_tables_of_its_primary_also_when_it_is_started_without_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with name_server() as names:
            async with primary(tmp_path, **names) as one:
                await fill(one)
                async with replica(tmp_path, **names, **QUICK) as other:
                    await equal(one, other)
                    ours, its = other.context, one.context
                    await until(lambda: ours.schedule.snapshot() == its.schedule.snapshot())
                    await until(lambda: ours.schedule.snapshot()["offsetTable"] == {1: 1})
                    await until(lambda: dict(ours.topics.all()) == dict(its.topics.all()))
                    assert ours.topics.version == its.topics.version
                    assert ours.groups.snapshot() == its.groups.snapshot()
                    assert ours.offsets.get("G", "T", 2) == 5
                    assert ours.request_modes.snapshot() == its.request_modes.snapshot()
                    tables = ours.topics.snapshot(), ours.groups.snapshot(), ours.offsets.all()
            async with replica(tmp_path) as other:
                ours = other.context
                again = ours.topics.snapshot(), ours.groups.snapshot(), ours.offsets.all()
                assert again == tables
                assert ours.schedule.snapshot()["offsetTable"] == {1: 1}
                assert ours.groups.forbidden("G", "Wide") == 4
                assert ours.request_modes.get("T", "G") is not None
        config = tmp_path / "replica" / "config"
        assert read_state(config / "topics.json")["topicConfigTable"]["Wide"]["readQueueNums"] == 3
        assert (config / "topics.json.bak").exists()

    run_live(main)


def test_a_topic_that_the_primary_deletes_goes_at_its_replica_with_queues_and_offsets(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with (
            name_server() as names,
            primary(tmp_path, **names) as one,
            replica(tmp_path, **names, **QUICK) as other,
        ):
            await fill(one)
            await equal(one, other)
            await until(lambda: other.context.offsets.get("G", "T", 2) == 5)
            await until(lambda: "T" in other.context.topics)
            client = LiveClient(one.address)
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
            await until(lambda: "T" not in other.context.topics)
            await until(lambda: other.context.store.max_offset("T", 1) == 0)
            assert other.context.offsets.groups_of("T") == set()
            assert "SCHEDULE_TOPIC_XXXX" in other.context.topics

    run_live(main)


@pytest.mark.feature("F85")
def test_consumer_offsets_are_merged_and_only_a_reset_takes_them_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names, primary(tmp_path, **names) as one:
            await fill(one)
            put_offset(one, 10)
            async with replica(tmp_path, **names, **QUICK) as other:
                await until(lambda: offset(other) == 10)
                put_offset(other, 30)  # a consumer went on there
                rounds = other.context.state_sync.rounds
                await until(lambda: other.context.state_sync.rounds > rounds + 1)
                assert offset(other) == 30
                put_offset(one, 31)
                await until(lambda: offset(other) == 31)
                one.context.offsets.assign("G", "T", 0, 2)  # as a tool resets it
                await until(lambda: offset(other) == 2)

    run_live(main)


@pytest.mark.feature("F85")
def test_a_primary_that_comes_back_takes_the_offsets_of_its_replica(tmp_path: Path) -> None:
    async def main() -> None:
        async with name_server() as names:
            async with primary(tmp_path, **names) as one:
                await fill(one)
                await send_many(one, 240, size=6)
                put_offset(one, 10)
                put_offset(one, 50, 1)
                port = int(one.address.rpartition(":")[2])
            async with replica(tmp_path, **names, **QUICK) as other:
                async with primary(tmp_path, **names, port=port) as one:
                    await equal(one, other)
                    await until(lambda: offset(other) == 10)
                client = LiveClient(other.address)
                assert (await client.commit("G", "T", 20)).code == 0
                # What it lost of its own (a kill takes the last seconds) is no reset either.
                state = read_state(tmp_path / "primary" / "config" / "consumerOffset.json")
                state["offsetTable"]["T@G"]["1"] = 40
                file = tmp_path / "primary" / "config" / "consumerOffset.json"
                file.write_text(json.dumps(state))
                async with primary(tmp_path, **names, port=port) as one:
                    assert (offset(one), offset(one, 1)) == (20, 50)
                    rounds = other.context.state_sync.rounds
                    await until(lambda: other.context.state_sync.rounds > rounds + 1)
                    assert (offset(other), offset(other, 1)) == (20, 50)

    run_live(main)


def test_a_primary_that_is_started_again_with_older_offsets_takes_none_from_its_replica_back(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with name_server() as names:
            async with primary(tmp_path, **names) as one:
                await fill(one)
                put_offset(one, 10)
                port, ha_port = (int(a.rpartition(":")[2]) for a in (one.address, one.ha_address))
                other = replica(tmp_path, **names, **QUICK)
                await other.start()
                await until(lambda: offset(other) == 10)
            file = tmp_path / "primary" / "config" / "consumerOffset.json"
            state = read_state(file)
            state["offsetTable"]["T@G"]["0"] = 4
            file.write_text(json.dumps(state))
            try:
                # It knows no name server, so it hears nothing of its replica.
                async with primary(tmp_path, port=port, ha_port=ha_port) as one:
                    assert offset(one) == 4
                    rounds = other.context.state_sync.rounds
                    await until(lambda: other.context.state_sync.rounds > rounds + 1)
                    assert offset(other) == 10
            finally:
                await other.stop()

    run_live(main)


def test_a_replica_that_becomes_a_primary_delivers_what_waits_and_not_what_was_delivered(
    tmp_path: Path,
) -> None:
    def timer(wait_ms: int) -> str:
        return f"TIMER_DELIVER_MS\x01{int(time.time() * 1000) + wait_ms}\x02"

    async def main() -> None:
        async with name_server() as names:
            async with (
                primary(tmp_path, **names) as one,
                replica(tmp_path, **names, **QUICK) as other,
            ):
                client = LiveClient(one.address)
                assert (await client.send("T", b"soon", properties=timer(1500))).code == 0
                assert (await client.send("T", b"late", properties=timer(600_000))).code == 0
                store = one.context.store
                await until(lambda: store.max_offset("T", 0) == 1)
                # The slot of the message has to be over for the primary.
                await until(lambda: one.context.timers.store.read_behind_ms == 0)
                told = one.context.timers.store.checkpoint
                assert told.queue_offset == store.max_offset(TIMER_TOPIC, 0) == 2
                file = tmp_path / "replica" / "config" / "timercheck"
                await equal(one, other)
                await until(lambda: other._primary_timers.checkpoint.read_ms >= told.read_ms)
                await until(lambda: other._primary_timers.metrics.count("T") == 1)
                assert file.stat().st_size == 4096
                # What has no wheel put nothing into one, whoever opens the store next.
                kept = other._primary_timers.checkpoint
                assert (kept.timer_log_end, kept.queue_offset) == (0, 0)
                assert kept.master_queue_offset == 2
            config = replica(tmp_path).config
            config.broker_id = 0
            config.store = dataclasses.replace(config.store, role=Role.ASYNC_PRIMARY)
            async with Broker(config) as third:
                timers = third.context.timers.store
                await until(lambda: timers.queue_behind == 0)
                assert timers.waiting() == timers.metrics.count("T") == 1
                store = third.context.store
                await until(lambda: store.dispatched_offset == store.max_log_offset)
                assert store.max_offset("T", 0) == 1

    run_live(main)
