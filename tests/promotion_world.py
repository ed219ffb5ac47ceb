"""What the tests of promotions share: a name server, brokers that change their role, what they tell."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from async_run import until
from live_broker import LOOPBACK, LiveClient
from orbitmq.broker.broker import Broker
from orbitmq.namesrv.config import NamesrvConfig
from orbitmq.namesrv.server import NameServer
from orbitmq.store.config import Role
from orbitmq.wire.bodies.replication import EpochsAnswer
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.command import Command

QUICK: dict[str, Any] = {"state_sync_ms": 20, "state_sync_all_ms": 20}


@asynccontextmanager
async def name_server() -> AsyncIterator[dict[str, Any]]:
    server = NameServer(NamesrvConfig(host=LOOPBACK, port=0))
    await server.start()
    try:
        yield {"namesrv": (server.address,), **QUICK}
    finally:
        await server.stop()


@asynccontextmanager
async def ending() -> AsyncIterator[list[Broker]]:
    """Stop the brokers that a test puts into the list."""
    brokers: list[Broker] = []
    try:
        yield brokers
    finally:
        for broker in brokers:
            await broker.stop()


async def promote(broker: Broker, *, force: bool = False) -> Command:
    fields = {"force": "true"} if force else {}
    return await LiveClient(broker.address).ask(RequestCode.PROMOTE_REPLICA, fields)


async def became(broker: Broker, role: Role) -> None:
    """Wait until a broker that takes another role has started again."""

    def is_there() -> bool:
        there = broker._context is not None and broker._restarting is None
        return there and broker.config.store.role is role

    await until(is_there)


async def epochs(broker: Broker) -> list[tuple[int, int]]:
    answer = await LiveClient(broker.address).ask(RequestCode.GET_EPOCHS)
    told = EpochsAnswer.decode(answer.body)
    assert told.primary is not broker.config.is_replica
    return [(row.number, row.start) for row in told.epochs]
