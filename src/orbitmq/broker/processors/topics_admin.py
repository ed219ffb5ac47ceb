"""Topics for tools: create, change, delete, list, and how far their queues reach."""

import logging
from collections.abc import Mapping
from typing import Final

from orbitmq.broker.processors.processor import Processor, answers
from orbitmq.broker.refusal import Refusal
from orbitmq.broker.sends.rules import COMPACTION, topic_name_problem
from orbitmq.broker.tables.topic_attributes import (
    CLEANUP_POLICY,
    MEMORY_TOPIC,
    MESSAGE_TYPE,
    MIXED,
    QUEUE_TYPE,
    AttributeChangeError,
    changed_attributes,
    parse_changes,
)
from orbitmq.message import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, QueueType
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies.lists import TopicList
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.stats import TopicOffset, TopicStats
from orbitmq.wire.bodies.topic_config import TopicConfig, TopicConfigList
from orbitmq.wire.bodies.topic_config import TopicTable as TopicTableBody
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers.admin import GetTopicConfigHeader, PutTopicHeader, TopicHeader

logger = logging.getLogger(__name__)

QUEUES_MAX: Final = 65536
"""So many queues of one topic are surely a slip; RocketMQ has no limit."""

_DONE: Final = "not set any response code"  # the remark with which RocketMQ says that all is well


