"""What tests of the sink share: rows, a write as Spark does it but in one process, and what topics hold."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    MapType,
    StringType,
    StructType,
)

from orbitmq.client import Admin, Producer, ReceivedMessage
from orbitmq.client.core.name_rules import RESERVED_PROPERTIES
from orbitmq.client.producer.faults import queue_by_key
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.testing import Broker

SCHEMA = "topic string, body binary, tags string, keys array<string>, flag int, sharding_key string"
SCHEMA += ", properties map<string,string>"
_TYPES = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "array<string>": ArrayType(StringType()),
    "map<string,string>": MapType(StringType(), StringType()),
    "map<string,int>": MapType(StringType(), IntegerType()),
}
ARROW = pa.schema(
    [
        ("topic", pa.string()),
        ("body", pa.binary()),
        ("tags", pa.string()),
        ("keys", pa.list_(pa.string())),
        ("flag", pa.int32()),
        ("sharding_key", pa.string()),
        ("properties", pa.map_(pa.string(), pa.string())),
    ]
)


def schema_of(ddl: str) -> StructType:
    """Return what Spark makes of such a text; its own way to do that needs a JVM."""
    schema = StructType()
    for part in ddl.split(", "):
        name, kind = part.split(" ")
        schema.add(name, _TYPES[kind])
    return schema


@dataclass(frozen=True)
class Row:
    """A message as a row has it."""

    topic: str
    body: bytes
    tags: str | None = None
    keys: list[str] | None = None
    flag: int | None = None
    sharding_key: str | None = None
    properties: dict[str, str | None] | None = field(default=None)

    @property
    def content(self) -> tuple[Any, ...]:
        """What a reader must find."""
        own = tuple(sorted((k, v) for k, v in (self.properties or {}).items() if v))
        return self.body, self.tags or "", tuple(self.keys or ()), self.flag or 0, own


def row(number: int, topic: str = "Orders", keys: int = 7) -> Row:
    """Return a row; some have no tag, no keys, no properties, another no sharding key."""
    return Row(
        topic,
        b"order %d" % number,
        None if number % 3 == 0 else f"tag{number % 5}",
        None if number % 4 == 0 else [f"k{number}", "all"][: number % 3],
        None if number % 5 == 0 else number,
        None if number % 11 == 0 else f"customer {number % keys}",
        None if number % 6 == 0 else {"n": str(number), "größe": "ü" * (number % 3), "none": None},
    )


def rows(count: int, topic: str = "Orders", start: int = 0) -> list[Row]:
    return [row(number, topic) for number in range(start, start + count)]


def frame_of(spark: Any, given: Sequence[Row]) -> Any:
    return spark.createDataFrame([tuple(vars(one).values()) for one in given], SCHEMA)


def batch_of(given: Sequence[Row]) -> pa.RecordBatch:
    columns = {name: [getattr(one, name) for one in given] for name in ARROW.names}
    columns["properties"] = [None if p is None else list(p.items()) for p in columns["properties"]]
    return pa.record_batch(columns, schema=ARROW)


def content(message: ReceivedMessage) -> tuple[Any, ...]:
    own = sorted((k, v) for k, v in message.properties.items() if k not in RESERVED_PROPERTIES)
    return message.body, message.tag, tuple(message.keys), message.flag, tuple(own)


def messages_of(namesrv: str, topic: str) -> list[ReceivedMessage]:
    """Return all messages of a topic, queue by queue."""
    with Admin(namesrv) as admin:
        return [
            message
            for stats in admin.topic_stats(topic)
            for message in admin.browse(stats.queue, stats.min_offset, stats.max_offset)
        ]


def require_each_once(namesrv: str, topic: str, given: Iterable[Row], why: str = "") -> None:
    """Compare what a topic holds with rows: each once, its parts as given, in order by sharding key."""
    wanted, found = list(given), messages_of(namesrv, topic)
    assert sorted(map(content, found)) == sorted(one.content for one in wanted), why
    ids = [message.message_id for message in found]
    assert len(set(ids)) == len(ids), why
    with Producer(namesrv, "where") as producer:
        queues = sorted(producer.queues(topic))
    place = {message.body: (message.queue, message.queue_offset) for message in found}
    for key in {one.sharding_key for one in wanted if one.sharding_key is not None}:
        places = [place[one.body] for one in wanted if one.sharding_key == key]
        assert {queue for queue, _ in places} == {queue_by_key(queues, key)}, why
        assert places == sorted(places), why


class Write:
    """A batch write, by the steps that Spark takes: a writer, tasks, a commit."""

    def __init__(self, namesrv: str, **options: str) -> None:
        given = {"namesrv": namesrv, **options}
        schema = schema_of(SCHEMA)
        self.writer: DataSourceWriter = OrbitmqSource(options=given).writer(schema, False)
        self.parts: list[WriterCommitMessage | None] = []

    def task(self, *batches: Sequence[Row]) -> WriterCommitMessage:
        """Run an attempt of a task."""
        return self.writer.write(iter([batch_of(batch) for batch in batches]))  # type: ignore[arg-type]

    def tasks(self, given: Sequence[Row], count: int = 2) -> "Write":
        """Run tasks over rows, each over some that lie one behind the other, in two batches."""
        step = -(-len(given) // count)
        pieces = [given[at : at + step] for at in range(0, len(given), step)]
        self.parts = [self.task(one[: step // 2], one[step // 2 :]) for one in pieces]
        return self

    def commit(self) -> None:
        self.writer.commit(self.parts)


def fresh_topic(broker: Broker, name: str, queues: int = 4) -> str:
    with Admin(broker.namesrv) as admin:
        admin.create_topic(name, queues=queues)
    return name
