"""The settings of replication, from a broker.conf to what can be seen of them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from async_run import until
from compat.server_process import free_port
from ha_world import Peer, equal, log_bytes, send_many
from live_broker import LOOPBACK, run_live
from orbitmq.broker.broker import Broker
from orbitmq.broker.config import BrokerConfig
from orbitmq.errors import ConfigError, UnreachableError
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.wire.bodies.assignment import RequestMode
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import ResponseCode

HERE = f"brokerIP1={LOOPBACK}\nbindAddress={LOOPBACK}\nlistenPort=0\nbrokerName=broker-a\n"
SIZES = "mappedFileSizeCommitLog=262144\nmaxHashSlotNum=64\nmaxIndexNum=256\n"
SYNC = "brokerRole=SYNC_MASTER"
TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
NONE = ResponseCode.SLAVE_NOT_AVAILABLE


def from_conf(root: Path, name: str, *lines: str) -> BrokerConfig:
    root.mkdir(exist_ok=True)
    file = root / f"{name}.conf"
    file.write_text(HERE + SIZES + "".join(f"{line}\n" for line in lines))
    return BrokerConfig.load(file, {"storePathRootDir": root / name})


@contextlib.asynccontextmanager
async def primary(root: Path, *lines: str) -> AsyncIterator[Broker]:
    async with Broker(from_conf(root, "primary", *lines)) as broker:
        yield broker


@contextlib.asynccontextmanager
async def replica(root: Path, of: str, *lines: str) -> AsyncIterator[Broker]:
    given = "brokerRole=SLAVE", "brokerId=1", f"haMasterAddress={of}"
    async with Broker(from_conf(root, "replica", *given, *lines)) as broker:
        yield broker


def test_the_port_is_the_one_that_is_given_or_the_next_one(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        async with primary(tmp_path, f"listenPort={port}") as one:
            assert one.ha_address == f"{LOOPBACK}:{port + 1}"
            # Taken: not given, another one serves; given, nothing else will do.
            other = from_conf(tmp_path / "other", "primary", f"haListenPort={port + 1}")
            with pytest.raises(UnreachableError, match="haListenPort"):
                await Broker(other).start()
        async with primary(tmp_path, f"haListenPort={port}") as one:
            assert one.ha_address == f"{LOOPBACK}:{port}"
        async with primary(tmp_path, "haListenPort=0") as one:
            assert one.ha_address.startswith(f"{LOOPBACK}:")

    run_live(main)


def test_a_taken_port_that_nobody_asked_for_is_replaced(tmp_path: Path) -> None:
    async def main() -> None:
        port = free_port()
        server = await asyncio.start_server(lambda reader, writer: None, LOOPBACK, port + 1)
        async with primary(tmp_path, f"listenPort={port}") as one:
            assert one.ha_address not in ("", f"{LOOPBACK}:{port + 1}")
            assert one.context.registration.ha_port == int(one.ha_address.rpartition(":")[2])
        server.close()

    run_live(main)


def test_a_replica_has_a_number_and_its_address_of_the_primary(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="above 0 for brokerRole=SLAVE"):
        from_conf(tmp_path, "replica", "brokerRole=SLAVE")

    async def main() -> None:
        async with primary(tmp_path) as one, replica(tmp_path, one.ha_address) as other:
            await send_many(one, 3)
            await equal(one, other)
            assert other.ha_address == ""

    run_live(main)


def test_a_replica_without_name_servers_has_epochs_and_state_of_the_primary_that_it_is_told(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one:
            where = f"primaryAddress={one.address}", "stateSyncInterval=20"
            async with replica(tmp_path, one.ha_address, *where) as other:
                await send_many(one, 3)
                await equal(one, other)
                assert other._succession.epochs.epochs == one._succession.epochs.epochs
                await until(lambda: other.context.topics.get("T") is not None)

    run_live(main)


def test_a_replica_takes_no_log_from_a_port_of_another_broker_than_the_one_it_asked(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        async with primary(tmp_path) as one, primary(tmp_path / "another") as another:
            await send_many(another, 3)
            where = f"primaryAddress={one.address}"
            async with replica(tmp_path, another.ha_address, where) as other:
                await until(lambda: "closed the connection" in other.context.replication.state)
                assert other.context.store.max_log_offset == 0

    run_live(main)


def test_frames_heartbeats_and_silence(tmp_path: Path) -> None:
    async def main() -> None:
        lines = (
            "haTransferBatchSize=300",
            "haSendHeartbeatInterval=50",
            "haHousekeepingInterval=700",
        )
        async with primary(tmp_path, *lines) as one:
            await send_many(one, 3)
            peer = await Peer.connect(one)
            peer.report(0)
            sizes = [len((await peer.frame())[1]) for _ in range(10)]
            assert sizes[0] == 300
            assert sizes[-3:] == [0, 0, 0]
            assert await asyncio.wait_for(peer.is_closed(), 10)

    run_live(main)


def waits_for_it(one: Broker) -> bool:
    """Tell whether the replica counts; if the allowed gap is a byte, it has to have reported all."""
    replicas, end = one.context.replicas, one.context.store.max_log_offset
    return replicas is None or replicas.reached(end, 2)


@pytest.mark.parametrize(
    ("lines", "alone", "with_replica"),
    [
        ((SYNC,), 0, 0),
        ((SYNC, "inSyncReplicas=2"), TIMEOUT, 0),
        (("inSyncReplicas=2",), 0, 0),
        ((SYNC, "inSyncReplicas=3"), TIMEOUT, TIMEOUT),
        ((SYNC, "inSyncReplicas=3", "enableAutoInSyncReplicas=true"), 0, 0),
        ((SYNC, "minInSyncReplicas=2"), ResponseCode.SYSTEM_ERROR, 0),
        ((SYNC, "syncMasterAsInV4=true"), NONE, 0),
        ((SYNC, "syncMasterAsInV4=true", "haMaxGapNotInSync=1"), NONE, NONE),
        ((SYNC, "syncMasterAsInV4=true", "haSlaveFallbehindMax=1"), NONE, NONE),
        ((SYNC, "syncMasterAsInV4=true", "inSyncReplicas=3"), NONE, TIMEOUT),
    ],
)
def test_what_an_answer_waits_for(
    tmp_path: Path, lines: tuple[str, ...], alone: int, with_replica: int
) -> None:
    async def main() -> None:
        async with primary(tmp_path, *lines, "slaveTimeout=200") as one:
            assert await send_many(one, 1) == [alone]
            async with replica(tmp_path, one.ha_address) as other:
                await equal(one, other)
                await until(lambda: waits_for_it(one))
                one.config.replica_timeout_ms = 10_000 if with_replica == 0 else 200
                assert await send_many(one, 1) == [with_replica]
                await equal(one, other)

    run_live(main)


@pytest.mark.parametrize(
    "line", ["haTransferBatchSize=4194293", "haListenPort=65536", "inSyncReplicas=0"]
)
def test_values_that_cannot_work_are_refused_by_their_keys(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigError, match=line.partition("=")[0]):
        from_conf(tmp_path, "primary", line)


def test_the_replicas_own_settings(tmp_path: Path) -> None:
    lines = "haSendHeartbeatInterval=50", "haHousekeepingInterval=300"

    async def main() -> None:
        async with primary(tmp_path, "haSendHeartbeatInterval=100000") as one:
            await send_many(one, 1)
            async with replica(tmp_path, one.ha_address, *lines) as other:
                await equal(one, other)
                # The primary says nothing for so long that the replica looks for another connection.
                seen: set[object] = set()
                links = _links(one)
                await until(lambda: seen.update(links()) or len(seen) > 1)
                assert log_bytes(other.context.store) == log_bytes(one.context.store)

    run_live(main)


def _links(broker: Broker) -> Callable[[], set[object]]:
    server = broker._ha_server
    assert server is not None
    return lambda: set(server._links)


def test_tables_come_when_they_change_and_else_by_their_interval(tmp_path: Path) -> None:
    async def main() -> None:
        server = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
        await server.start()
        named = f"namesrvAddr={server.address}"
        every = "stateSyncInterval=20", "stateSyncAllInterval=60000"
        async with (
            contextlib.AsyncExitStack() as stack,
            primary(tmp_path, named) as one,
            replica(tmp_path, "", named, *every) as other,
        ):
            stack.push_async_callback(server.stop)
            state = other.context.state_sync
            await until(lambda: state.rounds > 2)
            one.context.topics.put(TopicConfig(topic_name="Late"))
            await until(lambda: "Late" in other.context.topics, 10)
            rounds = state.rounds
            await until(lambda: state.rounds > rounds + 1)  # that round is over
            # What is not counted as a change comes with the next round of all tables.
            one.context.offsets.assign("G", "Late", 0, 7)
            one.context.request_modes._table["Late"] = {
                "G": RequestMode(topic="Late", consumer_group="G", mode="POP")
            }
            await until(lambda: other.context.offsets.get("G", "Late", 0) == 7, 10)
            assert other.context.request_modes.get("Late", "G") is None
            other.config.state_sync_all_ms = 20
            await until(lambda: other.context.request_modes.get("Late", "G") is not None, 10)

    run_live(main)
