"""TopicTable: the topics of a broker, their creation and what may be done with their names.

Saved as config/topics.json.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.tables.config_table import ConfigTable
from orbitmq.broker.tables.topic_attributes import MEMORY_TOPIC
from orbitmq.clock import Clock
from orbitmq.message import (
    BENCHMARK_TOPIC,
    CHECK_MAX_TOPIC,
    DLQ_PREFIX,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_TOPICS,
    TEMPLATE_TOPIC,
    TIMER_TOPIC,
    QueueType,
)
from orbitmq.store.store import MessageStore
from orbitmq.wire.bodies.topic_config import (
    PERM_INHERIT,
    PERM_READ,
    PERM_WRITE,
    UNIT_FLAG,
    UNIT_SUBSCRIBED_FLAG,
    TopicConfig,
)
from orbitmq.wire.bodies.topic_config import TopicTable as TopicTableBody

logger = logging.getLogger(__name__)

SYSTEM_PREFIX: Final = "rmq_sys_"
REPLY_SUFFIX: Final = "_REPLY_TOPIC"

SCHEDULE_QUEUES: Final = 18
QUEUE_TYPE: Final = "queue.type"


class TopicTable(ConfigTable[TopicConfig]):
    """All topics by name. The event loop's thread changes it; any thread may ask for one topic."""

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        super().__init__(config, clock, _start_topics(config))
        self._system = set(self._table)

    def name_of(self, config: TopicConfig) -> str:
        return config.topic_name

    # Asking

    def is_system(self, topic: str) -> bool:
        """Tell whether the topic is the broker's own business, present or not."""
        return topic in SYSTEM_TOPICS or topic in self._system or topic.startswith(SYSTEM_PREFIX)

    def system_topics(self) -> list[str]:
        """Return every name that is known to be the system's."""
        return sorted(SYSTEM_TOPICS | self._system)

    def is_order(self, topic: str) -> bool:
        config = self._table.get(topic)
        return config is not None and config.order

    def queue_type(self, topic: str) -> QueueType:
        """Tell the store how a topic's queues are kept."""
        config = self._table.get(topic)
        if config is None or not config.attributes:
            return QueueType.SIMPLE
        is_batch = config.attributes.get(QUEUE_TYPE) == QueueType.BATCH.value
        return QueueType.BATCH if is_batch else QueueType.SIMPLE

    def is_memory(self, topic: str) -> bool:
        """Tell whether a topic's messages are kept in memory only."""
        config = self._table.get(topic)
        return config is not None and config.attributes.get(MEMORY_TOPIC) == "true"

    def memory_problem(self, topic: str) -> str | None:
        """Return why a topic in memory cannot be used, None if it is none or can be."""
        if self._config.memory_topics or not self.is_memory(topic):
            return None
        return (
            f"topic[{topic}] is kept in memory, and memoryTopicEnable=false: set it in the broker's "
            "configuration and start it again, or delete the topic"
        )

    def empty_min_offset(self, topic: str) -> int:
        """Return what RocketMQ calls the first offset of a queue that never held a message."""
        return -1 if self.queue_type(topic) is QueueType.BATCH else 0

    # Changing

    def renew_version(self) -> None:
        """Count a new version although nothing changed: name servers take news by their version."""
        self.version = self.version.next(self._clock.now_ms())

    def create_for_send(
        self,
        topic: str,
        default_topic: str,
        default_queues: int,
        unit_mode: bool = False,
    ) -> TopicConfig | None:
        """Return the topic of a send, made after its template if it is new; None: that may not be."""
        known = self._table.get(topic)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        if default_topic == TEMPLATE_TOPIC and not self._config.auto_create_topic:
            return None
        queues = max(min(default_queues, template.write_queue_nums), 0)
        created = TopicConfig(
            topic_name=topic,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=template.perm & ~PERM_INHERIT,
            topic_filter_type=template.topic_filter_type,
            topic_sys_flag=UNIT_FLAG if unit_mode else 0,
        )
        logger.info("topic %s: created after %s with %d queues", topic, default_topic, queues)
        self.put(created)
        return created

    def create_retry(
        self, group: str, queues: int = 1, *, order: bool = False, unit_mode: bool = False
    ) -> TopicConfig:
        """Return the topic of a group's retries, made if it is new; the order flag is kept right."""
        flag = UNIT_SUBSCRIBED_FLAG if unit_mode else 0
        return self._create(RETRY_PREFIX + group, queues, order=order, sys_flag=flag)

    def create_dlq(self, group: str) -> TopicConfig:
        """Return the topic of a group's dead letters, made if it is new."""
        return self._create(DLQ_PREFIX + group, 1)

    def create_check_max(self) -> TopicConfig:
        """Return the topic of transactions that were given up, made if it is new."""
        return self._create(CHECK_MAX_TOPIC, 1)

    def _create(
        self, topic: str, queues: int, *, order: bool = False, sys_flag: int = 0
    ) -> TopicConfig:
        known = self._table.get(topic)
        if known is not None and known.order == order:
            return known
        if known is not None:
            config = msgspec.structs.replace(known, order=order)
        else:
            config = TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                topic_sys_flag=sys_flag,
                order=order,
            )
        self.put(config)
        return config

    def set_order_topics(self, topics: Iterable[str]) -> None:
        """Mark topics that a name server lists as ordered."""
        for topic in topics:
            config = self._table.get(topic)
            if config is not None and not config.order:
                self.put(msgspec.structs.replace(config, order=True))

    def add_start_topics(self) -> None:
        """Make those of the broker's own topics that are missing: a setting now asks for them."""
        for topic in _start_topics(self._config):
            if topic.topic_name not in self._table:
                self._system.add(topic.topic_name)
                self.put(topic)

    def adopt(self, store: MessageStore) -> list[str]:
        """Take in topics that have messages younger than this table, and return their names.

        A broker that was killed may have stored messages of a new topic and not its config. What was
        deleted is older than the table, so it does not come back.
        """
        queues: dict[str, int] = {}
        for topic, queue_id in store.queues():
            if topic not in self._table and not self.is_system(topic):
                last = store.max_offset(topic, queue_id) - 1
                if last >= 0 and store.store_time(topic, queue_id, last) >= self.version.timestamp:
                    queues[topic] = max(queues.get(topic, 0), queue_id + 1)
        for topic, count in queues.items():
            logger.warning(
                "topic %s: has messages but no config; made with %d queues", topic, count
            )
            self.put(TopicConfig(topic_name=topic, read_queue_nums=count, write_queue_nums=count))
        return list(queues)

    # Saving

    def snapshot(self) -> dict[str, Any]:
        """Return what topics.json holds; its parts never change."""
        return {"dataVersion": self.version, "topicConfigTable": dict(self._table)}

    def load(self, state: Mapping[str, Any], path: Path) -> None:
        """Take over what topics.json holds. StateFileError: it cannot be understood."""
        if not state:
            return
        body = self._saved(TopicTableBody, state, path, "topics")
        self._table |= body.topic_config_table
        self.version = body.data_version


