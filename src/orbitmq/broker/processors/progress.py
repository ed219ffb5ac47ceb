"""Progress of consumer groups for tools: how far each is, how old what it waits for is, who reads what."""

import contextlib
import time
from collections.abc import Iterable
from typing import Final

from orbitmq.broker.delivery.filters import Filters
from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.errors import Sql92SyntaxError
from orbitmq.net.connection import Connection
from orbitmq.store.reads.tag_filter import MessageFilter
from orbitmq.units import SECOND_MS
from orbitmq.wire.bodies.connections import GroupSubscription
from orbitmq.wire.bodies.lists import GroupList, TopicList
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import (
    BrokerConsumeStats,
    ConsumeStats,
    ConsumeTimeSpans,
    CorrectionOffsets,
    QueueProgress,
    QueueTimeSpan,
    QueueUnit,
    QueueUnits,
)
from orbitmq.wire.bodies.topic_config import TopicConfig
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import (
    BrokerConsumeStatsHeader,
    CloneOffsetsHeader,
    ConsumeStatsHeader,
    CorrectionOffsetHeader,
    GroupHeader,
    GroupTopicHeader,
    QueryQueueHeader,
    TopicHeader,
)

UNITS_MAX: Final = 10_000
"""So many units of a consume queue are answered at most (321)."""

_OFFSET_MAX: Final = (1 << 63) - 1
_DONE: Final = "not set any response code"  # the remark with which RocketMQ says that all is well


