"""The admin client's part for groups: progress, members, offsets."""

from orbitmq.client.admin.base import (
    AdminBase,
    is_system_group,
    is_unsupported,
    primaries_of,
)
from orbitmq.client.admin.results import (
    ClientInfo,
    ConsumerGroupState,
    GroupInfo,
    GroupProgress,
    QueueLag,
    QueueTimes,
    SubscriptionInfo,
)
from orbitmq.client.core.name_rules import require_group
from orbitmq.errors import ResponseError
from orbitmq.message import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.bodies.connections import (
    ClientConnection,
    ConsumerConnections,
    ProducerConnections,
)
from orbitmq.wire.bodies.group_config import GroupConfig, GroupTable
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.running_info import ConsumerRunningInfo
from orbitmq.wire.bodies.stats import ConsumeStats, ConsumeTimeSpans
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.headers.admin import (
    CloneOffsetsHeader,
    ConsumeStatsHeader,
    DeleteGroupHeader,
    GroupHeader,
    GroupTopicHeader,
    ProducerGroupHeader,
    RunningInfoHeader,
    TopicHeader,
)
from orbitmq.wire.headers.clients import ConsumerGroupHeader


class GroupAdmin(AdminBase):
    """Groups: what there is, how far they are, who is online, create, delete."""

    async def groups(
        self, *, system: bool = False, cluster: str | None = None, broker: str | None = None
    ) -> list[GroupInfo]:
        """Return the consumer groups; with `system` also those that brokers made for themselves."""
        found: dict[str, GroupInfo] = {}
        primaries = await self._primaries(cluster, broker)
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await self._ask_each(primaries, code, None, GroupTable.decode)
        for broker_name, table in answers.items():
            for group, config in table.subscription_group_table.items():
                if system or not is_system_group(group):
                    found.setdefault(group, _group_info(group, config)).brokers.append(broker_name)
        return [found[group] for group in sorted(found)]

    async def group(self, group: str) -> GroupInfo | None:
        """Return one group; None: no broker has it."""
        matching = [info for info in await self.groups(system=True) if info.group == group]
        return matching[0] if matching else None

    async def create_group(
        self,
        group: str,
        *,
        enabled: bool = True,
        broadcast_enabled: bool = True,
        retries_max: int = 16,
        retry_queues: int = 1,
        orderly: bool = False,
        notices: bool = True,
        cluster: str | None = None,
        broker: str | None = None,
    ) -> GroupInfo:
        """Create a group, or change it, on all brokers of a cluster or on one.

        Without `notices` members are not told that others come and go: they find out at their interval.
        """
        require_group(group)
        config = GroupConfig(
            group_name=group,
            consume_enable=enabled,
            consume_broadcast_enable=broadcast_enabled,
            retry_max_times=retries_max,
            retry_queue_nums=retry_queues,
            consume_message_orderly=orderly,
            notify_consumer_ids_changed_enable=notices,
        )
        primaries = await self._primaries(cluster, broker)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        for address in primaries.values():
            await self._ask(address, code, body=config.encode())
        info = _group_info(group, config)
        info.brokers = sorted(primaries)
        return info

    async def delete_group(
        self, group: str, *, dead_letters: bool = False, cluster: str | None = None
    ) -> None:
        """Delete a group with its offsets and retries; with `dead_letters` also what it gave up on."""
        primaries = await self._primaries(cluster)
        header = DeleteGroupHeader(group_name=group, clean_offset=True)
        topics = [RETRY_PREFIX + group, *([DLQ_PREFIX + group] if dead_letters else [])]
        for address in primaries.values():
            await self._ask(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            for topic in topics:
                code = RequestCode.DELETE_TOPIC_IN_BROKER
                await self._ask(address, code, TopicHeader(topic=topic))
        for topic in topics:
            await self._namesrv.delete_topic(topic, cluster)

    # --- progress ---

    async def progress(
        self,
        group: str,
        topic: str | None = None,
        *,
        members: bool = False,
        matching: bool = False,
    ) -> GroupProgress:
        """Return how far a group is in each queue; with `members` also who consumes it.

        With `matching` an OrbitMQ broker also counts what the filters of a group that is online let through.
        """
        primaries = await self._group_primaries(group)
        header = ConsumeStatsHeader(
            consumer_group=group, topic=topic, count_matching=matching or None
        )
        code = RequestCode.GET_CONSUME_STATS
        answers = await self._ask_each(primaries, code, header, ConsumeStats.decode)
        owners = await self._owners(group) if members else {}
        queues = [
            QueueLag(
                queue,
                one.broker_offset,
                one.consumer_offset,
                one.pull_offset,
                one.last_timestamp,
                owners.get((queue.topic, queue.broker_name, queue.queue_id), ""),
                one.matching,
                bool(one.matching_is_estimate),
            )
            for stats in answers.values()
            for queue, one in stats.offset_table.items()
        ]
        tps = sum(stats.consume_tps for stats in answers.values())
        return GroupProgress(group, sorted(queues, key=lambda lag: lag.queue), tps)

    async def _group_primaries(self, group: str) -> dict[str, str]:
        """Return the primaries that know a group: those of its retry topic, else all."""
        route = await self._namesrv.route(RETRY_PREFIX + group)
        if route is None:
            return await self._primaries()
        return primaries_of(route)

    async def _owners(self, group: str) -> dict[tuple[str, str, int], str]:
        state = await self.consumers(group)
        owners = {}
        for client in state.clients:
            info = await self.running_info(group, client.client_id)
            for queue in info.mq_table:
                owners[queue.topic, queue.broker_name, queue.queue_id] = client.client_id
        return owners

    async def topics_of_group(self, group: str) -> list[str]:
        """Return the topics in which a group has offsets."""
        primaries, header = await self._group_primaries(group), GroupHeader(group=group)
        code = RequestCode.QUERY_TOPICS_BY_CONSUMER
        try:
            answers = await self._ask_each(primaries, code, header, TopicList.decode)
        except ResponseError as failure:
            if is_unsupported(failure):  # an older broker tells it with the progress only
                return (await self.progress(group)).topics
            raise
        return sorted({topic for answer in answers.values() for topic in answer.topic_list})

    async def time_spans(self, group: str, topic: str) -> list[QueueTimes]:
        """Return when messages of each queue were stored, and how late the group is."""
        primaries, code = await self._topic_primaries(topic), RequestCode.QUERY_CONSUME_TIME_SPAN
        header = GroupTopicHeader(group=group, topic=topic)
        answers = await self._ask_each(primaries, code, header, ConsumeTimeSpans.decode)
        spans = [
            QueueTimes(
                one.message_queue,
                one.min_time_stamp,
                one.max_time_stamp,
                one.consume_time_stamp,
                one.delay_time,
            )
            for answer in answers.values()
            for one in answer.consume_time_span_set
        ]
        return sorted(spans, key=lambda span: span.queue)

    # --- who is online ---

    async def consumers(self, group: str) -> ConsumerGroupState:
        """Return who consumes in a group; a group without members is no error."""
        primaries = await self._group_primaries(group)
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        header = ConsumerGroupHeader(consumer_group=group)
        offline = frozenset({ResponseCode.CONSUMER_NOT_ONLINE.value})
        found = await self._ask_each(
            primaries, code, header, ConsumerConnections.decode, but=offline
        )
        state = ConsumerGroupState(group, [], [])
        state.clients = _merge_clients({n: answer.connection_set for n, answer in found.items()})
        for answer in found.values():
            state.consume_type = answer.consume_type or ""
            state.message_model = answer.message_model or ""
            state.consume_from_where = answer.consume_from_where or ""
            state.subscriptions = _subscriptions(answer)
        return state

    async def producers(self, group: str, topic: str) -> list[ClientInfo]:
        """Return who produces in a group, as the brokers of a topic know."""
        primaries = await self._topic_primaries(topic)
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        header = ProducerGroupHeader(producer_group=group)
        nobody = frozenset({ResponseCode.SYSTEM_ERROR.value})
        found = await self._ask_each(
            primaries, code, header, ProducerConnections.decode, but=nobody
        )
        return _merge_clients({name: answer.connection_set for name, answer in found.items()})

    async def running_info(self, group: str, client_id: str) -> ConsumerRunningInfo:
        """Return what a consumer tells of itself; the broker asks it for us."""
        header = RunningInfoHeader(consumer_group=group, client_id=client_id)
        failure: ResponseError | None = None
        for address in (await self._group_primaries(group)).values():
            try:
                answer = await self._ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, header)
                return ConsumerRunningInfo.decode(answer.body)
            except ResponseError as refused:  # it may be connected to another broker only
                failure = refused
        assert failure is not None
        raise failure

    async def clone_offsets(self, source: str, target: str, topic: str) -> None:
        """Let one group continue where another one is."""
        for address in (await self._group_primaries(source)).values():
            header = CloneOffsetsHeader(
                src_group=source, dest_group=target, topic=topic, offline=True
            )
            await self._ask(address, RequestCode.CLONE_GROUP_OFFSET, header)


def _group_info(group: str, config: GroupConfig) -> GroupInfo:
    return GroupInfo(
        group,
        [],
        config.consume_enable,
        config.consume_broadcast_enable,
        config.retry_max_times,
        config.retry_queue_nums,
        config.consume_message_orderly,
        dict(config.attributes),
        config.notify_consumer_ids_changed_enable,
    )


def _merge_clients(by_broker: dict[str, list[ClientConnection]]) -> list[ClientInfo]:
    clients: dict[str, ClientInfo] = {}
    for broker_name, connections in by_broker.items():
        for one in connections:
            client = clients.setdefault(
                one.client_id,
                ClientInfo(one.client_id, one.client_addr, one.language, one.version),
            )
            client.brokers.append(broker_name)
    return [clients[client_id] for client_id in sorted(clients)]


def _subscriptions(answer: ConsumerConnections) -> list[SubscriptionInfo]:
    found = []
    for topic, subscription in sorted(answer.subscription_table.items()):
        given = subscription if isinstance(subscription, dict) else {}
        expression = str(given.get("subString", "*"))
        found.append(SubscriptionInfo(topic, expression, str(given.get("expressionType", "TAG"))))
    return found
