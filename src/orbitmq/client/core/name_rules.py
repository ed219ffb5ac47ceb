"""Rules for names and messages: what no broker would take is refused here, with a reason."""

import re
from typing import Final

from orbitmq.client.core.message import Message
from orbitmq.errors import InvalidMessageError
from orbitmq.message import (
    DLQ_PREFIX,
    NAME_SEPARATOR,
    NO_SEND_TOPICS,
    PROPERTIES_BYTES_MAX,
    PROPERTY_SEPARATOR,
    RETRY_PREFIX,
    RETRY_TOPIC_BYTES_MAX,
    TOPIC_BYTES_MAX,
)

GROUP_LENGTH_MAX: Final = 120
_LEGAL: Final = re.compile(r"[%|a-zA-Z0-9_-]+\Z")
_REFUSED_GROUPS: Final = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})

_RESERVED_NAMES: Final = (
    "TRACE_ON MSG_REGION KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP "
    "MIN_OFFSET MAX_OFFSET BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG "
    "RECONSUME_TIME UNIQ_KEY MAX_RECONSUME_TIMES CONSUME_START_TIME POP_CK POP_CK_OFFSET "
    "1ST_POP_TIME TRAN_PREPARED_QUEUE_OFFSET DUP_INFO EXTEND_UNIQ_INFO INSTANCE_ID "
    "CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME CLUSTER MSG_TYPE "
    "INNER_MULTI_QUEUE_OFFSET TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DELIVER_MS "
    "TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES TIMER_OUT_MS TIMER_DEL_UNIQKEY "
    "TIMER_DELAY_LEVEL __BORNHOST BORN_TIMESTAMP DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID "
    "__CRC32# "
)
RESERVED_PROPERTIES: Final = frozenset(_RESERVED_NAMES.split())
"""Names to which RocketMQ gives a meaning of its own."""

_legal_topics: set[str] = set()  # those that passed: checking is on the path of every send
_LEGAL_TOPICS_MAX: Final = 10_000


def require_topic(topic: str) -> None:
    """Raise InvalidMessageError unless messages may be sent to a topic of this name."""
    if not topic:
        raise InvalidMessageError("a message needs a topic: Message('Orders', b'...')")
    is_inner = topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
    length_max = RETRY_TOPIC_BYTES_MAX if is_inner else TOPIC_BYTES_MAX
    _require_name("topic", topic, length_max)
    if topic in NO_SEND_TOPICS:
        raise InvalidMessageError(f"topic {topic} is the broker's own: send to another one")
    if len(_legal_topics) < _LEGAL_TOPICS_MAX:
        _legal_topics.add(topic)


def require_group(group: str) -> None:
    """Raise InvalidMessageError unless a group may have this name."""
    if not group:
        raise InvalidMessageError("a group is needed, for example group='orders-service'")
    _require_name("group", group, GROUP_LENGTH_MAX)
    if group in _REFUSED_GROUPS:
        raise InvalidMessageError(
            f"group {group} is RocketMQ's default, which all would share: choose your own name"
        )


def _require_name(kind: str, name: str, length_max: int) -> None:
    if not _LEGAL.match(name):
        raise InvalidMessageError(
            f"{kind} {name!r}: only letters, digits and the characters % | _ - are allowed"
        )
    if len(name) > length_max:
        raise InvalidMessageError(f"{kind} {name!r}: longer than {length_max} characters")


def require_message(message: Message, bytes_max: int) -> None:
    """Raise InvalidMessageError unless a broker would take the message."""
    if message.topic not in _legal_topics:
        require_topic(message.topic)
    body = message.body
    if not isinstance(body, bytes):
        kind = type(body).__name__
        raise InvalidMessageError(f"the body must be bytes, not {kind}: use text.encode()")
    if not body:
        raise InvalidMessageError("the body is empty: brokers refuse that; send b' ' if you must")
    if len(body) > bytes_max:
        raise InvalidMessageError(
            f"the body has {len(body)} bytes, allowed are {bytes_max}:"
            " send less, or raise maxMessageSize of broker and client (message_bytes_max)"
        )
    if message.properties:
        _require_properties(message.properties)
    if message.delay_level or message.deliver_ms or message.delay_ms:
        _require_one_delay(message)


def _require_one_delay(message: Message) -> None:
    given = (message.delay_level, message.deliver_ms, message.delay_ms)
    if min(given) < 0:
        raise InvalidMessageError("delay_level, deliver_ms and delay_ms must not be negative")
    if sum(map(bool, given)) > 1:
        raise InvalidMessageError("set one of delay_level, deliver_ms and delay_ms")


def _require_properties(properties: dict[str, str]) -> None:
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES:
            raise InvalidMessageError(
                f"property {name} is RocketMQ's own: tag, keys and the delays are"
                " arguments of Message; choose another name for anything else"
            )
        if not name or not value:
            raise InvalidMessageError(f"property {name!r} = {value!r}: empty, so it would be lost")
        if PROPERTY_SEPARATOR in name + value or NAME_SEPARATOR in name:
            raise InvalidMessageError(
                f"property {name!r}: the characters 0x01, 0x02 are not allowed"
            )


def require_properties_size(text: str) -> None:
    """Raise InvalidMessageError if the encoded properties do not fit a record."""
    if len(text) > PROPERTIES_BYTES_MAX // 4 and len(text.encode()) > PROPERTIES_BYTES_MAX:
        raise InvalidMessageError(
            f"the properties take {len(text.encode())} bytes, allowed are {PROPERTIES_BYTES_MAX}"
        )
