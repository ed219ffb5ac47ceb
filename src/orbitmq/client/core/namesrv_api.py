"""What clients ask name servers: one chosen server at a time, the next one when it does not answer."""

import random
from collections.abc import Sequence

from orbitmq.client.core.calls import Calls
from orbitmq.errors import ResponseError, UnreachableError, WireError
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.route import ClusterInfo, TopicRoute
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.kv import GetKv, GetKvAnswer, PutKv
from orbitmq.wire.headers.route import (
    AddWritePermAnswer,
    ChangeWritePerm,
    DeleteTopicInNamesrv,
    GetRoute,
    GetTopicsByCluster,
    WipeWritePermAnswer,
)


class NamesrvApi:
    """Typed calls of name servers. Belongs to its loop's thread."""

    def __init__(self, calls: Calls, addresses: Sequence[str] | None = None) -> None:
        self._calls = calls
        self.addresses = tuple(addresses or calls.config.namesrv)
        self._chosen = random.randrange(len(self.addresses))

    @property
    def chosen(self) -> str:
        """The server that is asked first."""
        return self.addresses[self._chosen]

    async def ask(
        self,
        code: int,
        fields: dict[str, str] | None = None,
        body: bytes = b"",
        *,
        also: frozenset[int] = frozenset(),
        timeout_ms: float = 0,
    ) -> Command:
        """Return the answer of the first server that gives one. ResponseError, UnreachableError."""
        failures: list[WireError] = []
        for _ in self.addresses:
            address = self.chosen
            try:
                return await self._calls.checked(
                    address, code, fields, body, timeout_ms=timeout_ms, also=also
                )
            except ResponseError:
                raise  # it answered: the others would say the same
            except WireError as failure:
                failures.append(failure)
                self._chosen = (self._chosen + 1) % len(self.addresses)
        raise self._unreachable(failures)

    async def tell_all(self, code: int, fields: dict[str, str]) -> list[Command]:
        """Send a change to every server: they do not talk to each other. Raises the first error."""
        return [await self._calls.checked(address, code, fields) for address in self.addresses]

    def _unreachable(self, failures: list[WireError]) -> UnreachableError:
        if len(failures) == 1:
            only = failures[0]
            step = "Start it with `orbitmq namesrv run`, or give the right address as namesrv."
            return UnreachableError(only.peer, f"name server: {only.what}", step)
        reasons = "; ".join(f"{failure.peer}: {failure.what}" for failure in failures)
        step = "Start one with `orbitmq namesrv run`, or give the right addresses as namesrv."
        return UnreachableError("", f"no name server answers ({reasons})", step)

    # --- topics and brokers ---

    async def route(self, topic: str, *, timeout_ms: float = 0) -> TopicRoute | None:
        """Return who serves a topic; None: this name server does not know it."""
        answer = await self.ask(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRoute(topic=topic).write(),
            also=frozenset({ResponseCode.TOPIC_NOT_EXIST}),
            timeout_ms=timeout_ms,
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST or not answer.body:
            return None
        return TopicRoute.decode(answer.body)

    async def cluster_info(self) -> ClusterInfo:
        answer = await self.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        return ClusterInfo.decode(answer.body)

    async def topics(self) -> list[str]:
        answer = await self.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return TopicList.decode(answer.body).topic_list

    async def topics_of_cluster(self, cluster: str) -> list[str]:
        header = GetTopicsByCluster(cluster=cluster)
        answer = await self.ask(RequestCode.GET_TOPICS_BY_CLUSTER, header.write())
        return TopicList.decode(answer.body).topic_list

    async def delete_topic(self, topic: str, cluster: str | None = None) -> None:
        header = DeleteTopicInNamesrv(topic=topic, cluster_name=cluster)
        await self.tell_all(RequestCode.DELETE_TOPIC_IN_NAMESRV, header.write())

    async def wipe_write_permission(self, broker_name: str) -> int:
        """Keep producers away from a broker; return in how many topics, on the server with the most."""
        fields = ChangeWritePerm(broker_name=broker_name).write()
        answers = await self.tell_all(RequestCode.WIPE_WRITE_PERM_OF_BROKER, fields)
        return max(WipeWritePermAnswer.read(answer.fields).wipe_topic_count for answer in answers)

    async def add_write_permission(self, broker_name: str) -> int:
        """Let producers use a broker again; return in how many topics, on the server with the most."""
        fields = ChangeWritePerm(broker_name=broker_name).write()
        answers = await self.tell_all(RequestCode.ADD_WRITE_PERM_OF_BROKER, fields)
        return max(AddWritePermAnswer.read(answer.fields).add_topic_count for answer in answers)

    # --- names and values ---

    async def put_kv(self, namespace: str, key: str, value: str) -> None:
        header = PutKv(namespace=namespace, key=key, value=value)
        await self.tell_all(RequestCode.PUT_KV_CONFIG, header.write())

    async def get_kv(self, namespace: str, key: str) -> str | None:
        answer = await self.ask(
            RequestCode.GET_KV_CONFIG,
            GetKv(namespace=namespace, key=key).write(),
            also=frozenset({ResponseCode.QUERY_NOT_FOUND}),
        )
        return None if answer.code else GetKvAnswer.read(answer.fields).value

    async def delete_kv(self, namespace: str, key: str) -> None:
        header = GetKv(namespace=namespace, key=key)
        await self.tell_all(RequestCode.DELETE_KV_CONFIG, header.write())