class ProgressProcessor(Processor):
    """Answers what tools ask about consumers' progress."""

    # How far groups are

    @answers(RequestCode.GET_CONSUME_STATS, of_queues=True)
    def _consume_stats(self, connection: Connection, request: Command) -> Command | None:
        header = ConsumeStatsHeader.read(request.fields)
        group = header.consumer_group
        stats = ConsumeStats(offset_table={})
        for topic in self._asked_topics(header):
            config = self._context.topics.get(topic)
            if config is None:
                continue
            self._add(stats, group, config, config.read_queue_nums, pulled=True)
        if header.count_matching and self._config.estimate_lag:
            self.answer_later(connection, request, self._count_matching(request, group, stats))
            return None
        return request.answer(body=stats.encode())

    async def _count_matching(self, request: Command, group: str, stats: ConsumeStats) -> Command:
        """Answer with what is left of the lag behind the group's filters. Reads much: not in the loop."""
        wanted = self._filters_of(group, {queue.topic for queue in stats.offset_table})
        limits = self._config.lag_scan_max, self._config.lag_matches_max

        def count() -> None:
            for queue, progress in stats.offset_table.items():
                if queue.topic in wanted:
                    progress.matching, progress.matching_is_estimate = self._store.count_matching(
                        queue.topic,
                        queue.queue_id,
                        progress.consumer_offset,
                        progress.broker_offset,
                        wanted[queue.topic],
                        scan_max=limits[0],
                        matches_max=limits[1],
                    )

        await self._context.loop.run_in_executor(None, count)
        return request.answer(body=stats.encode())

    def _filters_of(self, group: str, topics: Iterable[str]) -> dict[str, MessageFilter | None]:
        """Return the filters of a group by topic, None where it wants all; of one offline nobody knows."""
        online, filters = self._context.consumers.group(group), Filters(self._config)
        found: dict[str, MessageFilter | None] = {}
        for topic in topics:
            one = online.subscription(topic) if online is not None else None
            if one is None:
                continue
            with contextlib.suppress(Refusal, Sql92SyntaxError):
                found[topic] = filters.compile(one.expression_type, one.sub_string)
        return found

    def _asked_topics(self, header: ConsumeStatsHeader) -> Iterable[str]:
        if header.topic_list:
            return [topic for topic in header.topic_list.split(";") if topic]
        topic = (header.topic or "").strip()
        topics = (
            [topic] if topic else sorted(self._context.offsets.topics_of(header.consumer_group))
        )
        return [topic for topic in topics if self._reads(header.consumer_group, topic)]

    def _reads(self, group: str, topic: str) -> bool:
        """Tell whether a group subscribes to a topic; of one that is not online nobody knows better."""
        online = self._context.consumers.group(group)
        if online is None or not online.subscriptions:
            return True
        return online.subscription(topic) is not None

    def _add(
        self, stats: ConsumeStats, group: str, config: TopicConfig, queues: int, *, pulled: bool
    ) -> None:
        topic, name = config.topic_name, self._config.name
        for queue_id in range(queues):
            progress = self._progress(group, topic, queue_id, pulled=pulled)
            stats.offset_table[MessageQueue(topic, name, queue_id)] = progress
        stats.consume_tps += self._context.statistics.get_tps(topic, group)

    def _progress(self, group: str, topic: str, queue_id: int, *, pulled: bool) -> QueueProgress:
        store, offsets = self._store, self._context.offsets
        consumed = max(offsets.get(group, topic, queue_id), 0)
        pull = max(consumed, offsets.pull_offset(group, topic, queue_id)) if pulled else 0
        time_ms = store.store_time(topic, queue_id, consumed - 1) if consumed > 0 else 0
        return QueueProgress(
            broker_offset=store.max_offset(topic, queue_id),
            consumer_offset=consumed,
            pull_offset=pull,
            last_timestamp=max(time_ms, 0),
        )

    @answers(RequestCode.GET_BROKER_CONSUME_STATS, of_queues=True)
    def _broker_stats(self, connection: Connection, request: Command) -> Command:
        ordered_only = BrokerConsumeStatsHeader.read(request.fields).is_order
        body = BrokerConsumeStats(broker_addr=self._context.address, consume_stats_list=[])
        for group in self._context.groups.all():
            found = self._group_stats(group, ordered_only=ordered_only)
            body.consume_stats_list.append({group: found})
            body.total_diff += sum(stats.lag for stats in found)
            body.total_inflight_diff += sum(stats.in_flight for stats in found)
        return request.answer(body=body.encode())

    def _group_stats(self, group: str, *, ordered_only: bool) -> list[ConsumeStats]:
        found = []
        for topic in sorted(self._context.offsets.topics_of(group)):
            config = self._context.topics.get(topic)
            if config is None or (ordered_only and not config.order):
                continue
            if self._reads(group, topic):
                stats = ConsumeStats(offset_table={})
                self._add(stats, group, config, config.write_queue_nums, pulled=False)
                found.append(stats)
        return found

    @answers(RequestCode.QUERY_CONSUME_TIME_SPAN, of_queues=True)
    def _time_spans(self, connection: Connection, request: Command) -> Command:
        header = GroupTopicHeader.read(request.fields)
        config = self._context.topics.get(header.topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist")
        spans = [
            self._time_span(header.group, header.topic, queue_id)
            for queue_id in range(config.write_queue_nums)
        ]
        return request.answer(body=ConsumeTimeSpans(consume_time_span_set=spans).encode())

    def _time_span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        context, store = self._context, self._store
        start, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        first = store.store_time(topic, queue_id, start)
        last = store.store_time(topic, queue_id, end - 1)
        offset = context.offsets.get(group, topic, queue_id)
        consumed = store.store_time(topic, queue_id, offset - 1) if offset > 0 else first
        delay = 0
        if offset < end:
            delay = context.clock.now_ms() - store.store_time(topic, queue_id, max(offset, start))
        return QueueTimeSpan(
            message_queue=MessageQueue(topic, context.config.name, queue_id),
            min_time_stamp=first,
            max_time_stamp=last,
            consume_time_stamp=consumed,
            delay_time=delay,
            min_time_stamp_str=_time_text(first),
            max_time_stamp_str=_time_text(last),
            consume_time_stamp_str=_time_text(consumed),
        )

    # Who reads what

    @answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO)
    def _groups_of(self, connection: Connection, request: Command) -> Command:
        topic = TopicHeader.read(request.fields).topic
        context = self._context
        groups = {*context.consumers.groups_subscribing(topic), *context.offsets.groups_of(topic)}
        return request.answer(body=GroupList(group_list=sorted(groups)).encode())

    @answers(RequestCode.QUERY_TOPICS_BY_CONSUMER)
    def _topics_of(self, connection: Connection, request: Command) -> Command:
        group = GroupHeader.read(request.fields).group
        topics = sorted(self._context.offsets.topics_of(group))
        body = TopicList(topic_list=topics, broker_addr=self._context.address)
        return request.answer(body=body.encode())

    @answers(RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER)
    def _subscription(self, connection: Connection, request: Command) -> Command:
        header = GroupTopicHeader.read(request.fields)
        online = self._context.consumers.group(header.group)
        found = online.subscription(header.topic) if online else None
        body = GroupSubscription(group=header.group, topic=header.topic, subscription_data=found)
        return request.answer(body=body.encode())

    # Offsets of several groups

    @answers(RequestCode.QUERY_CORRECTION_OFFSET)
    def _correction(self, connection: Connection, request: Command) -> Command:
        """Answer the smallest offset of all groups; the largest number where a group is behind another."""
        header = CorrectionOffsetHeader.read(request.fields)
        left_out = set((header.filter_groups or "").split(","))
        smallest: dict[int, int] = {}
        for group in self._context.offsets.groups_of(header.topic):
            if group in left_out:
                continue
            for queue_id, offset in self._context.offsets.queues(group, header.topic).items():
                if offset >= self._store.min_offset(header.topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        compared = self._context.offsets.queues(header.compare_group or "", header.topic)
        for queue_id, offset in compared.items():
            if smallest.get(queue_id, _OFFSET_MAX) > offset:
                smallest[queue_id] = _OFFSET_MAX
        table = dict(sorted(smallest.items()))
        return request.answer(body=CorrectionOffsets(correction_offsets=table).encode())

    @answers(RequestCode.CLONE_GROUP_OFFSET)
    def _clone(self, connection: Connection, request: Command) -> Command:
        header = CloneOffsetsHeader.read(request.fields)
        offsets = self._context.offsets
        topic = (header.topic or "").strip()
        for name in [topic] if topic else list(offsets.topics_of(header.src_group)):
            if self._context.topics.get(name) is None:
                continue
            if not header.offline and not self._reads(header.src_group, name):
                continue
            offsets.clone(header.src_group, header.dest_group, name)
        return request.answer()

    # Units of a consume queue

    @answers(RequestCode.QUERY_CONSUME_QUEUE, of_queues=True)
    def _units(self, connection: Connection, request: Command) -> Command:
        header = QueryQueueHeader.read(request.fields)
        topic, queue_id, store = header.topic, header.queue_id, self._store
        if store.queue_number(topic, queue_id) < 0:
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"{queue_id}@{topic} is not exist!")
        body = QueueUnits(
            max_queue_index=store.max_offset(topic, queue_id),
            min_queue_index=store.min_offset(topic, queue_id),
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, topic)
        if not body.min_queue_index <= header.index < body.max_queue_index:
            remark = f"Index {header.index} of {queue_id}@{topic} is not exist!"
            return request.answer(remark=remark)
        units = store.units(topic, queue_id, header.index, min(header.count, UNITS_MAX))
        body.queue_data = [
            QueueUnit(physic_offset=unit.log_offset, physic_size=unit.size, tags_code=unit.tag_hash)
            for unit in units
        ]
        return request.answer(remark=_DONE, body=body.encode())

    def _add_subscription(self, body: QueueUnits, group: str, topic: str) -> None:
        online = self._context.consumers.group(group)
        body.subscription_data = online.subscription(topic) if online else None
        if body.subscription_data is None:
            body.filter_data = f"{group}@{topic} is not online!"
        else:
            body.filter_data = "null"  # no expression but a tag's was compiled


def _time_text(time_ms: int) -> str:
    """Return a time as RocketMQ's tools print it, in local time: 2026-11-15#19:08:05:891."""
    second, millisecond = divmod(time_ms, SECOND_MS)
    text = time.strftime("%Y-%m-%d#%H:%M:%S", time.localtime(second))
    return f"{text}:{millisecond:03}"
