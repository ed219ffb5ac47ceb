"""The queries that are asked of every side, over the same columns: ours, Parquet's and the Kafka connector's.

A table of the benchmark has the columns topic, queue_id, queue_offset, tags, key, body. This module runs
in two environments (the connector's has no OrbitMQ), so it imports pyspark and nothing else.
"""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

RUNS_SECONDS_MAX = 20.0

Row = dict[str, Any]
Table = Callable[[str], DataFrame]
"""Gives the table for a query: some sides must be told beforehand which columns it needs."""


def nothing() -> None:
    """Make nothing ready."""


class Side(NamedTuple):
    """Who is asked: its table, one for a warm-up (often a smaller one), and where it may write.

    `ready` has its files in memory again: a machine may take them out between two queries.
    """

    table: Table
    warm: Table
    target: Path
    ready: Callable[[], None] = nothing


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


def timed(action: Callable[[], Any], runs: int) -> tuple[float, Any]:
    """Return the median seconds of some runs, and the last result."""
    spent: list[float] = []
    for _ in range(runs):
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
    sides: dict[str, Side], queries: list[str], runs: int, seconds: float = 0
) -> dict[str, Row]:
    """Ask all sides the same queries by turns, each after a warm-up of every side.

    A session's JVM goes on compiling for minutes: who is asked last would find everything compiled. Queries
    that take less than all runs may, so many `seconds` together, are asked again.
    """
    rows: dict[str, Row] = {name: {} for name in sides}
    asked: dict[str, Callable[[DataFrame, Path], Any]] = {
        "count": lambda table, _: count_by_tag(table),
        "read": lambda table, _: sums(table),
        "parquet": write_parquet,
    }
    for query in (query for query in asked if query in queries):
        spent, results = _turns(sides, query, asked[query], runs, seconds)
        for name, row in rows.items():
            row[f"{query}_seconds"] = statistics.median(spent[name])
            row[f"{query}_all"] = spent[name]
            if query == "parquet":
                spark, target = sides[name].table(query).sparkSession, str(sides[name].target)
                row["parquet_sums"] = sums(spark.read.parquet(target))
            else:
                row[{"count": "counts", "read": "sums"}[query]] = results[name]
    return rows


def _turns(
    sides: dict[str, Side],
    query: str,
    ask: Callable[[DataFrame, Path], Any],
    runs: int,
    seconds: float,
) -> tuple[dict[str, list[float]], Row]:
    """Return the seconds of each side's runs, and its last result."""
    for side in sides.values():
        ask(side.warm(query), side.target)
    spent: dict[str, list[float]] = {name: [] for name in sides}
    results: Row = {}
    turn = 0
    while turn < runs or max(map(sum, spent.values())) < seconds:
        turn += 1
        for name, side in sides.items():
            if sum(spent[name]) >= RUNS_SECONDS_MAX:
                continue
            side.ready()
            start = time.perf_counter()
            results[name] = ask(side.table(query), side.target)
            spent[name].append(time.perf_counter() - start)
    return spent, results


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