class TopicsAdminProcessor(Processor):
    """Answers what tools ask about topics."""

    # Creating and changing

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC)
    def _put(self, connection: Connection, request: Command) -> None:
        header = PutTopicHeader.read(request.fields)
        self._require_name(header.topic)
        try:
            changes = parse_changes(header.attributes)
        except AttributeChangeError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from error
        wanted = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
        )
        self._change(connection, request, [self._checked(wanted, changes)])

    @answers(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST)
    def _put_many(self, connection: Connection, request: Command) -> None:
        body = TopicConfigList.decode(request.body)
        for config in body.topic_config_list:
            self._require_name(config.topic_name)
        # All are checked before the first is changed: all or none.
        configs = [self._checked(config, config.attributes) for config in body.topic_config_list]
        self._change(connection, request, configs)

    def _require_name(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is None and self._context.topics.is_system(topic):
            problem = f"The topic[{topic}] is conflict with system topic."
        if problem is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, problem)

    def _checked(self, wanted: TopicConfig, changes: Mapping[str, str]) -> TopicConfig:
        """Return the config to store: its numbers make sense and the attributes are changed."""
        for name, count in (
            ("readQueueNums", wanted.read_queue_nums),
            ("writeQueueNums", wanted.write_queue_nums),
        ):
            if not 0 <= count <= QUEUES_MAX:
                remark = f"{name} {count} is out of range; take a number from 1 to {QUEUES_MAX}."
                raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if not 0 <= wanted.perm <= 15:
            remark = f"perm {wanted.perm} is out of range; take 2 (write), 4 (read) or 6 (both)."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        if changes.get("+" + MESSAGE_TYPE) == MIXED:
            remark = "MIXED message type is not supported."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        current = self._context.topics.get(wanted.topic_name)
        if current is not None and any(change[1:] == MEMORY_TOPIC for change in changes):
            remark = (
                f"{MEMORY_TOPIC} of topic[{wanted.topic_name}] is decided when it is created: "
                "delete the topic first."
            )
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        try:
            known = None if current is None else current.attributes
            wanted.attributes = changed_attributes(known, changes)
        except AttributeChangeError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from error
        self._require_memory(wanted, changes)
        return wanted

    def _require_memory(self, wanted: TopicConfig, changes: Mapping[str, str]) -> None:
        """Refuse a new topic in memory that could not be one."""
        if changes.get("+" + MEMORY_TOPIC) != "true":
            return
        topic, attributes, remark = wanted.topic_name, wanted.attributes, None
        if not self._config.memory_topics:
            remark = (
                f"topic[{topic}] cannot be kept in memory: memoryTopicEnable=false. Set it to true "
                "in the broker's configuration and start it again."
            )
        elif topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            remark = (
                f"topic[{topic}] cannot be kept in memory: retries and dead letters lie on disk."
            )
        elif attributes.get(QUEUE_TYPE) == QueueType.BATCH.value:
            remark = (
                f"topic[{topic}]: a topic in memory has no batch queues; leave out {QUEUE_TYPE}."
            )
        elif attributes.get(CLEANUP_POLICY) == COMPACTION:
            remark = (
                f"topic[{topic}]: a topic in memory is not compacted; leave out {CLEANUP_POLICY}."
            )
        if remark is not None:
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)

    def _change(self, connection: Connection, request: Command, configs: list[TopicConfig]) -> None:
        """Store what is new, and answer when name servers know it: tools ask for the route next."""
        context, topics = self._context, self._context.topics
        before = {config.topic_name: topics.get(config.topic_name) for config in configs}
        topics.put_many([config for config in configs if before[config.topic_name] != config])
        equal = [config.topic_name for config in configs if before[config.topic_name] == config]
        if equal:  # who says it again may do so because a name server forgot it
            context.registration.tell_again(equal)
        changed = [c.topic_name for c in configs if _is_read_otherwise(before[c.topic_name], c)]
        answer = request.answer(remark=_DONE)

        def known() -> None:
            if not request.is_oneway:
                connection.send(answer)
            for topic in changed:
                context.consumers.tell_of_topic(topic)

        context.registration.when_known(known)

    # Asking

    @answers(RequestCode.GET_TOPIC_CONFIG)
    def _get(self, connection: Connection, request: Command) -> Command:
        topic = GetTopicConfigHeader.read(request.fields).topic
        config = self._context.topics.get(topic)
        if config is None:
            remark = f"No topic in this broker. topic: {topic}"
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, remark)
        return request.answer(body=config.encode())

    @answers(RequestCode.GET_ALL_TOPIC_CONFIG)
    def _all(self, connection: Connection, request: Command) -> Command:
        topics = self._context.topics
        body = TopicTableBody(data_version=topics.version, topic_config_table=dict(topics.all()))
        return request.answer(fields={}, body=body.encode())

    @answers(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    def _system(self, connection: Connection, request: Command) -> Command:
        names = self._context.topics.system_topics()
        return request.answer(body=TopicList(topic_list=names).encode())

    @answers(RequestCode.GET_TOPIC_STATS_INFO, of_queues=True)
    def _stats(self, connection: Connection, request: Command) -> Command:
        topic = TopicHeader.read(request.fields).topic
        context = self._context
        config = context.topics.get(topic)
        if config is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        name = context.config.name
        table = {
            MessageQueue(topic, name, queue_id): self._reach(topic, queue_id)
            for queue_id in range(max(config.read_queue_nums, config.write_queue_nums))
        }
        tps = context.statistics.put_tps(topic)
        return request.answer(body=TopicStats(offset_table=table, topic_put_tps=tps).encode())

    def _reach(self, topic: str, queue_id: int) -> TopicOffset:
        store = self._store
        end = store.max_offset(topic, queue_id)
        return TopicOffset(
            min_offset=max(store.min_offset(topic, queue_id), 0),
            max_offset=end,
            last_update_timestamp=store.store_time(topic, queue_id, end - 1) if end > 0 else 0,
        )

    # Deleting

    @answers(RequestCode.DELETE_TOPIC_IN_BROKER)
    def _delete(self, connection: Connection, request: Command) -> None:
        topic = TopicHeader.read(request.fields).topic
        topics = self._context.topics
        if not topic.strip():
            raise Refusal(ResponseCode.INVALID_PARAMETER, "The specified topic is blank.")
        if topics.is_system(topic):
            remark = f"The topic[{topic}] is conflict with system topic."
            raise Refusal(ResponseCode.INVALID_PARAMETER, remark)
        gone = [topic, *self._pop_retry_topics(topic)]
        for name in gone:
            self._forget(name)
        self.answer_later(connection, request, self._delete_queues(request, gone))

    def _pop_retry_topics(self, topic: str) -> list[str]:
        """Return the topics in which pop keeps retries of this one; deleted groups leave none."""
        context = self._context
        names = (
            f"{RETRY_PREFIX}{group}{sign}{topic}"
            for group in context.offsets.groups_of(topic)
            for sign in ("+", "_")
        )
        return [name for name in names if context.topics.get(name) is not None]

    def _forget(self, topic: str) -> None:
        context = self._context
        context.topics.delete(topic)
        context.offsets.remove_topic(topic)
        context.statistics.forget_topic(topic)
        context.long_poll.wake(topic)

    async def _delete_queues(self, request: Command, topics: list[str]) -> Command:
        for topic in topics:
            if self._context.stopping:
                remark = f"the broker stops; topic[{topic}] keeps its queues: delete it again"
                raise Refusal(ResponseCode.SERVICE_NOT_AVAILABLE, remark)
            await self._context.loop.run_in_executor(None, self._store.delete_topic, topic)
        return request.answer()

    @answers(RequestCode.CLEAN_UNUSED_TOPIC)
    def _clean_unused(self, connection: Connection, request: Command) -> None:
        topics, store = self._context.topics, self._store
        in_store = {topic for topic, queue in store.queues() if store.max_offset(topic, queue) > 0}
        unused = [
            topic
            for topic in sorted(in_store)
            if topics.get(topic) is None
            and not topics.is_system(topic)
            and not topic.startswith(LMQ_PREFIX)
        ]
        self.answer_later(connection, request, self._delete_queues(request, unused))


def _is_read_otherwise(before: TopicConfig | None, after: TopicConfig) -> bool:
    """Tell whether consumers have other queues now."""
    return _read_queues(before) != _read_queues(after)


def _read_queues(config: TopicConfig | None) -> int:
    return config.read_queue_nums if config is not None and config.is_readable else 0
