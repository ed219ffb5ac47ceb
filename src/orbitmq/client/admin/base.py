"""What all parts of the admin client share: its life, and which brokers a request goes to."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from orbitmq.client.core.broker_api import BrokerApi
from orbitmq.client.core.config import ClientConfig, config_of
from orbitmq.client.core.core import ClientCore
from orbitmq.client.core.namesrv_api import NamesrvApi
from orbitmq.errors import ClientClosedError, ClientError, ResponseError
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.bodies.route import ClusterInfo, TopicRoute
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.header import Header

T = TypeVar("T")

ADMIN_GROUP: Final = "TOOLS_CONSUMER"
"""The group under which tools read messages; it is there on every broker."""

_SYSTEM_TOPICS: Final = frozenset(
    {
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "BenchmarkTest",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRACE_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "CHECKPOINT_TOPIC",
    }
)
_SYSTEM_GROUPS: Final = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "__MONITOR_CONSUMER"}
)


def is_system_topic(topic: str, cluster: ClusterInfo | None = None) -> bool:
    """Return whether brokers made the topic for themselves; retry and dead-letter topics count as such."""
    if topic in _SYSTEM_TOPICS or topic.startswith((RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_")):
        return True
    if cluster is None:
        return False
    names = {*cluster.cluster_addr_table, *cluster.broker_addr_table}
    return topic in names or topic.removesuffix("_REPLY_TOPIC") in cluster.cluster_addr_table


def is_system_group(group: str) -> bool:
    """Return whether brokers made the group for themselves."""
    return group in _SYSTEM_GROUPS or group.startswith(("CID_ONS", "CID_RMQ_SYS_"))


class AdminBase:
    """The life of an admin client, and its questions to many brokers. Belongs to its loop."""

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        given = config_of(namesrv, config, settings)
        self._config = given.named()
        self._opened_core: ClientCore | None = None

    async def open(self) -> Self:
        """Get ready; connections are made when they are needed."""
        if self._opened_core is None:
            self._opened_core = await ClientCore.acquire(self._config)
        return self

    async def close(self) -> None:
        """Close the connections."""
        core, self._opened_core = self._opened_core, None
        if core is not None:
            await core.release()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def _core(self) -> ClientCore:
        if self._opened_core is None:
            raise ClientClosedError(
                "the admin client is not open: use it inside `async with`, or call open() first"
            )
        return self._opened_core

    @property
    def _namesrv(self) -> NamesrvApi:
        return self._core.namesrv

    @property
    def _brokers(self) -> BrokerApi:
        return self._core.brokers

    # --- asking ---

    async def _ask(
        self,
        address: str,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        also: frozenset[int] = frozenset(),
    ) -> Command:
        return await self._core.calls.checked(
            address,
            code,
            {} if header is None else header.write(),
            body,
            timeout_ms=self._config.admin_timeout_ms,
            also=also,
        )

    async def _ask_each(
        self, primaries: dict[str, str], question: Callable[[str, str], Awaitable[T]]
    ) -> dict[str, T]:
        """Return the answer of each broker by name; the first error is raised."""
        answers = await asyncio.gather(*(question(n, a) for n, a in primaries.items()))
        return dict(zip(primaries, answers, strict=True))

    # --- where ---

    async def _route(self, topic: str) -> TopicRoute:
        route = await self._namesrv.route(topic)
        if route is None:
            raise self._core.routes.no_route(topic)
        return route

    async def _topic_primaries(self, topic: str) -> dict[str, str]:
        """Return the primaries that have a topic, by broker name."""
        route = await self._route(topic)
        return {b.broker_name: b.primary for b in route.broker_datas if b.primary}

    async def _primaries(
        self, cluster: str | None = None, broker: str | None = None
    ) -> dict[str, str]:
        """Return primaries by name: all, those of a cluster, or one by its name or address."""
        if broker is not None and ":" in broker:
            return {broker: broker}
        info = await self._namesrv.cluster_info()
        chosen = _chosen_names(info, cluster, broker)
        primaries = {
            data.broker_name: data.primary
            for data in info.broker_addr_table.values()
            if data.primary and data.broker_name in chosen
        }
        if not primaries:
            where = broker or cluster or "the name server's list"
            raise ClientError(
                f"no primary broker in {where}. Start a broker that knows this name server"
                " (namesrvAddr), or look for its right name."
            )
        return primaries

    async def _broker_address(self, broker: str) -> str:
        """Return the address of a broker that is given by its address or by its name."""
        return next(iter((await self._primaries(broker=broker)).values()))


def _chosen_names(info: ClusterInfo, cluster: str | None, broker: str | None) -> set[str]:
    if broker is not None:
        return {broker}
    if cluster is not None:
        return set(info.cluster_addr_table.get(cluster, ()))
    return set(info.broker_addr_table)


def is_unsupported(failure: ResponseError) -> bool:
    """Return whether an older broker does not know the request at all."""
    return failure.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
