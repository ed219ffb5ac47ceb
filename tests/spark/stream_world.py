"""What tests of streams share: readers without Spark around them, messages, and their tally."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit

from orbitmq.client.core.message import Message
from orbitmq.client.sync.producer import Producer
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA
from orbitmq.spark.source.source import OrbitmqSource
from orbitmq.testing import Broker

Offset = dict[str, Any]
Row = dict[str, Any]
WAIT_S = 120.0
BATCHES_MAX = 10_000


@contextmanager
def open_reader(**options: str) -> Iterator[DataSourceStreamReader]:
    """Yield a reader as Spark makes it beside the driver."""
    reader = OrbitmqSource(options=options).streamReader(MESSAGE_SCHEMA)
    try:
        yield reader
    finally:
        reader.stop()


class Batches:
    """Takes batches from a reader as Spark does: offsets go through JSON text."""

    def __init__(self, reader: DataSourceStreamReader, at: Offset | None = None) -> None:
        self.reader = reader
        self.at = through_json(reader.initialOffset()) if at is None else at
        self.before: Offset = self.at

    def next(self, limit: ReadLimit | None = None) -> list[Row]:
        """Return the rows of the next batch; none if there is none."""
        asked = self.reader.getDefaultReadLimit() if limit is None else limit
        end = through_json(self.reader.latestOffset(self.at, asked))
        self.before, self.at = self.at, end
        return rows_between(self.reader, self.before, end)

    def all(self) -> list[Row]:
        """Return the rows of all batches until nothing is new."""
        found: list[Row] = []
        for _ in range(BATCHES_MAX):
            found += self.next()
            if self.at == self.before:
                return found
        raise AssertionError(f"still something new after {BATCHES_MAX} batches")


def through_json(offset: Offset) -> Offset:
    read: Offset = json.loads(json.dumps(offset))
    return read


def rows_between(reader: DataSourceStreamReader, start: Offset, end: Offset) -> list[Row]:
    """Return the rows of the batch between two offsets, as its tasks read them."""
    return [
        row
        for partition in reader.partitions(start, end)
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def bodies(rows: list[Row]) -> list[str]:
    return sorted(row["body"].decode() for row in rows)


def numbered(start: int, end: int) -> list[str]:
    return sorted(f"message {number}" for number in range(start, end))


def send(broker: Broker, producer: Producer, topic: str, start: int, end: int) -> None:
    """Send messages that are numbered; wait until they are in their queues."""
    for number in range(start, end):
        producer.send(Message(topic, b"message %d" % number, keys=f"k{number}"))
    broker.wait_dispatched()


def wait_until(what: Callable[[], bool], seconds: float = WAIT_S) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)
