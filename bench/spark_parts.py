"""Parts of the Spark benchmark: each runs alone in a process and returns one row.

Everything is measured warm unless its name says otherwise: the session is up, workers and kernels are loaded
and the same work was done once, a rebuild on a small log; the log is in the page cache.
"""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import doors
import spark_log
import spark_queries
import spark_watch
from doors import compiled, make_session, rebuild, rebuild_store
from harness import Row, key
from spark_log import Log, require

AGAIN = 5  # times after the first query: what a session has left to load shows in the difference
QUERIES = ["count", "read", "parquet"]
COLUMNS = "topic string, queue_id int, queue_offset bigint, tags string"
SCHEMAS = {
    "count": "topic string, tags string",
    "read": f"{COLUMNS}, keys array<string>, body binary",
    "lookup": f"{COLUMNS}, keys array<string>",
}
SCHEMAS["parquet"] = SCHEMAS["read"]


def make_log(log: Log) -> Row:
    """Write a log; return what live dispatch made of it."""
    log.make()
    return {"digest": spark_log.digest(log.root)}


def rebuild_alone(log: Log, warm: Log, digest: str, runs: int) -> Row:
    """Rebuild with the kernels and no Spark."""
    kernels = compiled()

    def once(which: Log) -> None:
        rebuild_store(which.root, which.settings, kernels=kernels)

    return {"rebuild_seconds": _rebuilds(once, log, warm, digest, runs)[0]}


def _rebuilds(
    once: Callable[[Log], Any], log: Log, warm: Log, digest: str, runs: int
) -> tuple[float, Any]:
    """Rebuild a log some times; return the median seconds and the last report.

    The result must be what live dispatch made, byte for byte.
    """
    spark_log.drop_derived(warm.root)
    once(warm)
    spent: list[float] = []
    for _ in range(runs):
        spark_log.drop_derived(log.root)
        start = time.perf_counter()
        made = once(log)
        spent.append(time.perf_counter() - start)
    require(spark_log.digest(log.root) == digest, "rebuilt files are not those of live dispatch")
    return statistics.median(spent), made


def series(
    logs: list[tuple[Log, str]],
    warm: Log,
    tasks: int,
    runs: int,
    seconds: float,
    one_core: bool = False,
) -> Row:
    """Rebuild and read logs one after the other in one session; per log: times, memory, bytes moved.

    With one task at a time Spark's JVM, its compiler and a worker still share all cores of the machine;
    `one_core` leaves one to all of them.
    """
    if one_core:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    # The status pages tell what went through the shuffle.
    conf = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
    spark = _session(tasks, conf)
    try:
        _require_own_package(spark)
        works = [_work_on(spark, log, warm, digest, runs, seconds) for log, digest in logs]
        return {"logs": works}
    finally:
        spark.stop()


def _require_own_package(spark: SparkSession) -> None:
    """Workers must have this process's package: `compare.py` has more than one on this machine."""

    def package(_: int) -> str:  # here, for workers do not know this module
        import orbitmq

        return str(orbitmq.__file__)

    found = spark.sparkContext.parallelize(range(2), 2).map(package).collect()
    require(set(found) == {package(0)}, f"workers have the package of {found}")


def _work_on(
    spark: SparkSession, log: Log, warm: Log, digest: str, runs: int, seconds: float
) -> Row:
    def once(which: Log) -> Any:
        return rebuild(spark, which.root, which.settings)

    shuffled = spark_watch.shuffle_bytes(spark)
    with spark_watch.WorkerMemory() as memory:
        rebuilt, report = _rebuilds(once, log, warm, digest, runs)
    require(report.records == log.count, f"{report.records} of {log.count} records rebuilt")
    # Tasks may hand data over in files of the job as well as through Spark's own shuffle.
    shuffled = (spark_watch.shuffle_bytes(spark) - shuffled) / runs
    row = {"rebuild_seconds": rebuilt, "stages": report.seconds, "rebuild_memory": memory.largest}
    moved = doors.field(report, "shuffle_bytes", "moved_bytes")
    row["moved_bytes_per_message"] = (shuffled + moved) / log.count
    spark_log.warm_pages(log.root)
    with spark_watch.WorkerMemory() as memory:
        row |= read(spark, log, ["count", "read"], runs, seconds)
    row["read_memory"] = memory.largest
    return row


