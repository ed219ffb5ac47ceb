"""Heartbeats: what a client tells of its producers and consumers, in the dialects of all clients.

Java and Go write names of enums, C++ their numbers; Go writes hashes as strings; Node leaves out the
type of an expression, C++ more than that. After `decode` all of them look like Java's.
"""

from typing import Final

import msgspec

from orbitmq.errors import FieldError
from orbitmq.wire.bodies.body import Body

CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
"""Names by their numbers, which is what C++ sends."""

BROADCASTING: Final = "BROADCASTING"
TAG: Final = "TAG"


class Subscription(Body):
    """What a group wants of one topic (RocketMQ: SubscriptionData)."""

    topic: str
    sub_string: str = "*"
    expression_type: str = TAG
    class_filter_mode: bool = False
    tags_set: list[str] = []
    code_set: list[int] = []  # hashes of the tags; what a client sends is not always right
    sub_version: int = 0

    @property
    def is_tag(self) -> bool:
        return self.expression_type == TAG or not self.expression_type


class ProducerData(Body):
    """One producer group of a client."""

    group_name: str


class ConsumerData(Body):
    """One consumer group of a client."""

    group_name: str
    consume_type: str = CONSUME_TYPES[1]
    message_model: str = MESSAGE_MODELS[1]
    consume_from_where: str = FROM_WHERE[0]
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False


class HeartbeatData(Body):
    """Body of HEART_BEAT (34)."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False

    @classmethod
    def decode(cls, raw: bytes) -> "HeartbeatData":
        """Return a heartbeat of any dialect, enums as names. FieldError: it is none."""
        data = _RawHeartbeat.decode(raw)
        return cls(
            client_id=data.client_id,
            producer_data_set=data.producer_data_set,
            consumer_data_set=[_consumer(consumer) for consumer in data.consumer_data_set],
            heartbeat_fingerprint=data.heartbeat_fingerprint,
            without_sub=data.without_sub,
        )


class CheckClient(Body):
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: Subscription | None = None


class ConsumerIds(Body):
    """Answer of GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = []


class _RawConsumer(Body):
    group_name: str
    consume_type: str | int = 1
    message_model: str | int = 1
    consume_from_where: str | int = 0
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False


class _RawHeartbeat(Body):
    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[_RawConsumer] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


def _consumer(raw: _RawConsumer) -> ConsumerData:
    return ConsumerData(
        group_name=raw.group_name,
        consume_type=_name("consumeType", raw.consume_type, CONSUME_TYPES),
        message_model=_name("messageModel", raw.message_model, MESSAGE_MODELS),
        consume_from_where=_name("consumeFromWhere", raw.consume_from_where, FROM_WHERE),
        subscription_data_set=raw.subscription_data_set,
        unit_mode=raw.unit_mode,
    )


def _name(member: str, value: str | int, names: tuple[str, ...]) -> str:
    """Return the name of an enum value that came as name, as number or as number in quotes."""
    if value in names:
        return str(value)
    text = str(value)
    if text.isdecimal() and int(text) < len(names):
        return names[int(text)]
    raise FieldError("body", f"{member} is {text[:64]!r}; known are {', '.join(names)}")
