"""`orbitmq spark load` against a producer that sends the same rows, in batches of 64, to a broker of its own.

Rows are those of all benchmarks (`harness`): 1 KiB, a key, a tag and an id, in a Parquet file, which both
sides read. The load's clock stops when the store is there, index and all; the producer's when its last
batch was answered. Both start with everything warm: a session of Spark, a broker that has stored some.
"""

import itertools
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import harness
from broker_sides import Side, require_count
from harness import Line
from orbitmq.client import Message, Producer
from orbitmq.spark import LoadOptions, load
from orbitmq.spark.start.session import make_session
from orbitmq.store.verify.check import check_store
from orbitmq.units import MiB

BATCH = 64
SENDERS = 2
QUEUES = 8
WARM_ROWS = 2_000
GOAL = 2.0


@dataclass(frozen=True)
class Size:
    """How much work a run does."""

    rows: int
    runs: int
    settings: tuple[tuple[str, str], ...] = ()


SIZES = {
    "full": Size(1_000_000, 3),
    "smoke": Size(3_000, 1, (("mappedFileSizeCommitLog", str(16 * MiB)),)),
}


def lines(name: str, directory: Path) -> list[Line]:
    """Measure both ways and compare them."""
    size = SIZES[name]
    directory.mkdir(parents=True)
    table, warm = directory / "table.parquet", directory / "warm.parquet"
    write_table(table, size.rows)
    write_table(warm, WARM_ROWS)
    loaded = min(load_seconds(size, table, warm, directory))
    sent = min(send_seconds(size, table, warm, directory))
    what = f"{size.rows:,} rows of 1 KiB into a store: sending them".replace(",", " ")
    return [Line(what, size.rows / loaded, size.rows / sent, "/s", GOAL)]


def write_table(path: Path, rows: int) -> None:
    """Write messages as a table, in pieces that Spark reads side by side."""
    schema = pa.schema(
        [
            ("body", pa.binary()),
            ("keys", pa.string()),
            ("tags", pa.string()),
            ("message_id", pa.string()),
        ]
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for some in harness.chunks(0, rows, 50_000):
            bodies = [harness.request(i, QUEUES).body for i in some]
            keys, tags = [harness.key(i) for i in some], [f"Tag{i % 4}" for i in some]
            ids = [f"{i:032X}" for i in some]
            writer.write_batch(pa.record_batch([bodies, keys, tags, ids], schema=schema))


def load_seconds(size: Size, table: Path, warm: Path, directory: Path) -> list[float]:
    spark = make_session(app="orbitmq-bench")
    options, settings = LoadOptions("Bench", QUEUES), dict(size.settings)
    try:
        load(spark.read.parquet(str(warm)), directory / "warm", settings, options)
        shutil.rmtree(directory / "warm")
        return [
            _loaded(spark.read.parquet(str(table)), directory, size, options)
            for _ in range(size.runs)
        ]
    finally:
        spark.stop()


def _loaded(frame: Any, directory: Path, size: Size, options: LoadOptions) -> float:
    root, settings = directory / "loaded", dict(size.settings)
    start = time.perf_counter()
    load(frame, root, settings, options)
    seconds = time.perf_counter() - start
    found = check_store(root, settings)
    if found.findings or found.records != size.rows:
        raise SystemExit(f"the load made {found.records} records of {size.rows} rows")
    shutil.rmtree(root)
    return seconds


def send_seconds(size: Size, table: Path, warm: Path, directory: Path) -> list[float]:
    with Side("ours", directory, dict(size.settings)).running() as side:
        send(side, warm)
        found = []
        for _ in range(size.runs):
            topic, seconds = send(side, table)
            require_count(side, topic, size.rows)
            found.append(seconds)
        return found


def send(side: Side, table: Path) -> tuple[str, float]:
    """Send all rows of a table to a new topic, from some threads; return how long that took."""
    topic = side.new_topic()
    with Producer(side.namesrv, "bench") as producer, ThreadPoolExecutor(SENDERS) as threads:
        start = time.perf_counter()
        waiting = messages(table, topic)
        while some := list(itertools.islice(waiting, SENDERS * 4)):
            list(threads.map(producer.send_batch, some))
        return topic, time.perf_counter() - start


def messages(table: Path, topic: str) -> Iterator[list[Message]]:
    """Yield the rows of a table as batches to send."""
    for batch in pq.ParquetFile(table).iter_batches(batch_size=BATCH):
        yield [Message(topic, row["body"], row["tags"], [row["keys"]]) for row in batch.to_pylist()]
