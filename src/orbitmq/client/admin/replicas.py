"""The admin client's part for copies of the log: who has it, how far, and whether that is near enough.

A primary tells of connections, a replica of itself; nothing says which connection is whose. They are put
together where only one can be meant: by the host, or because there is one of each.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from orbitmq.client.admin.brokers import BrokerAdmin
from orbitmq.client.admin.results import BrokerInfo, LogCopy, Promotion
from orbitmq.errors import ClientError, ResponseError, UnreachableError, WireError
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.failover import FailoverTold
from orbitmq.wire.bodies.replication import (
    EpochsAnswer,
    PromotedAnswer,
    ReplicaConnection,
    ReplicationStatus,
)
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers.admin import PromoteHeader

PROMOTION_MS: Final = 60 * SECOND_MS
"""How long a replica may take to open its store as a primary."""


class Asked(NamedTuple):
    """A broker and what it answered; without an answer, why."""

    broker: BrokerInfo
    status: ReplicationStatus | None
    error: str = ""
    failover: FailoverTold | None = None


class ReplicaAdmin(BrokerAdmin):
    """Primaries and replicas."""

    async def replicas(self, broker: str | None = None) -> list[LogCopy]:
        """Return each log and its copies: of all brokers, of those with a name, or what one address tells.

        One that does not answer is listed with its error, but raised if it is the only one asked.
        """
        if broker is not None and ":" in broker:
            alone = BrokerInfo("", "", 0, broker)
            status = await self._replication(broker)
            return list(_joined([Asked(alone, status, failover=await self._failover(broker))]))
        brokers = [b for b in await self.brokers(runtime=False) if broker in (None, b.name)]
        if broker is not None and not brokers:
            what = f"no broker {broker} in the name server's list"
            raise ClientError(f"{what}. `orbitmq broker replicas` without a name shows all.")
        asked = await asyncio.gather(*map(self._asked, brokers))
        names = dict.fromkeys((one.broker.cluster, one.broker.name) for one in asked)
        return [
            copy
            for name in names
            for copy in _joined([a for a in asked if (a.broker.cluster, a.broker.name) == name])
        ]

    async def promote(self, address: str, *, force: bool = False) -> Promotion:
        """Make the replica at this address the primary, and wait until it is.

        ResponseError: it is not in sync, or its primary is alive; ClientError: another replica has more.
        With `force` it becomes the primary all the same, and what it lacks is lost.
        """
        if not force:
            await self._require_longest(address)
        header = PromoteHeader(force=force)
        answer = await self._ask(address, RequestCode.PROMOTE_REPLICA, header)
        began = PromotedAnswer.decode(answer.body)
        await self._await_primary(address, began.number)
        return Promotion(address, began.number, began.start, began.lacked)

    async def _require_longest(self, address: str) -> None:
        """ClientError: name servers know a replica of the same broker whose log is longer."""
        copies = await self.replicas()
        own = next((copy for copy in copies if copy.address == address), None)
        if own is None:
            return
        same = [c for c in copies if c.broker_name == own.broker_name and not c.is_primary]
        longest = max(same, key=lambda copy: copy.log_end, default=own)
        if longest.log_end > own.log_end:
            more = f"{longest.address} has {longest.log_end - own.log_end} bytes more"
            raise ClientError(f"not promoted: {more}. Promote that one, or say --force.")

    async def _await_primary(self, address: str, number: int) -> None:
        """Wait until a broker that takes its new role answers in it."""
        clock = self.require_open().clock
        deadline, why = clock.monotonic_ms() + PROMOTION_MS, "it starts again"
        while clock.monotonic_ms() < deadline:
            try:
                answer = await self._ask(address, RequestCode.GET_EPOCHS)
                told = EpochsAnswer.decode(answer.body)
                if told.primary and told.epochs[-1].number >= number:
                    return
            except WireError as error:
                why = str(error)
            await asyncio.sleep(0.05)
        step = "Look at its log: it may take long to open its store."
        raise UnreachableError(address, f"promoted, and not there as a primary yet: {why}", step)

    async def _asked(self, broker: BrokerInfo) -> Asked:
        try:
            status = await self._replication(broker.address)
            return Asked(broker, status, failover=await self._failover(broker.address))
        except WireError as failure:
            return Asked(broker, None, str(failure))

    async def _replication(self, address: str) -> ReplicationStatus:
        answer = await self._ask(address, RequestCode.GET_BROKER_HA_STATUS)
        return ReplicationStatus.decode(answer.body)

    async def _failover(self, address: str) -> FailoverTold | None:
        try:
            answer = await self._ask(address, RequestCode.GET_EPOCHS)
        except ResponseError:
            return None  # RocketMQ's brokers do not know the question
        return EpochsAnswer.decode(answer.body).failover


def _joined(asked: Sequence[Asked]) -> Iterator[LogCopy]:
    """Yield the logs of one broker name; connections that are nobody's for certain come last."""
    primary = next((a.status for a in asked if a.status is not None and a.status.master), None)
    links = primary.ha_connection_info if primary is not None else []
    replicas = [a.broker.address for a in asked if a.status is not None and not a.status.master]
    pairs = _pairs(links, replicas)
    left = [link for link in links if link not in pairs.values()]
    for one in asked:
        if one.status is None:
            yield _silent(one)
        elif one.status.master:
            yield _whole(one, one.status)
        else:
            is_gone = primary is not None and not left
            yield _copy(one, pairs.get(one.broker.address), primary, is_gone=is_gone)
    yield from (_nameless(asked[0].broker.name, link) for link in left)