def queries(log: Log, target: str, numbers: list[int], runs: int, seconds: float) -> Row:
    """Ask our source, by columns and by rows, and Parquet with what ours wrote, the same queries by turns.

    A turn that does not count warms up all sides, with all rows.
    """
    spark, place = _session("*", {}), Path(target)
    keys = [key(i) for i in numbers]
    files = place / "rows"
    spark_log.warm_pages(log.root)

    def parquet(_: str) -> DataFrame:
        return spark.read.parquet(str(files))

    sides = {
        "ours": _side(spark, log, place / "copy-ours"),
        "rows": _side(spark, log, place / "copy-rows", reader="rows"),
        "parquet": spark_queries.Side(
            parquet, parquet, place / "copy-parquet", lambda: spark_log.read_files(files)
        ),
    }
    look_up: dict[str, Callable[[str], Row]] = {
        "ours": lambda wanted: _find(spark, log, wanted),
        "rows": lambda wanted: _find(spark, log, wanted, reader="rows"),
        "parquet": lambda wanted: spark_queries.find(parquet("lookup"), wanted),
    }
    try:
        rows = spark_queries.measure(sides, QUERIES, runs, seconds)
        for name, row in rows.items():
            row["lookup_seconds"], row["found"] = spark_queries.lookups(look_up[name], keys)
    finally:
        spark.stop()
    return {name: check(row, log, numbers) for name, row in rows.items()}


def write(log: Log, target: str) -> Row:
    """Write the rows that Parquet's side reads."""
    spark = _session("*", {})
    try:
        spark_queries.write_parquet(ours(spark, log, "parquet"), Path(target) / "rows")
    finally:
        spark.stop()
    return {}


def first(log: Log, target: str, side: str) -> Row:
    """Start a session and ask it for the first time; a session for Parquet starts nothing of ours."""
    conf = {} if side == "ours" else {"spark.orbitmq.reader": "rows"}
    is_parquet, files = side == "parquet", Path(target) / "rows"
    spark_log.read_files(files if is_parquet else log.root / "commitlog")
    begun = time.perf_counter()
    spark = _session("*", conf)
    try:
        started = time.perf_counter()
        table = spark.read.parquet(str(files)) if is_parquet else ours(spark, log, "count")
        row: Row = {"counts": spark_queries.count_by_tag(table)}
        row["first_seconds"] = time.perf_counter() - started
        row["start_seconds"] = started - begun
        again, _ = spark_queries.timed(lambda: spark_queries.count_by_tag(table), AGAIN)
        row["again_seconds"] = again
    finally:
        spark.stop()
    return check(row, log, [])


def check(row: Row, log: Log, numbers: list[int], *, in_order: bool = True) -> Row:
    """Compare what a side found with what the log must have; return the times."""
    if "counts" in row:
        require(row.pop("counts") == log.counts, "counts by topic and tag")
    for name in ("sums", "parquet_sums"):
        if name in row:
            require(row.pop(name) == log.sums, f"{name} over all columns")
    for number, found in zip(numbers[1:], row.pop("found", []), strict=False):
        expected = log.place(number)
        # Kafka's rows were written by tasks side by side: offsets are right in sum, not one by one.
        if not in_order:
            found["queue_offset"] = expected["queue_offset"]
        require(found == expected, f"looked for {expected}, found {found}")
    return row


def read(spark: SparkSession, log: Log, asked: list[str], runs: int, seconds: float) -> Row:
    """Ask our source alone."""
    sides = {"ours": _side(spark, log, Path())}
    return spark_queries.measure(sides, asked, runs, seconds)["ours"]


def _side(spark: SparkSession, log: Log, target: Path, **options: str) -> spark_queries.Side:
    def table(query: str) -> DataFrame:
        return ours(spark, log, query, **options)

    files = log.root / "commitlog"
    return spark_queries.Side(table, table, target, lambda: spark_log.read_files(files))


def ours(spark: SparkSession, log: Log, query: str, **options: str) -> DataFrame:
    """Return the benchmark's table, read through our source, with the columns that the query needs."""
    body = "true" if query in ("read", "parquet") else "false"
    reader = spark.read.format("orbitmq").schema(SCHEMAS[query]).option("includeBody", body)
    rows = reader.options(**options).load(str(log.root))
    if "keys" not in rows.columns:
        return rows
    names = ["topic", "queue_id", "queue_offset", "tags", F.col("keys")[0].alias("key")]
    return rows.select(*names, *(["body"] if "body" in rows.columns else []))


def _find(spark: SparkSession, log: Log, wanted: str, **options: str) -> Row:
    rows = ours(spark, log, "lookup", keys=wanted, **options).collect()
    require(len(rows) == 1, f"{len(rows)} rows with key {wanted}")
    return spark_queries.place(rows[0])


def _session(cores: int | str, conf: dict[str, str]) -> SparkSession:
    settings = {"spark.driver.memory": "2g", **conf}
    return make_session(app="orbitmq-bench", master=f"local[{cores}]", conf=settings)


PARTS: dict[str, Callable[..., Row]] = {
    "make": make_log,
    "alone": rebuild_alone,
    "series": series,
    "queries": queries,
    "write": write,
    "first": first,
}
