"""The admin client's part for topics."""

import asyncio
from collections.abc import Mapping
from typing import Final

from orbitmq.client.admin.base import AdminBase, is_system_topic, is_unsupported
from orbitmq.client.admin.results import QueueStats, TopicInfo, TopicShare
from orbitmq.client.core.name_rules import require_topic
from orbitmq.errors import ResponseError
from orbitmq.message import Boundary
from orbitmq.wire.bodies.lists import GroupList
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import TopicStats
from orbitmq.wire.bodies.topic_config import PERM_READ, PERM_WRITE, TopicConfig, TopicTable
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.admin import GetTopicConfigHeader, PutTopicHeader, TopicHeader
from orbitmq.wire.headers.kv import ORDER_TOPICS

DEFAULT_QUEUES: Final = 8
_LOOK_S: Final = 0.05
_KNOWN_WITHIN_S: Final = 3.0


class TopicAdmin(AdminBase):
    """Topics: what there is, what is in them, create, change, delete."""

    async def topics(self, *, system: bool = False, cluster: str | None = None) -> list[str]:
        """Return the names of topics; with `system` also those that brokers made for themselves."""
        if cluster is None:
            names = await self._namesrv.topics()
        else:
            names = await self._namesrv.topics_of_cluster(cluster)
        if not system:
            info = await self._namesrv.cluster_info()
            names = [name for name in names if not is_system_topic(name, info)]
        return sorted(set(names))

    async def topic(self, topic: str) -> TopicInfo:
        """Return who has a topic and how many queues. NoRouteError: nobody."""
        route = await self._route(topic)
        addresses = {broker.broker_name: broker.primary or "" for broker in route.broker_datas}
        shares = [
            TopicShare(
                data.broker_name,
                addresses.get(data.broker_name, ""),
                data.read_queue_nums,
                data.write_queue_nums,
                data.perm,
            )
            for data in sorted(route.queue_datas, key=lambda data: data.broker_name)
        ]
        config = await self._some_config(topic, shares)
        ordered = bool(route.order_topic_conf) or (config is not None and config.order)
        return TopicInfo(topic, shares, ordered, {} if config is None else config.attributes)

    async def _some_config(self, topic: str, shares: list[TopicShare]) -> TopicConfig | None:
        for share in shares:
            if share.address:
                return await self.topic_config(topic, share.address)
        return None

    async def topic_config(self, topic: str, broker: str) -> TopicConfig | None:
        """Return what one broker knows of a topic; None: nothing."""
        address = await self._broker_address(broker)
        header = GetTopicConfigHeader(topic=topic, logical=True)
        try:
            answer = await self._ask(address, RequestCode.GET_TOPIC_CONFIG, header)
        except ResponseError as failure:
            if failure.code == ResponseCode.TOPIC_NOT_EXIST:
                return None
            if is_unsupported(failure):  # an older broker tells all topics or none
                answer = await self._ask(address, RequestCode.GET_ALL_TOPIC_CONFIG)
                return TopicTable.decode(answer.body).topic_config_table.get(topic)
            raise
        return TopicConfig.decode(answer.body)

    async def topic_stats(self, topic: str) -> list[QueueStats]:
        """Return how far each queue of a topic reaches, sorted by broker and queue."""
        primaries, header = await self._topic_primaries(topic), TopicHeader(topic=topic)
        code = RequestCode.GET_TOPIC_STATS_INFO
        answers = await self._ask_each(primaries, code, header, TopicStats.decode)
        found = [
            QueueStats(queue, one.min_offset, one.max_offset, one.last_update_timestamp)
            for stats in answers.values()
            for queue, one in stats.offset_table.items()
        ]
        return sorted(found, key=lambda stats: stats.queue)

    async def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that consume a topic, or did so once."""
        primaries, header = await self._topic_primaries(topic), TopicHeader(topic=topic)
        code = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
        answers = await self._ask_each(primaries, code, header, GroupList.decode)
        # A Java broker lists the topic's own name among the groups; nobody is called that.
        return sorted({g for answer in answers.values() for g in answer.group_list} - {topic})

    async def offsets_at(self, topic: str, epoch_ms: int) -> dict[MessageQueue, int]:
        """Return of each queue the offset of the first message stored at this time or later."""
        queues = await self._readable_queues(topic)
        offsets = await asyncio.gather(
            *(
                self._brokers.search_offset(address, queue, epoch_ms, Boundary.LOWER)
                for queue, address in queues.items()
            )
        )
        return dict(zip(queues, offsets, strict=True))

    async def _readable_queues(self, topic: str) -> dict[MessageQueue, str]:
        """Return the address of each queue that may be read."""
        route = await self._route(topic)
        self._routes.put(topic, route)
        queues = await self._routes.subscribe_queues(topic)
        addresses = {queue: self._routes.address(queue.broker_name) for queue in queues}
        return {queue: address for queue, address in addresses.items() if address is not None}

    # --- changes ---

    async def create_topic(
        self,
        topic: str,
        *,
        queues: int = DEFAULT_QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        perm: int = PERM_READ | PERM_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> TopicInfo:
        """Create a topic, or change it, on all brokers of a cluster or on one; return what is there now.

        To have fewer queues without losing messages: fewer `write_queues` first, and fewer
        `read_queues` when the rest is consumed.
        """
        require_topic(topic)
        changes = ",".join(f"+{name}={value}" for name, value in (attributes or {}).items())
        header = PutTopicHeader(
            topic=topic,
            default_topic=self._config.creation_topic,
            read_queue_nums=queues if read_queues is None else read_queues,
            write_queue_nums=queues if write_queues is None else write_queues,
            perm=perm,
            topic_sys_flag=0,
            order=ordered,
            attributes=changes,
        )
        primaries = await self._primaries(cluster, broker)
        for address in primaries.values():
            await self._ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        if ordered:
            conf = ";".join(f"{name}:{header.write_queue_nums}" for name in sorted(primaries))
            await self._namesrv.put_kv(ORDER_TOPICS, topic, conf)
        await self._wait_until_known(topic, set(primaries) if broker is None else set())
        return await self.topic(topic)

    async def _wait_until_known(self, topic: str, broker_names: set[str]) -> None:
        """Wait until the name server tells of the topic; brokers register it a moment later."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _KNOWN_WITHIN_S
        while loop.time() < deadline:
            route = await self._namesrv.route(topic)
            known = set() if route is None else {data.broker_name for data in route.queue_datas}
            if known and known >= broker_names:
                return
            await asyncio.sleep(_LOOK_S)

    async def delete_topic(self, topic: str, *, cluster: str | None = None) -> None:
        """Delete a topic with all its messages on all brokers, and make name servers forget it."""
        for address in (await self._primaries(cluster)).values():
            header = TopicHeader(topic=topic)
            await self._ask(address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
        await self._namesrv.delete_topic(topic, cluster)
        self._routes.forget(topic)
