"""What the admin client answers with: topics, queues, groups, brokers, connections, offsets."""

from dataclasses import dataclass, field

from orbitmq.wire.bodies.failover import FailoverTold
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.topic_config import PERM_READ, PERM_WRITE


@dataclass(slots=True)
class TopicShare:
    """The part of a topic that one broker has."""

    broker_name: str
    address: str  # of the primary; empty if there is none
    read_queues: int
    write_queues: int
    perm: int

    @property
    def is_readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


@dataclass(slots=True)
class TopicInfo:
    """A topic and who has it."""

    topic: str
    shares: list[TopicShare]
    ordered: bool = False
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def read_queues(self) -> int:
        return sum(share.read_queues for share in self.shares if share.is_readable)

    @property
    def write_queues(self) -> int:
        return sum(share.write_queues for share in self.shares if share.is_writable)

    @property
    def brokers(self) -> list[str]:
        return [share.broker_name for share in self.shares]

    @property
    def kept_in(self) -> str:
        """Where its messages are: "disk", or "memory", which nothing survives a stop in."""
        return "memory" if self.attributes.get("memory.topic") == "true" else "disk"


@dataclass(slots=True)
class QueueStats:
    """How far a queue reaches; `last_ms` is 0 if it never had a message."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    last_ms: int

    @property
    def message_count(self) -> int:
        return max(self.max_offset - self.min_offset, 0)


@dataclass(slots=True)
class GroupInfo:
    """A consumer group as the brokers keep it; brokers that disagree are told apart by name."""

    group: str
    brokers: list[str]
    enabled: bool = True
    broadcast_enabled: bool = True
    retries_max: int = 16
    retry_queues: int = 1
    orderly: bool = False
    attributes: dict[str, str] = field(default_factory=dict)
    notices: bool = True  # notifyConsumerIdsChangedEnable: members hear at once who comes and goes


@dataclass(slots=True)
class QueueLag:
    """How far a group is in one queue."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    pull_offset: int
    last_ms: int  # store time of the last message consumed; 0: none
    client_id: str = ""  # who consumes the queue, where that is known
    matching: int | None = (
        None  # of the lag, what the group's filter lets through; None: not counted
    )
    is_estimate: bool = False  # `matching` was counted in a part of the lag

    @property
    def lag(self) -> int:
        """Messages that are stored but not consumed, whether the group wants them or not."""
        return max(self.broker_offset - self.consumer_offset, 0)

    @property
    def wanted_lag(self) -> int:
        """Messages that the group still has to consume; where nobody counted them, at most so many."""
        return self.lag if self.matching is None else self.matching

    @property
    def in_flight(self) -> int:
        """Messages that were pulled but not consumed."""
        return max(self.pull_offset - self.consumer_offset, 0)


@dataclass(slots=True)
class GroupProgress:
    """How far a group is in all its queues, sorted by topic, broker and queue."""

    group: str
    queues: list[QueueLag]
    consume_tps: float = 0.0

    @property
    def lag(self) -> int:
        return sum(queue.lag for queue in self.queues)

    @property
    def in_flight(self) -> int:
        return sum(queue.in_flight for queue in self.queues)

    @property
    def topics(self) -> list[str]:
        return sorted({queue.queue.topic for queue in self.queues})

    def of_topic(self, topic: str) -> list[QueueLag]:
        return [queue for queue in self.queues if queue.queue.topic == topic]


@dataclass(slots=True)
class ClientInfo:
    """A producer or consumer that is online."""

    client_id: str
    address: str
    language: str
    version: int
    brokers: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SubscriptionInfo:
    """What a group wants of a topic."""

    topic: str
    expression: str
    expression_type: str


@dataclass(slots=True)
class ConsumerGroupState:
    """Who consumes in a group right now, and how. Without clients it is offline."""

    group: str
    clients: list[ClientInfo]
    subscriptions: list[SubscriptionInfo]
    consume_type: str = ""
    message_model: str = ""
    consume_from_where: str = ""

    @property
    def is_online(self) -> bool:
        return bool(self.clients)


@dataclass(slots=True)
class OffsetChange:
    """Where a group was in a queue (-1: nowhere yet) and where it is put."""

    queue: MessageQueue
    old_offset: int
    new_offset: int


@dataclass(slots=True)
class QueueTimes:
    """When messages of a queue were stored, and how long ago the group's last one."""

    queue: MessageQueue
    min_ms: int
    max_ms: int
    consumed_ms: int
    delay_ms: int


@dataclass(slots=True)
class BrokerInfo:
    """A broker and the figures that it tells of itself; without them, why."""

    cluster: str
    name: str
    broker_id: int
    address: str
    runtime: dict[str, str] = field(default_factory=dict, repr=False)
    error: str = ""

    @property
    def is_primary(self) -> bool:
        return self.broker_id == 0

    @property
    def version(self) -> str:
        return self.runtime.get("brokerVersionDesc", "")

    @property
    def put_tps(self) -> float:
        """Messages stored per second, over the last 10 seconds."""
        return self._first_number("putTps")

    @property
    def get_tps(self) -> float:
        """Messages read per second, over the last 10 seconds."""
        return self._first_number("getTransferredTps")

    @property
    def disk_ratio(self) -> float:
        """How full the disk of the commit log is, 0 to 1; -1 while the broker does not know."""
        return self._first_number("commitLogDiskRatio")

    @property
    def earliest_ms(self) -> int:
        """Store time of the oldest message."""
        return int(self._first_number("earliestMessageTimeStamp"))

    def _first_number(self, name: str) -> float:
        words = self.runtime.get(name, "").split()
        try:
            return float(words[0]) if words else 0.0
        except ValueError:
            return 0.0


@dataclass(slots=True)
class Promotion:
    """A replica that has become the primary."""

    address: str
    epoch: int
    start: int  # log offset from which on its records are its own
    lacked_bytes: int  # what the former primary had more when it last told


@dataclass(slots=True)
class LogCopy:
    """The log of a primary, or a copy of it. None: nobody tells."""

    broker_name: str  # empty: an address was asked, and brokers do not tell it
    is_primary: bool
    address: str  # of a replica that only its primary tells of: that of its connection
    log_end: int = 0
    gap_bytes: int | None = None
    in_sync: bool | None = None
    bytes_per_second: int = 0
    last_heard_ms: int = 0  # when a replica heard of its primary; 0: never, or nobody tells
    connected: bool | None = None  # of a replica, to its primary
    follows: str = ""  # the HA address of a replica's primary, by its own words
    failover: FailoverTold | None = None  # of a broker under a coordinator, by its own words
    error: str = ""

    @property
    def role(self) -> str:
        return "primary" if self.is_primary else "replica"
