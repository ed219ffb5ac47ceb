"""Brokers of one name and a coordinator that a test owns, live: who is the primary, and what is acknowledged."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from async_run import until
from failover_world import FakeCoordinator, FakeEtcd, member_broker
from ha_world import equal, send_many
from live_broker import LiveClient, run_live
from orbitmq.broker.broker import Broker
from orbitmq.wire.codes import RequestCode, ResponseCode

TWO: dict[str, Any] = {"in_sync_replicas": 2, "replica_timeout_ms": 300}
AUTO: dict[str, Any] = {**TWO, "auto_in_sync": True, "sync_lag_ms": 300}


@asynccontextmanager
async def ending() -> AsyncIterator[list[Broker]]:
    brokers: list[Broker] = []
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


def is_primary(broker: Broker) -> bool:
    there = broker._context is not None and broker._restarting is None
    return there and not broker.config.is_replica and broker.context.failover.is_primary


def follows(broker: Broker) -> bool:
    there = broker._context is not None and broker._restarting is None
    return there and broker.config.is_replica and broker.context.replication.connected


async def started(
    brokers: list[Broker], root: Path, etcd: FakeEtcd, count: int = 2, **given: Any
) -> list[FakeCoordinator]:
    """Start a primary and its replicas; all are in sync."""
    ways = []
    for broker_id in range(count):
        broker, way = member_broker(root / str(broker_id), etcd, broker_id, **(TWO | given))
        brokers.append(broker)
        ways.append(way)
        await broker.start()
    await until(lambda: etcd.state is not None and len(etcd.state.in_sync) == count)
    return ways


async def cut_off(broker: Broker, way: FakeCoordinator) -> None:
    """Let a broker reach nobody, while its clients reach it."""
    way.is_away = True
    await broker._ha_server.stop()


def test_a_replica_takes_over_when_the_lease_ends_and_the_primary_before_follows_it(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        etcd = FakeEtcd()
        async with ending() as brokers:
            ways = await started(brokers, tmp_path, etcd, **AUTO)
            one, other = brokers
            assert set(await send_many(one, 20)) == {0}
            await cut_off(one, ways[0])
            etcd.end_lease()
            await until(lambda: is_primary(other))
            assert etcd.state.epoch == 2
            assert set(await send_many(other, 20)) == {0}
            codes = await send_many(one, 2)
            assert 0 not in codes
            ways[0].is_away = False
            await until(lambda: follows(one))
            await until(lambda: len(etcd.state.in_sync) == 2)
            assert set(await send_many(other, 20)) == {0}
            await equal(other, one)

    run_live(main, seconds=60)