def _pairs(
    links: Sequence[ReplicaConnection], addresses: Sequence[str]
) -> dict[str, ReplicaConnection]:
    """Return the connections of those replicas of which it is certain."""
    if len(links) == len(addresses) == 1:
        return {addresses[0]: links[0]}
    by_host = Counter(_host(link.addr) for link in links)
    alone = Counter(map(_host, addresses))
    sure = {_host(link.addr): link for link in links if by_host[_host(link.addr)] == 1}
    return {a: sure[_host(a)] for a in addresses if alone[_host(a)] == 1 and _host(a) in sure}


def _host(address: str) -> str:
    return address.rpartition(":")[0]


def _silent(one: Asked) -> LogCopy:
    broker = one.broker
    return LogCopy(broker.name, broker.is_primary, broker.address, error=one.error)


def _whole(one: Asked, status: ReplicationStatus) -> LogCopy:
    name, address, end = one.broker.name, one.broker.address, status.master_commit_log_max_offset
    return LogCopy(name, True, address, end, gap_bytes=0, in_sync=True, failover=one.failover)


def _copy(
    one: Asked,
    link: ReplicaConnection | None,
    primary: ReplicationStatus | None,
    *,
    is_gone: bool,
) -> LogCopy:
    """Return a replica that answers; `is_gone`: its primary has no connection that could be its."""
    assert one.status is not None
    own = one.status.ha_client_runtime_info
    never = not own.master_addr or not own.last_read_timestamp
    copy = LogCopy(
        one.broker.name,
        False,
        one.broker.address,
        log_end=own.max_offset,
        bytes_per_second=own.transferred_byte_in_second,
        last_heard_ms=own.last_read_timestamp,
        follows=own.master_addr or "",
        failover=one.failover,
    )
    if primary is not None:
        copy.gap_bytes = max(primary.master_commit_log_max_offset - own.max_offset, 0)
    if link is not None:
        copy.connected, copy.in_sync, copy.gap_bytes = True, link.in_sync, link.diff
    elif is_gone or never:
        copy.connected = copy.in_sync = False
    return copy


def _nameless(name: str, link: ReplicaConnection) -> LogCopy:
    return LogCopy(
        name,
        False,
        link.addr,
        log_end=link.slave_ack_offset,
        gap_bytes=link.diff,
        in_sync=link.in_sync,
        bytes_per_second=link.transferred_byte_in_second,
        connected=True,
    )