def _start_topics(config: BrokerConfig) -> list[TopicConfig]:
    """Return the topics that every broker has from the start; tools rely on their names."""
    read_write = PERM_READ | PERM_WRITE
    template = read_write | PERM_INHERIT

    def topic(name: str, queues: int, perm: int = read_write) -> TopicConfig:
        return TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
        )

    topics = [
        topic(SELF_TEST_TOPIC, 1),
        topic(BENCHMARK_TOPIC, 1024),
        topic(config.cluster, 16, template if config.cluster_topic else PERM_INHERIT),
        topic(config.name, 1, template if config.broker_topic else PERM_INHERIT),
        topic(OFFSET_MOVED_TOPIC, 1),
        topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
        topic(config.cluster + REPLY_SUFFIX, 1),
        topic(f"{SYSTEM_PREFIX}REVIVE_LOG_{config.cluster}", config.revive_queues),
        topic(f"{SYSTEM_PREFIX}SYNC_BROKER_MEMBER_{config.name}", 1, PERM_INHERIT),
        topic(HALF_TOPIC, 1),
        topic(OP_HALF_TOPIC, 1),
    ]
    if config.auto_create_topic:
        topics.append(topic(TEMPLATE_TOPIC, config.default_topic_queues, template))
    if config.trace_topic:
        topics.append(topic(config.trace_topic_name, 1))
    if config.timer_wheel:
        topics.append(topic(TIMER_TOPIC, 1))
    return topics
