"""What a consumer wants of a topic: a tag expression, and the exact check of what a broker sent.

A broker filters by the hash of the tag; two tags can have the same one, so every message is looked at
again here.

expression         | means
None, "", "*"      | everything
"TagA"             | messages with this tag
"TagA || TagB"     | with one of these tags
sql("price > 3")   | what the SQL92 filter selects (a RocketMQ broker needs enablePropertyFilter=true)
"""

from dataclasses import dataclass
from typing import Final, TypeVar

from orbitmq.client.core.message import ReceivedMessage
from orbitmq.errors import InvalidMessageError
from orbitmq.format.java_hash import java_hash
from orbitmq.message import Property
from orbitmq.wire.bodies.heartbeat import TAG, Subscription

EVERYTHING: Final = "*"
SQL92: Final = "SQL92"
_FILLER: Final = Property.FILLER.encode()

MessageT = TypeVar("MessageT", bound=ReceivedMessage)


@dataclass(frozen=True, slots=True)
class Sql:
    """An SQL92 expression over the properties of messages."""

    expression: str


def sql(expression: str) -> Sql:
    """Return a filter that selects messages by their properties: sql("price > 3 AND color = 'red'").

    Sql92SyntaxError: it cannot be compiled. Brokers are not asked: to some pulls they would give everything.
    """
    if not expression.strip():
        raise InvalidMessageError('an SQL92 filter must not be empty; use "*" for everything')
    from orbitmq.sql92.grammar import parse  # the parser is loaded when an expression is there

    parse(expression)
    return Sql(expression)


Expression = str | Sql | None


def parse_tags(expression: str) -> list[str]:
    """Return the tags of an expression in their order, each once; empty: everything."""
    if expression in ("", EVERYTHING):
        return []
    tags = dict.fromkeys(part.strip() for part in expression.split("||"))
    tags.pop("", None)
    if not tags:
        raise InvalidMessageError(f"subscription {expression!r}: no tag between the bars")
    return list(tags)


def subscription(topic: str, expression: Expression, version: int) -> Subscription:
    """Return a subscription as heartbeats carry it; `version` is the time at which it was made."""
    if isinstance(expression, Sql):
        return Subscription(
            topic=topic,
            sub_string=expression.expression,
            expression_type=SQL92,
            sub_version=version,
        )
    tags = parse_tags(expression or "")
    return Subscription(
        topic=topic,
        sub_string=expression if expression and tags else EVERYTHING,
        expression_type=TAG,
        tags_set=tags,
        code_set=[java_hash(tag) for tag in tags],
        sub_version=version,
    )


def wanted(
    messages: list[MessageT], wanted_by: Subscription, records: bytes | None = None
) -> list[MessageT]:
    """Return the messages that the subscription really means.

    Records that stand in for damaged ones are never wanted. `records`: the bytes of all messages, so that
    no properties have to be decoded to see that none of them is such a one.
    """
    tags = frozenset(wanted_by.tags_set) if wanted_by.is_tag else frozenset()
    if not tags and records is not None and _FILLER not in records:
        return messages
    return [
        message
        for message in messages
        if (not tags or message.properties.get(Property.TAGS) in tags)
        and Property.FILLER not in message.properties
    ]
