"""The brokers of one name, as name servers tell them: what a primary that starts asks those beside it.

It may be a primary no longer: then one of a higher epoch is there, and it becomes its replica before it has
served anybody. Else consumers may have gone on at its replicas: it takes their offsets.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.context import BrokerContext
from orbitmq.broker.replication.succession import Succession, ask_epochs
from orbitmq.broker.tables.consumer_offsets import SEPARATOR
from orbitmq.errors import OrbitError, ResponseError
from orbitmq.net.channels import Channels
from orbitmq.store.store import MessageStore
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.offsets import OffsetTable
from orbitmq.wire.bodies.route import ClusterInfo
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command

logger = logging.getLogger(__name__)

ASK_MS: Final = 1 * SECOND_MS
"""How long somebody may take to answer; a start waits for it."""

Members = Mapping[int, str]
"""Addresses by broker id."""


async def members(config: BrokerConfig, channels: Channels) -> Members:
    """Return who has this broker's name, as the first name server says that knows of anybody."""
    asked = (known_to(namesrv, config.name, channels) for namesrv in config.namesrv)
    return next(filter(None, await asyncio.gather(*asked)), {})


async def known_to(namesrv: str, name: str, channels: Channels) -> Members:
    """Return who has this name, as one name server says; nobody, if it says nothing."""
    try:
        told = await body_of(channels, namesrv, RequestCode.GET_BROKER_CLUSTER_INFO, ASK_MS)
        known = ClusterInfo.decode(told).broker_addr_table.get(name)
    except (OrbitError, OSError) as error:
        logger.debug("name server %s: does not tell who is there: %s", namesrv, error)
        return {}
    return known.broker_addrs if known is not None else {}


async def follow_successor(succession: Succession, config: BrokerConfig) -> Members:
    """Demote a primary that its successor itself says is one no longer; return who else is there."""
    if not succession.epochs.epochs:
        return {}  # a new log: nobody can have followed it
    channels = Channels()
    found: Members = {}
    try:
        found = await members(config, channels)
        if 0 in found:
            its = await ask_epochs(channels, found[0], ASK_MS)
            if succession.is_above(its):
                succession.demote(found[0], its)
                succession.begin()
    except (OrbitError, OSError) as error:
        # Most often it is this broker's own registration from before its stop.
        logger.debug("primary %s: says nothing of epochs: %s", found.get(0), error)
    finally:
        await channels.close()
    return found


async def take_back(context: BrokerContext, found: Members) -> None:
    """Take the consumer offsets of a primary's replicas: consumers may have gone on there without it."""
    channels = Channels()
    try:
        for address in (address for broker_id, address in found.items() if broker_id > 0):
            try:
                code = RequestCode.GET_ALL_CONSUMER_OFFSET
                told = OffsetTable.decode(await body_of(channels, address, code, ASK_MS))
                _limit(told, context.store)
                context.offsets.merge(told, OffsetTable())
            except (OrbitError, OSError, ValueError) as error:
                logger.info("replica %s: its consumer offsets are not known: %s", address, error)
    finally:
        await channels.close()


def _limit(told: OffsetTable, store: MessageStore) -> None:
    """Take nothing over that is beyond the queues of this log: what it would skip is not written yet."""
    for name, row in told.offset_table.items():
        topic = name.partition(SEPARATOR)[0]
        for queue_id, offset in row.items():
            row[queue_id] = min(offset, store.max_offset(topic, queue_id))


async def body_of(channels: Channels, address: str, code: RequestCode, timeout_ms: float) -> bytes:
    """Return the body of an answer. WireError: there is none."""
    answer = await channels.request(address, Command(code, {}), timeout_ms)
    if answer.code != ResponseCode.SUCCESS:
        raise ResponseError(answer.code, answer.remark or "", address)
    return bytes(answer.body)
