"""A store and a lake that share its messages in every way there is, and the plain list of what was sent."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from orbitmq.errors import ConfigError
from orbitmq.format.message_id import encode_offset_id
from orbitmq.format.properties import encode_properties
from orbitmq.message import AppendRequest
from orbitmq.spark.jobs.compact.job import compact
from orbitmq.spark.jobs.export.care import expire
from orbitmq.spark.jobs.export.job import export
from orbitmq.spark.jobs.query.lake import read_lake
from orbitmq.store.config import StoreConfig
from orbitmq.store.offline.reader import OfflineStore, Selection
from orbitmq.store.store import MessageStore
from orbitmq.testing import FakeClock
from orbitmq.units import HOUR_MS, KiB
from spark.rebuild_world import InProcessSpark
from spark.table_world import table_rows

DAY_MS = 24 * HOUR_MS
FIRST_MS = 20_600 * DAY_MS + 5 * HOUR_MS
TOPICS = ("Orders", "Payments", "%RETRY%group")
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 * KiB),
    "maxHashSlotNum": "40",
    "maxIndexNum": "300",
}
FIELDS = {"Orders": {"id": "bigint"}}


class Sent(NamedTuple):
    """A message, as a plain reader of the log finds it."""

    log_offset: int
    topic: str
    queue_id: int
    queue_offset: int
    keys: tuple[str, ...]
    tags: str | None
    message_id: str | None
    offset_id: str
    store_ms: int
    amount: int
    body: bytes


def request(number: int) -> AppendRequest:
    """Return a message: its key is its own, shared by many, or one of two whose hashes are the same."""
    keys = [f"order-{number}"] + ["hot"] * (number % 3 == 0)
    keys += ["Aa"] * (number % 40 == 0) + ["BB"] * (number % 40 == 1)  # Java hashes them alike
    properties = {
        "UNIQ_KEY": f"7F000001{number:024X}",
        "KEYS": " ".join(keys),
        "TAGS": f"t{number % 5}",
    }
    properties["amount"] = str(number)
    if number % 7 == 0:
        del properties["TAGS"]
    bodies = {3: b"\xff\xfe binary %d" % number, 4: b"plain text %d" % number}
    body = bodies.get(number % 10, json.dumps({"id": number, "name": f"n{number}"}).encode())
    return AppendRequest(TOPICS[number // 2 % 3], number % 2, body, encode_properties(properties))


class World:
    """A store below a directory, with a clock of its own, and what was ever sent to it."""

    def __init__(self, directory: Path) -> None:
        self.store, self.lake = directory / "store", directory / "lake"
        self.conf = directory / "broker.conf"
        self.conf.write_text("".join(f"{name}={value}\n" for name, value in SETTINGS.items()))
        self.clock = FakeClock(FIRST_MS)
        self.count = 0
        self.sent: dict[int, Sent] = {}

    def send(self, count: int, days: int = 0) -> None:
        """Append messages, after some days."""
        self.clock.advance(days * DAY_MS)
        config = StoreConfig(
            root=self.store,
            segment_bytes=16 * KiB,
            cq_file_bytes=2000,
            index_slots=40,
            index_items=300,
        )
        with MessageStore.open(config, background=False, clock=self.clock) as store:
            for number in range(self.count, self.count + count):
                self.clock.advance(10)
                store.append(request(number))
        self.count += count
        self.sent |= {one.log_offset: one for one in self.scan()}

    def scan(self) -> list[Sent]:
        """Return what the log holds, by one process that reads all of it."""
        found = OfflineStore(self.store, SETTINGS).iter_records(Selection())
        return [
            Sent(
                offset,
                record.topic,
                record.queue_id,
                record.queue_offset,
                tuple(record.keys),
                record.tags,
                record.unique_key,
                encode_offset_id(record.store_host, offset),
                record.store_ms,
                int(record.property_map["amount"]),
                record.body,
            )
            for offset, record in found
        ]

    def export(self, **given: Any) -> None:
        spark: Any = InProcessSpark()
        export(spark, self.lake, store=self.store, settings=SETTINGS, **given)

    def expire(self, **keep: int) -> None:
        expire(self.lake, keep, now_ms=self.clock.now_ms())

    def drop_segments(self, count: int) -> None:
        """Delete the oldest segments of the log, as a broker does."""
        for path in sorted((self.store / "commitlog").iterdir())[:count]:
            path.unlink()

    def arguments(self) -> tuple[object, ...]:
        """Return how a command names both."""
        return ("--from", self.store, "--lake", self.lake, "--config", self.conf)


def shared_world(directory: Path, format_: str) -> World:
    """Return a world: half of a topic exported, filled in, misfits, days removed, small files joined."""
    world = World(directory)
    world.send(90)
    middle = sorted(world.sent)[40]
    values = {"format": format_, "body": "json", "schema": FIELDS}
    world.export(topics=["Orders"], from_offset=middle, **values)
    world.send(60, days=1)
    world.export(**values)
    world.send(60, days=1)
    world.expire(Orders=1)
    world.export(format=format_)
    world.send(60, days=1)
    # Fills in what lies before; the days that went do not come again.
    world.export(format=format_, topics=["Orders"], from_offset=0)
    world.send(20)
    world.export(format=format_)
    done = compact(world.lake, exclusive=True)
    assert any(table.removed > table.added for table in done.tables.values())
    world.send(30)
    return world


def found(frame: DataFrame) -> list[Sent]:
    """Return the rows of a message table, in log order."""
    return sorted(sent_of(row.asDict()) for row in frame.drop("error").collect())


def sent_of(row: dict[str, Any]) -> Sent:
    time = row["store_time"].timestamp()
    return Sent(
        row["log_offset"],
        row["topic"],
        row["queue_id"],
        row["queue_offset"],
        tuple(row["keys"]),
        row["tags"],
        row["message_id"],
        row["offset_id"],
        round(time * 1000),
        int(dict(row["properties"])["amount"]),
        bytes(row["body"]),
    )


def rows_here(world: World) -> list[int]:
    """Return the log offsets of the view without Spark: those of the lake's files, and those of the log."""
    given: dict[str, object] = {"path": world.store, "config": world.conf}
    try:
        lake = read_lake(world.lake)
    except ConfigError:  # there is no lake yet
        return [row["log_offset"] for row in table_rows(**given)]
    in_files = [offset for part in lake.files for offset in offsets_of(part.path)]
    rows = table_rows(**given, without=lake.held({(): 0}).to_text())
    return sorted(in_files + [row["log_offset"] for row in rows])


def offsets_of(path: str | Path) -> Iterable[int]:
    offsets: list[int] = pq.read_table(path, columns=["log_offset"])["log_offset"].to_pylist()
    return offsets
