"""What no broker would take."""

import pytest

from orbitmq.client.core.message import Message
from orbitmq.client.core.name_rules import RESERVED_PROPERTIES, require_group, require_message
from orbitmq.client.producer.send_request import encode_texts
from orbitmq.errors import InvalidMessageError

BYTES_MAX = 100


# no assert: other topics raise
@pytest.mark.parametrize("topic", ["a", "A-b_c%d|9", "x" * 127, "%RETRY%" + "g" * 120, "%DLQ%g"])
def test_legal_topics(topic):
    require_message(Message(topic, b"x"), BYTES_MAX)


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("", "needs a topic"),
        ("a b", "only letters"),
        ("a.b", "only letters"),
        ("тема", "only letters"),
        ("a\n", "only letters"),
        ("x" * 128, "longer than 127"),
        ("%RETRY%" + "g" * 249, "longer than 255"),
        ("SCHEDULE_TOPIC_XXXX", "broker's own"),
        ("RMQ_SYS_TRANS_HALF_TOPIC", "broker's own"),
    ],
)
def test_illegal_topics(topic, reason):
    with pytest.raises(InvalidMessageError, match=reason):
        require_message(Message(topic, b"x"), BYTES_MAX)


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("", "needed"),
        ("a b", "only letters"),
        ("g" * 121, "longer than 120"),
        ("DEFAULT_PRODUCER", "choose your own"),
        ("DEFAULT_CONSUMER", "choose your own"),
    ],
)
def test_illegal_groups(group, reason):
    with pytest.raises(InvalidMessageError, match=reason):
        require_group(group)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Message("T", b""), "empty"),
        (Message("T", "text"), "encode"),  # type: ignore[arg-type]
        (Message("T", b"x" * 101), "message_bytes_max"),
        (Message("T", b"x", delay_level=1, deliver_ms=5), "set one of"),
        (Message("T", b"x", delay_level=-1), "negative"),
        (Message("T", b"x", properties={"": "v"}), "empty"),
        (Message("T", b"x", properties={"n": ""}), "empty"),
        (Message("T", b"x", properties={"n": "a\x02b"}), "not allowed"),
        (Message("T", b"x", properties={"n\x01": "a"}), "not allowed"),
    ],
)
def test_illegal_messages(message, reason):
    with pytest.raises(InvalidMessageError, match=reason):
        require_message(message, BYTES_MAX)


@pytest.mark.parametrize("name", sorted(RESERVED_PROPERTIES))
def test_names_with_a_meaning_cannot_be_user_properties(name):
    with pytest.raises(InvalidMessageError, match="RocketMQ's own"):
        require_message(Message("T", b"x", properties={name: "v"}), BYTES_MAX)


@pytest.mark.parametrize(
    "message",
    [
        Message("T", b"x", tag="a\x02"),
        Message("T", b"x", keys=["a\x01"]),
        Message("T", b"x", properties={"n": "v" * 32767}),
        Message("T", b"x", properties={"n": "ü" * 20000}),
    ],
    ids=["tag", "key", "too long", "too long in bytes"],
)
def test_texts_that_do_not_fit_a_record_are_refused(message):
    with pytest.raises(InvalidMessageError):
        encode_texts(message, "0" * 32)
