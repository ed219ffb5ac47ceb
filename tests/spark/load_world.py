"""Tables for tests of `orbitmq spark load`, and what the store made of them must hold."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession

from orbitmq.client import Admin, ReceivedMessage
from orbitmq.client.producer.faults import queue_by_key
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest, Host
from orbitmq.testing.broker import Broker
from orbitmq.wire.bodies.message_queue import MessageQueue

SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "4000",
}
BORN_MS = 1_700_000_000_000
HOST = Host(bytes((127, 0, 0, 1)), 10911)
SCHEMA = (
    "topic string, queue_id int, body binary, tags string, keys array<string>, message_id string,"
    " properties map<string,string>, born_time bigint, flag int"
)
PARTITIONS = 3


class Row(NamedTuple):
    """A row of SCHEMA."""

    topic: str
    queue_id: int | None
    body: bytes
    tags: str | None
    keys: list[str]
    message_id: str | None
    properties: dict[str, str | None] | None
    born_time: int | None
    flag: int | None

    def request(self, now_ms: int) -> AppendRequest:
        """Return what has to be appended to get the record of this row."""
        pairs = {name: value for name, value in (self.properties or {}).items() if value}
        named = {"KEYS": " ".join(self.keys), "UNIQ_KEY": self.message_id, "TAGS": self.tags}
        pairs |= {name: value for name, value in named.items() if value}
        return AppendRequest(
            self.topic,
            self.queue_id or 0,
            self.body,
            encode_properties(pairs),
            flag=self.flag or 0,
            born_ms=now_ms if self.born_time is None else self.born_time,
            born_host=HOST,
            store_host=HOST,
        )


def rows(count: int) -> list[Row]:
    """Return rows of two topics with everything that a row may have, and without."""
    return [
        Row(
            "Orders" if number % 3 else "%RETRY%" + "g" * 140,
            number % 5,
            b"body %d " % number * (1 + number % 9),
            (None, "TagA", "\u8ba2\u5355")[number % 3],
            [f"k{number}", "all"][: number % 3],
            f"ID{number:030}" if number % 2 else None,
            ({"a": str(number), "none": None, "empty": ""}, {}, None)[number % 3],
            BORN_MS + number if number % 4 else None,
            number % 7 or None,
        )
        for number in range(count)
    ]


def table(spark: SparkSession, of: list[Row]) -> DataFrame:
    """Return the rows as a table with PARTITIONS partitions, in their order."""
    spread = spark.sparkContext.parallelize([tuple(row) for row in of], PARTITIONS)
    return spark.createDataFrame(spread, SCHEMA)


def simple_table(spark: SparkSession, count: int, *columns: str) -> DataFrame:
    """Return a table of numbers with a topic and a body, and these columns of Spark's SQL."""
    made = ("'T' AS topic", "concat('body ', id) AS body", *columns)
    return spark.range(0, count, 1, PARTITIONS).selectExpr(*made)


Queues = dict[tuple[str, int], list[ReceivedMessage]]


def served(root: Path) -> Queues:
    """Return the messages of each queue, as a broker on this store gives them to a client."""
    topics = sorted(path.name for path in (root / "consumequeue").iterdir())
    with Broker(root, settings=SETTINGS) as broker:
        return read_queues(broker.namesrv, topics)


def read_queues(namesrv: str, topics: Iterable[str]) -> Queues:
    """Return the messages of each queue that has any."""
    with Admin(namesrv) as admin:
        found = {
            (topic, stats.queue.queue_id): list(
                admin.browse(stats.queue, stats.min_offset, stats.max_offset)
            )
            for topic in topics
            for stats in admin.topic_stats(topic)
        }
    return {queue: messages for queue, messages in found.items() if messages}


def require_rows(queues: Queues, of: list[Row]) -> None:
    """Each queue has its rows, all of them, in their order."""
    assert sum(map(len, queues.values())) == len(of)
    for (topic, queue_id), found in queues.items():
        wanted = [row for row in of if (row.topic, row.queue_id) == (topic, queue_id)]
        assert [one.body for one in found] == [row.body for row in wanted]
        assert [one.queue_offset for one in found] == list(range(len(wanted)))


def queue_of_key(key: str, count: int) -> int:
    """Return the queue that a producer would choose."""
    queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
    return queue_by_key(queues, key).queue_id
