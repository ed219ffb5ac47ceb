"""What all parts of the admin client share: which brokers a request goes to."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from orbitmq.client.core.broker_api import BrokerApi
from orbitmq.client.core.config import ClientConfig, config_of
from orbitmq.client.core.life import AsyncClient
from orbitmq.client.core.namesrv_api import NamesrvApi
from orbitmq.client.core.route_cache import RouteCache
from orbitmq.errors import ClientError, ResponseError
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX, SYSTEM_TOPICS
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.route import ClusterInfo, TopicRoute
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.header import Header

T = TypeVar("T")

ADMIN_GROUP: Final = "TOOLS_CONSUMER"
"""The group under which tools read messages; it is there on every broker."""

_SYSTEM_GROUPS: Final = frozenset(
    {"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "__MONITOR_CONSUMER"}
)


def is_system_topic(topic: str, cluster: ClusterInfo | None = None) -> bool:
    """Return whether brokers made the topic for themselves; retry and dead-letter topics count as such."""
    if topic in SYSTEM_TOPICS or topic.startswith((RETRY_PREFIX, DLQ_PREFIX, "rmq_sys_")):
        return True
    if cluster is None:
        return False
    names = {*cluster.cluster_addr_table, *cluster.broker_addr_table}
    return topic in names or topic.removesuffix("_REPLY_TOPIC") in cluster.cluster_addr_table


def is_system_group(group: str) -> bool:
    """Return whether brokers made the group for themselves."""
    return group in _SYSTEM_GROUPS or group.startswith(("CID_ONS", "CID_RMQ_SYS_"))


class AdminBase(AsyncClient):
    """An admin client's questions to many brokers. Belongs to its loop."""

    noun = "admin client"

    def __init__(
        self,
        namesrv: str | Sequence[str] | None = None,
        *,
        config: ClientConfig | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(config_of(namesrv, config, settings))

    @property
    def _namesrv(self) -> NamesrvApi:
        return self.require_open().namesrv

    @property
    def _brokers(self) -> BrokerApi:
        return self.require_open().brokers

    @property
    def _routes(self) -> RouteCache:
        return self.require_open().routes

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
        return await self.require_open().calls.checked(
            address,
            code,
            {} if header is None else header.write(),
            body,
            timeout_ms=self._config.admin_timeout_ms,
            also=also,
        )

    async def _ask_each(
        self,
        primaries: dict[str, str],
        code: int,
        header: Header | None,
        decode: Callable[[bytes], T],
        *,
        but: frozenset[int] = frozenset(),
    ) -> dict[str, T]:
        """Return what each broker answers by name, without those that answer with a code of `but`.

        The first error is raised.
        """
        asked = (self._ask(address, code, header, also=but) for address in primaries.values())
        answers = zip(primaries, await asyncio.gather(*asked), strict=True)
        return {name: decode(answer.body) for name, answer in answers if answer.code not in but}

    # --- where ---

    async def _route(self, topic: str) -> TopicRoute:
        route = await self._namesrv.route(topic)
        if route is None:
            raise self._routes.no_route(topic)
        return route

    async def _topic_primaries(self, topic: str) -> dict[str, str]:
        """Return the primaries that have a topic, by broker name."""
        return primaries_of(await self._route(topic))

    async def _queue_address(self, queue: MessageQueue) -> str:
        """Return the primary that has a queue."""
        address = (await self._topic_primaries(queue.topic)).get(queue.broker_name)
        if address is None:
            raise ClientError(f"broker {queue.broker_name} does not serve topic {queue.topic}")
        return address

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


def primaries_of(route: TopicRoute) -> dict[str, str]:
    """Return the primaries of a route, by broker name."""
    return {b.broker_name: b.primary for b in route.broker_datas if b.primary}


def _chosen_names(info: ClusterInfo, cluster: str | None, broker: str | None) -> set[str]:
    if broker is not None:
        return {broker}
    if cluster is not None:
        return set(info.cluster_addr_table.get(cluster, ()))
    return set(info.broker_addr_table)


def is_unsupported(failure: ResponseError) -> bool:
    """Return whether an older broker does not know the request at all."""
    return failure.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
