"""AuditReport: what an audit found, as tables of plain rows.

table         | a row is                                       | order
topics        | a topic: messages, bytes, sizes, latency       | most messages first
traffic       | a topic, a tag and an hour                     | topic, hour, tag
tags          | a topic and a tag                              | topic, most messages first
hours         | a topic and an hour                            | topic, hour
sizes         | a step of all records' sizes                   | size
latencies     | a step of all times from born to stored        | time
duplicates    | a topic, by id or by key                       | topic
offenders     | an id or key of several messages, with places  | most copies first, ids before keys
lag           | a group in a queue                             | group, topic, broker, queue
groups        | a group: lag, retries, dead letters            | group
returned      | retries or dead letters of a group, by origin  | group, retries first
              | and number of tries                            |
trace_topics  | a topic with messages that clients traced      | topic
trace_groups  | a group and a topic, by what members traced    | group, topic
unconsumed    | a message that no member traced                | oldest first

`frame(spark, name)` is such a table for Spark, `value()` everything for JSON; names of columns are those of
the classes below, and stay. Times are epoch milliseconds; an hour is named by its first one, in UTC.
"""

import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from orbitmq.errors import ConfigError
from orbitmq.spark.jobs.audit.copies import Offender, Place
from orbitmq.spark.jobs.audit.histogram import Bar, Spread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EXACT: Final = "exact"
AT_MOST: Final = "at most"
RETRY: Final = "retry"
DEAD_LETTER: Final = "dead letter"


class TopicRow(NamedTuple):
    """Messages of a topic."""

    topic: str
    messages: int
    records: int  # an inner batch is one record of several messages
    bytes: int  # of the records
    size: Spread  # bytes of a record
    latency: Spread  # milliseconds from born to stored
    waited: int  # delayed or of a transaction: their latency means nothing, and is not counted
    tags_left_out: int  # messages under "(more tags)": the topic has too many different ones


class TrafficRow(NamedTuple):
    """Messages of a topic with one tag, in one hour."""

    topic: str
    tag: str | None
    hour_ms: int | None
    messages: int
    records: int
    bytes: int


class TagRow(NamedTuple):
    """Messages of a topic with one tag."""

    topic: str
    tag: str | None
    messages: int
    bytes: int


class HourRow(NamedTuple):
    """Messages of a topic in one hour."""

    topic: str
    hour_ms: int | None
    messages: int
    bytes: int


class DuplicateRow(NamedTuple):
    """Ids or keys of a topic."""

    topic: str
    by: str
    distinct: int
    repeated: int
    surplus: int
    batched: int


class LagRow(NamedTuple):
    """A group in one queue."""

    group: str
    topic: str
    broker: str
    queue_id: int
    consumer_offset: int
    end_offset: int | None  # None: nothing of the queue is left in the log
    behind: int  # messages from one offset to the other, whether wanted, and there, or not
    lag: int  # messages that are there and that the group wants
    lag_is: str
    oldest_ms: int | None  # when the first of them was stored
    subscription: str | None
    known: str  # from whom the subscription is known; empty: nobody knows it


class GroupRow(NamedTuple):
    """A group in all its queues."""

    group: str
    lag: int
    lag_is: str
    behind: int
    oldest_ms: int | None
    retries: int
    dead_letters: int
    oldest_dead_ms: int | None


class ReturnedRow(NamedTuple):
    """Messages that a group did not manage."""

    group: str
    kind: str
    origin: str | None
    tries: int
    messages: int
    bytes: int
    oldest_ms: int | None
    newest_ms: int | None


class TraceTopicRow(NamedTuple):
    """Messages of a topic, by what clients traced."""

    topic: str
    messages: int
    traced: int
    sent: int
    failed_sends: int
    consumed: int
    failed: int
    never_consumed: int
    send_cost: Spread


class TraceGroupRow(NamedTuple):
    """What a group did with messages of a topic, by what its members traced."""

    group: str
    topic: str
    messages: int
    consumed: int
    attempts: int
    failed_attempts: int
    unfinished: int
    latency: Spread  # milliseconds from stored to the first attempt
    cost: Spread  # milliseconds of an attempt


