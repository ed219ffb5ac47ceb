"""What a consumer can be told, and how its public arguments become that. RocketMQ's keys stand beside."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, Final

from orbitmq.client.consumer.rebalance import Average, Strategy, strategy_named
from orbitmq.client.consumer.subscription import EVERYTHING, Expression
from orbitmq.client.core.config import ClientConfig, config_of, require_known
from orbitmq.client.core.name_rules import require_group
from orbitmq.errors import ConfigError
from orbitmq.units import MINUTE_MS, SECOND_MS, KiB, MiB

RECONSUME_TIMES_DEFAULT: Final = 16
UNLIMITED: Final = 0x7FFFFFFF


class Model(Enum):
    """Who gets a message (RocketMQ: MessageModel)."""

    CLUSTERING = "CLUSTERING"
    """One member of the group."""
    BROADCASTING = "BROADCASTING"
    """Every member; each keeps its offsets in a file of its own."""


class StartFrom(Enum):
    """Where a group begins that never read a queue before (RocketMQ: ConsumeFromWhere)."""

    LAST = "CONSUME_FROM_LAST_OFFSET"
    FIRST = "CONSUME_FROM_FIRST_OFFSET"
    TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


def _default_offsets_directory() -> Path:
    return Path.home() / ".rocketmq_offsets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """Everything about one consumer but its connections, which `ClientConfig` describes."""

    group: str  # consumerGroup
    model: Model = Model.CLUSTERING  # messageModel
    orderly: bool = False
    start_from: StartFrom = StartFrom.LAST  # consumeFromWhere
    start_ms: int = 0  # consumeTimestamp; 0: half an hour before the start
    strategy: Strategy = field(default_factory=Average)  # allocateMessageQueueStrategy

    # Handling.
    workers: int = 20  # consumeThreadMax
    batch_size: int = 1  # consumeMessageBatchMaxSize
    reconsume_times_max: int = -1  # maxReconsumeTimes; -1: 16, without limit if orderly
    consume_timeout_ms: int = 15 * MINUTE_MS  # consumeTimeout
    suspend_queue_ms: int = SECOND_MS  # suspendCurrentQueueTimeMillis
    retry_level: int = 0  # delayLevelWhenNextConsume; 0: the broker chooses, -1: dead letters
    close_wait_ms: int = 30 * SECOND_MS  # awaitTerminationMillisWhenShutdown

    # Fetching; a queue that holds more than a limit is not pulled.
    pull_count: int = 32  # pullBatchSize
    pull_bytes: int = 256 * KiB  # pullBatchSizeInBytes
    pull_interval_ms: int = 0  # pullInterval
    suspend_ms: int = 15 * SECOND_MS  # brokerSuspendMaxTimeMillis
    pull_timeout_ms: int = 30 * SECOND_MS  # consumerTimeoutMillisWhenSuspend
    pull_failed_wait_ms: int = SECOND_MS  # pullTimeDelayMillsWhenException
    prefetch_count: int = 1000  # pullThresholdForQueue
    prefetch_bytes: int = 100 * MiB  # pullThresholdSizeForQueue
    prefetch_span: int = 2000  # consumeConcurrentlyMaxSpan
    prefetch_topic_count: int = -1  # pullThresholdForTopic; over all queues of a topic
    prefetch_topic_bytes: int = -1  # pullThresholdSizeForTopic
    expression_in_pull: bool = False  # postSubscriptionWhenPull

    # Jobs.
    persist_interval_ms: int = 5 * SECOND_MS  # persistConsumerOffsetInterval
    rebalance_interval_ms: int = 20 * SECOND_MS  # rocketmq.client.rebalance.waitInterval
    rebalance_again_ms: int = SECOND_MS  # rocketmq.client.rebalance.minInterval
    lock_interval_ms: int = 20 * SECOND_MS  # rocketmq.client.rebalance.lockInterval
    handover_wait_ms: int = 500
    """How long a queue that may have been another member's rests before its offset is read."""

    offsets_directory: Path = field(default_factory=_default_offsets_directory)
    """Where broadcasting keeps its offsets (rocketmq.client.localOffsetStoreDir)."""

    def __post_init__(self) -> None:
        require_group(self.group)
        for name in ("workers", "batch_size", "pull_count", "prefetch_count", "prefetch_bytes"):
            if getattr(self, name) < 1:
                raise ConfigError(name, getattr(self, name), "must be at least 1")
        if self.pull_timeout_ms <= self.suspend_ms:
            rule = f"must be longer than suspend_ms = {self.suspend_ms}: a pull waits that long"
            raise ConfigError("pull_timeout_ms", self.pull_timeout_ms, rule)
        if self.pull_count > 1024 or self.batch_size > 1024:
            raise ConfigError("pull_count", self.pull_count, "and batch_size are at most 1024")

    @property
    def clustering(self) -> bool:
        return self.model is Model.CLUSTERING

    @property
    def reconsume_limit(self) -> int:
        """How often a message may fail before it goes to the dead letters."""
        if self.reconsume_times_max >= 0:
            return self.reconsume_times_max
        return UNLIMITED if self.orderly else RECONSUME_TIMES_DEFAULT


