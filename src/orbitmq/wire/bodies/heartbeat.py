"""Heartbeats: what a client tells of its producers and consumers, in the dialects of all clients.

Java and Go write names of enums, C++ their numbers; Go writes hashes as strings; Node leaves out the
type of an expression, C++ more than that. After `decode` all of them look like Java's.
"""

from typing import TYPE_CHECKING, Final

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

if TYPE_CHECKING:
    _Name = str
else:
    _Name = str | int  # what a body may have

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
    """One consumer group of a client. Enums are names, whatever the client wrote; FieldError: unknown."""

    group_name: str
    consume_type: _Name = CONSUME_TYPES[1]
    message_model: _Name = MESSAGE_MODELS[1]
    consume_from_where: _Name = FROM_WHERE[0]
    subscription_data_set: list[Subscription] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_type = _name("consumeType", self.consume_type, CONSUME_TYPES)
        self.message_model = _name("messageModel", self.message_model, MESSAGE_MODELS)
        self.consume_from_where = _name("consumeFromWhere", self.consume_from_where, FROM_WHERE)


class HeartbeatData(Body):
    """Body of HEART_BEAT (34)."""

    client_id: str = msgspec.field(name="clientID")
    producer_data_set: list[ProducerData] = []
    consumer_data_set: list[ConsumerData] = []
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


class CheckClient(Body):
    """Body of CHECK_CLIENT_CONFIG (46)."""

    client_id: str = ""
    group: str = ""
    namespace: str | None = None
    subscription_data: Subscription | None = None


class ConsumerIds(Body):
    """Answer of GET_CONSUMER_LIST_BY_GROUP (38)."""

    consumer_id_list: list[str] = []


def _name(member: str, value: str | int, names: tuple[str, ...]) -> str:
    """Return the name of an enum value that came as name, as number or as number in quotes."""
    if value in names:
        return str(value)
    text = str(value)
    if text.isdecimal() and int(text) < len(names):
        return names[int(text)]
    raise FieldError("body", f"{member} is {text[:64]!r}; known are {', '.join(names)}")