class UnconsumedRow(NamedTuple):
    """A message that no member traced."""

    topic: str
    message_id: str
    place: Place


class Asked(NamedTuple):
    """What an audit was asked for."""

    source: str
    made_ms: int
    since_ms: int | None
    until_ms: int | None
    topics: list[str]
    groups: list[str]


class Read(NamedTuple):
    """What was read for it."""

    messages: int
    records: int
    bytes: int
    bad_places: int  # bytes of the log that are no record, or are missing; passed over
    trace_records: int
    trace_ids_unmatched: int  # ids that the trace knows, and that no message counted here has


@dataclass(frozen=True, slots=True)
class AuditReport:
    """Tables of plain rows; see the module. Immutable."""

    asked: Asked
    read: Read
    topics: list[TopicRow] = field(default_factory=list)
    traffic: list[TrafficRow] = field(default_factory=list)
    tags: list[TagRow] = field(default_factory=list)
    hours: list[HourRow] = field(default_factory=list)
    sizes: list[Bar] = field(default_factory=list)
    latencies: list[Bar] = field(default_factory=list)
    duplicates: list[DuplicateRow] = field(default_factory=list)
    offenders: list[Offender] = field(default_factory=list)
    lag: list[LagRow] = field(default_factory=list)
    groups: list[GroupRow] = field(default_factory=list)
    returned: list[ReturnedRow] = field(default_factory=list)
    trace_topics: list[TraceTopicRow] = field(default_factory=list)
    trace_groups: list[TraceGroupRow] = field(default_factory=list)
    unconsumed: list[UnconsumedRow] = field(default_factory=list)

    def value(self) -> dict[str, Any]:
        """Return everything as JSON has it."""
        return {name: _plain(getattr(self, name)) for name in ("asked", "read", *TABLES)}

    def frame(self, spark: "SparkSession", name: str) -> "DataFrame":
        """Return one of the tables for Spark. ConfigError: there is none of this name."""
        kind = TABLES.get(name)
        if kind is None:
            raise ConfigError("table", name, f"there are {', '.join(TABLES)}")
        return spark.createDataFrame(getattr(self, name), schema_of(kind))

    def html(self) -> str:
        """Return a page that needs nothing else: tables, and charts beside them."""
        from orbitmq.spark.jobs.audit.page.page import page

        return page(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from orbitmq.spark.jobs.audit.page.page import framed

        return framed(self)


TABLES: Final[dict[str, type]] = {
    "topics": TopicRow,
    "traffic": TrafficRow,
    "tags": TagRow,
    "hours": HourRow,
    "sizes": Bar,
    "latencies": Bar,
    "duplicates": DuplicateRow,
    "offenders": Offender,
    "lag": LagRow,
    "groups": GroupRow,
    "returned": ReturnedRow,
    "trace_topics": TraceTopicRow,
    "trace_groups": TraceGroupRow,
    "unconsumed": UnconsumedRow,
}

_SPARK_TYPES: Final = {int: "bigint", float: "double", str: "string"}


def schema_of(kind: type) -> str:
    """Return the columns of a table in Spark's words."""
    return ", ".join(f"{name} {_spark_type(one)}" for name, one in _fields(kind))


def _fields(kind: type) -> list[tuple[str, Any]]:
    return list(typing.get_type_hints(kind).items())


def _spark_type(kind: Any) -> str:
    if isinstance(kind, types.UnionType):  # of something and None: every column may be null
        kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
    if kind in _SPARK_TYPES:
        return _SPARK_TYPES[kind]
    if typing.get_origin(kind) is tuple:
        return f"array<{_spark_type(typing.get_args(kind)[0])}>"
    members = ", ".join(f"{name}: {_spark_type(one)}" for name, one in _fields(kind))
    return f"struct<{members}>"


def _plain(value: Any) -> Any:
    """Return rows as objects of JSON: named tuples would become lists."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(one) for name, one in value._asdict().items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(one) for one in value]
    return value
