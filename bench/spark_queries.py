"""The queries that are asked of every side, over the same columns: ours, Parquet's and the Kafka connector's.

A table of the benchmark has the columns topic, queue_id, queue_offset, tags, key, body. This module runs
in two environments (the connector's has no OrbitMQ), so it imports pyspark and nothing else.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

RUNS_SECONDS_MAX = 20.0

Row = dict[str, Any]
Table = Callable[[str], DataFrame]
"""Gives the table for a query: some sides must be told beforehand which columns it needs."""


def session(app: str, master: str, **conf: str) -> SparkSession:
    """Start a session that listens on the loopback address only."""
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **conf,
    }
    builder = SparkSession.builder.appName(app).master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def nothing() -> None:
    """Make nothing ready."""


def timed(
    action: Callable[[], Any], runs: int, ready: Callable[[], None] = nothing
) -> tuple[float, Any]:
    """Return the median seconds of some runs, as many as start within some seconds, and the last result.

    Before each one `ready` is called, which does not count.
    """
    spent: list[float] = []
    while len(spent) < runs and sum(spent) < RUNS_SECONDS_MAX:
        ready()
        start = time.perf_counter()
        result = action()
        spent.append(time.perf_counter() - start)
    return statistics.median(spent), result


def count_by_tag(table: DataFrame) -> Row:
    """Return how many rows each topic and tag has; no side needs the body for that."""
    rows = table.select("topic", "tags").groupBy("topic", "tags").count().collect()
    return {f"{row['topic']} {row['tags']}": row["count"] for row in rows}


def sums(table: DataFrame) -> Row:
    """Return sums over every column: nothing can be left out, and a wrong byte shows."""
    found = table.agg(
        F.count("*").alias("rows"),
        F.sum("queue_id").alias("queue_ids"),
        F.sum("queue_offset").alias("queue_offsets"),
        F.sum(F.crc32(F.col("topic").cast("binary"))).alias("topics"),
        F.sum(F.crc32(F.col("tags").cast("binary"))).alias("tags"),
        F.sum(F.crc32(F.col("key").cast("binary"))).alias("keys"),
        F.sum(F.crc32("body")).alias("bodies"),
    )
    return found.collect()[0].asDict()


def write_parquet(table: DataFrame, target: Path) -> None:
    """Write all columns to Parquet as Spark does by default."""
    table.write.mode("overwrite").parquet(str(target))


def find(table: DataFrame, key: str) -> Row:
    """Return the one row that has a key."""
    rows = table.where(F.col("key") == key).collect()
    if len(rows) != 1:
        raise SystemExit(f"wrong result: {len(rows)} rows with key {key}")
    return place(rows[0])


def place(row: Any) -> Row:
    """Return where a row says that its message is."""
    return {name: row[name] for name in ("topic", "queue_id", "queue_offset", "tags", "key")}


def measure(
    table: Table,
    warm: Table,
    target: Path,
    queries: list[str],
    runs: int,
    ready: Callable[[], None] = nothing,
) -> Row:
    """Ask a side some queries, each after a warm-up over a smaller table of the same kind.

    `ready` has its files in memory again: a machine may take them out between two queries.
    """
    row: Row = {}
    if "count" in queries:
        count_by_tag(warm("count"))
        row["count_seconds"], row["counts"] = timed(
            lambda: count_by_tag(table("count")), runs, ready
        )
    if "read" in queries:
        sums(warm("read"))
        row["read_seconds"], row["sums"] = timed(lambda: sums(table("read")), runs, ready)
    if "parquet" in queries:
        write_parquet(warm("parquet"), target)
        row["parquet_seconds"], _ = timed(
            lambda: write_parquet(table("parquet"), target), runs, ready
        )
        written = table("parquet").sparkSession.read.parquet(str(target))
        row["parquet_sums"] = sums(written)
    return row


def lookups(look_up: Callable[[str], Row], keys: list[str]) -> tuple[float, list[Row]]:
    """Return the median seconds of looking up one key after the other; the first only warms up.

    At least one lookup is measured, then as many of the keys as start within some seconds.
    """
    look_up(keys[0])
    spent: list[float] = []
    found: list[Row] = []
    for key in keys[1:]:
        start = time.perf_counter()
        found.append(look_up(key))
        spent.append(time.perf_counter() - start)
        if sum(spent) >= RUNS_SECONDS_MAX:
            break
    return statistics.median(spent), found
