"""Messages, topics and the words for what happened to them: shared by store, broker and client."""

from dataclasses import dataclass
from enum import Enum, IntEnum, IntFlag
from typing import Final, NamedTuple

NAME_SEPARATOR: Final = "\x01"  # between a property's name and its value
PROPERTY_SEPARATOR: Final = "\x02"  # after each property

TOPIC_BYTES_MAX: Final = 127
RETRY_TOPIC_BYTES_MAX: Final = 255
PROPERTIES_BYTES_MAX: Final = 32767
RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
TEMPLATE_TOPIC: Final = "TBW102"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"

SYSTEM_TOPICS: Final = frozenset(
    (
        TEMPLATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        HALF_TOPIC,
        "RMQ_SYS_TRACE_TOPIC",
        OP_HALF_TOPIC,
        CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
        "CHECKPOINT_TOPIC",
    )
)
"""Names that belong to the system on every broker."""

NO_SEND_TOPICS: Final = frozenset(
    (
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        CHECK_MAX_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_TOPIC,
    )
)
"""Topics that clients may not send to."""


def has_separator(text: str) -> bool:
    """Tell whether a text cannot be part of a property."""
    return NAME_SEPARATOR in text or PROPERTY_SEPARATOR in text


class Property:
    """Names of properties that store or broker read or write."""

    TAGS: Final = "TAGS"
    KEYS: Final = "KEYS"
    UNIQ_KEY: Final = "UNIQ_KEY"
    DELAY: Final = "DELAY"
    WAIT: Final = "WAIT"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    """The time of the slot in which a message waits, or waited."""
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_CANCELS: Final = "TIMER_DEL_UNIQKEY"
    """Which waiting message this one cancels: topic, +, unique key."""
    INNER_NUM: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    CLUSTER: Final = "CLUSTER"
    POP_CK: Final = "POP_CK"
    TRANSACTION: Final = "TRAN_MSG"
    CORRELATION_ID: Final = "CORRELATION_ID"
    """Which request a reply belongs to."""
    REPLY_TO: Final = "REPLY_TO_CLIENT"
    """The client id of who asked."""
    PUSH_TIME: Final = "PUSH_REPLY_TIME"
    PRODUCER_GROUP: Final = "PGROUP"
    TRANSACTION_ID: Final = "__transactionId__"
    CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    CHECK_IMMUNITY: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    CRC32: Final = "__CRC32#"
    FILLER: Final = "ORBITMQ_FILLER"
    """Marks a record that stands where a damaged one was; our readers skip it."""


class SysFlag(IntFlag):
    """Bits of a record's sys_flag."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    PREPARED = 0x4
    COMMIT = 0x8
    ROLLBACK = 0xC  # both bits; compare `flag & TRANSACTION`
    TRANSACTION = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_TYPE = 0x700


class QueueType(Enum):
    """How a topic's consume queues are kept (RocketMQ's topic attribute `queue.type`)."""

    SIMPLE = "SimpleCQ"
    BATCH = "BatchCQ"


class Host(NamedTuple):
    """An address as records carry it: 4 or 16 raw address bytes and a port."""

    address: bytes
    port: int

    def packed(self) -> bytes:
        return self.address + self.port.to_bytes(4, "big", signed=True)

    def text(self) -> str:
        """Return "ip:port"."""
        if len(self.address) == 4:
            a, b, c, d = self.address
            return f"{a}.{b}.{c}.{d}:{self.port}"
        from ipaddress import ip_address  # few need it, and commands are to start quickly

        return f"[{ip_address(self.address)}]:{self.port}"


LOOPBACK: Final = Host(b"\x7f\x00\x00\x01", 0)


@dataclass(slots=True)
class AppendRequest:
    """One message on its way into the commit log (RocketMQ: MessageExtBrokerInner).

    `properties` is the encoded property string, as it came off the wire or out of
    `format.properties.encode_properties`.
    """

    topic: str
    queue_id: int
    body: bytes
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    born_host: Host = LOOPBACK
    store_host: Host | None = None  # None: the store's own
    reconsume_times: int = 0
    prepared_offset: int = 0
    due: bool = False  # its delay is over: DELAY and TIMER_... only tell how it came here
    slot_ms: int = 0  # set by the store: the slot of the timer wheel in which it waits


class AppendStatus(IntEnum):
    """What became of an append (RocketMQ: PutMessageStatus). The first four mean: stored."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPPED_FILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGE_CACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    IN_SYNC_REPLICAS_NOT_ENOUGH = 10
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 11
    WHEEL_TIMER_FLOW_CONTROL = 12
    WHEEL_TIMER_MSG_ILLEGAL = 13
    WHEEL_TIMER_NOT_ENABLE = 14

    @property
    def stored(self) -> bool:
        return self <= AppendStatus.SLAVE_NOT_AVAILABLE


class AppendResult(NamedTuple):
    """Where a message went. `reason` says in words why it was refused; empty when it was stored."""

    status: AppendStatus
    log_offset: int = -1
    size: int = 0
    queue_offset: int = -1
    store_ms: int = 0
    queue_id: int = -1
    reason: str = ""


class GetStatus(Enum):
    """What a read of a queue found (RocketMQ: GetMessageStatus)."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    OFFSET_RESET = "OFFSET_RESET"


class Boundary(Enum):
    """Which message a search by time means when several, or none, have the time asked for."""

    LOWER = "LOWER"  # first message with store time >= t
    UPPER = "UPPER"  # last message with store time <= t
