"""Who reads which queues from where on, and which messages of them: what lag is counted by.

what a group wants of a topic is known from   | as `known` says
the option --subscription                     | given
its members, if some are online               | members
consumerFilter.json or subscriptionGroup.json | store
its being the group's own retry topic         | retries
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from orbitmq.client.consumer.subscription import SQL92, parse_tags
from orbitmq.errors import ConfigError, InvalidMessageError, Sql92SyntaxError
from orbitmq.files.layout import StoreLayout
from orbitmq.files.state_file import read_state
from orbitmq.message import RETRY_PREFIX
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.selection import RowSelection
from orbitmq.wire.bodies.heartbeat import TAG

GIVEN: Final = "given"
MEMBERS: Final = "members"
STORE: Final = "store"
RETRIES: Final = "retries"

_SQL_MARK: Final = "sql92:"
_RULE: Final = (
    "must be GROUP:TOPIC=TAGS as in 'shop:Orders=A || B', or GROUP:TOPIC=sql92:EXPRESSION"
)

Queue = tuple[str, int]
"""Broker and queue id; of a store directory the broker has no name."""


class Wanted(NamedTuple):
    """What a group wants of a topic, and who says so."""

    kind: str  # TAG or SQL92
    expression: str
    known: str

    @property
    def text(self) -> str:
        return _SQL_MARK + self.expression if self.kind == SQL92 else self.expression

    def selection(self) -> RowSelection | None:
        """Return what compares records with it; None: it wants all of them."""
        if self.kind == SQL92:
            return RowSelection(ReadOptions(sql92=self.expression))
        tags = parse_tags(self.expression.strip())
        return RowSelection(ReadOptions(tags=tuple(tags))) if tags else None


Subscriptions = dict[tuple[str, str], Wanted]
"""By group and topic."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A group in the queues of one topic. Travels to tasks."""

    group: str
    wanted: Wanted | None  # None: nobody knows
    offsets: Mapping[Queue, int] = field(default_factory=dict)  # of the next message; else 0


Readers = dict[str, list[Reader]]
"""By topic."""


class Standing(NamedTuple):
    """The next message that a group reads of a queue."""

    group: str
    topic: str
    queue: Queue
    offset: int


def readers_of(standings: Iterable[Standing], subscriptions: Subscriptions) -> Readers:
    """Put together who reads each topic."""
    offsets: dict[tuple[str, str], dict[Queue, int]] = {}
    for one in standings:
        offsets.setdefault((one.group, one.topic), {})[one.queue] = one.offset
    found: Readers = {}
    for (group, topic), of_queues in sorted(offsets.items()):
        wanted = subscriptions.get((group, topic))
        retries = RETRY_PREFIX + group
        if wanted is None and (
            topic == retries or topic.startswith((f"{retries}_", f"{retries}+"))
        ):
            wanted = Wanted(TAG, "*", RETRIES)
        found.setdefault(topic, []).append(Reader(group, wanted, of_queues))
    return found


# --- what groups want ---


def parse_subscription(text: str) -> tuple[tuple[str, str], Wanted]:
    """Return what one option --subscription says. ConfigError: nothing that is understood."""
    group, colon, rest = text.partition(":")
    topic, sign, expression = rest.partition("=")
    group, topic, expression = group.strip(), topic.strip(), expression.strip()
    if not (colon and sign and group and topic and expression):
        raise ConfigError("subscription", text, _RULE)
    is_sql = expression.lower().startswith(_SQL_MARK)
    stripped = expression[len(_SQL_MARK) :].strip() if is_sql else expression
    return (group, topic), checked(SQL92 if is_sql else TAG, stripped, GIVEN)


def checked(kind: str, expression: str, known: str) -> Wanted:
    """Return what a group wants. ConfigError: no filter can be made of it."""
    try:
        if kind == SQL92:
            from orbitmq.sql92.grammar import parse  # loaded when an expression is there

            parse(expression)
        elif kind == TAG:
            parse_tags(expression.strip())
        else:
            raise ConfigError("subscription", expression, f"{kind} is neither TAG nor SQL92")
    except (Sql92SyntaxError, InvalidMessageError) as error:
        raise ConfigError("subscription", expression, str(error)) from None
    return Wanted(kind, expression, known)


_Told = tuple[str, str, str, str]
"""Group, topic, kind and expression."""
_Stored = Iterator[_Told]


def told_subscriptions(told: Iterable[_Told], known: str) -> Subscriptions:
    """Return what groups want by what others tell. What no filter can be made of is left out."""
    found: Subscriptions = {}
    for group, topic, kind, expression in told:
        with suppress(ConfigError):
            found[group, topic] = checked(kind, expression, known)
    return found


def stored_subscriptions(layout: StoreLayout) -> Subscriptions:
    """Return what the files of a store know: SQL92 filters of groups that once were online, and topics
    that a group's settings name."""
    filters = read_state(layout.config("consumerFilter.json")).get("filterDataByTopic")
    told = (*_of_groups(_group_table(layout)), *_of_filters(filters))
    return told_subscriptions(told, STORE)


def stored_groups(layout: StoreLayout) -> set[str]:
    """Return the groups that a store has settings of."""
    return {group for group, _ in _members(_group_table(layout))}


def _group_table(layout: StoreLayout) -> object:
    return read_state(layout.config("subscriptionGroup.json")).get("subscriptionGroupTable")


def _of_filters(table: object) -> _Stored:
    for topic, by_group in _members(table):
        for group, one in _members(by_group.get("groupFilterData")):
            kind, expression = one.get("expressionType"), one.get("expression")
            if isinstance(kind, str) and isinstance(expression, str):
                yield group, topic, kind, expression


def _of_groups(table: object) -> _Stored:
    for group, config in _members(table):
        for one in config.get("subscriptionDataSet") or ():
            if isinstance(one, dict) and isinstance(one.get("topic"), str):
                kind, expression = one.get("expressionType") or TAG, one.get("expression") or "*"
                yield group, one["topic"], str(kind), str(expression)


def _members(table: object) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(table, dict):
        yield from ((name, one) for name, one in table.items() if isinstance(one, dict))