# --- from the arguments of a public consumer ---

Topics = str | Sequence[str] | Mapping[str, Expression]

StartWish = str | StartFrom | datetime | int
"""Where a new group begins: "first", "last", a moment, or epoch milliseconds."""

_BROADCASTING_INSTANCE: Final = "DEFAULT"
_FROM_ARGUMENTS: Final = {"group", "model", "orderly", "start_from", "start_ms"}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a public consumer was told."""

    client: ClientConfig
    consumer: ConsumerConfig
    filters: Mapping[str, Expression]


def consumer_settings(
    namesrv: str | Sequence[str] | None,
    group: str,
    topics: Topics,
    orderly: bool,
    broadcasting: bool,
    start_from: StartWish,
    config: ClientConfig | None,
    settings: Mapping[str, Any],
) -> Settings:
    """Return both configurations; every further setting belongs to one of them."""
    own_names = {item.name for item in fields(ConsumerConfig)} - _FROM_ARGUMENTS
    client_names = {item.name for item in fields(ClientConfig)}
    require_known(settings, "consumer", client_names | own_names)
    own = {name: value for name, value in settings.items() if name in own_names}
    rest = {name: value for name, value in settings.items() if name not in own_names}
    if isinstance(strategy := own.get("strategy"), str):
        own["strategy"] = strategy_named(strategy)
    start, start_ms = parse_start(start_from)
    filters = parse_topics(topics)
    consumer = ConsumerConfig(
        group=group,
        model=Model.BROADCASTING if broadcasting else Model.CLUSTERING,
        orderly=orderly,
        start_from=start,
        start_ms=start_ms,
        **own,
    )
    client = config_of(namesrv, config, rest)
    if broadcasting and not client.instance_name:
        # The file of offsets is named after the client: it must have the same name the next time.
        client = replace(client, instance_name=_BROADCASTING_INSTANCE)
    return Settings(client.named(), consumer, filters)


def parse_topics(topics: Topics) -> dict[str, Expression]:
    """Return topic -> expression of "Orders", ["Orders", "Bills"] or {"Orders": "TagA || TagB"}."""
    if isinstance(topics, str):
        return {topics: EVERYTHING}
    if isinstance(topics, Mapping):
        return dict(topics)
    return dict.fromkeys(topics, EVERYTHING)


def parse_start(wish: StartWish) -> tuple[StartFrom, int]:
    """Return where a new group begins, and the moment if that is one."""
    if isinstance(wish, StartFrom):
        return wish, 0
    if isinstance(wish, datetime):
        return StartFrom.TIMESTAMP, round(wish.timestamp() * 1000)
    if isinstance(wish, int):
        return StartFrom.TIMESTAMP, wish
    match wish.lower():
        case "first" | "earliest":
            return StartFrom.FIRST, 0
        case "last" | "latest":
            return StartFrom.LAST, 0
    raise ConfigError("start_from", wish, 'is "first", "last", a datetime or epoch milliseconds')
