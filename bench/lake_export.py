"""`orbitmq spark export` against Spark writing the same rows to Parquet.

All that a log holds as Parquet files by topic and day, with bodies: a daily job. The other side
reads the log by our own source, which is the fastest that Spark has of it, and writes with Spark's own writer
(`partitionBy("topic", "day")`). Both run in the same warm session, in turns; the median of each counts. What
was written is counted and summed by DuckDB, so a fast wrong answer fails.
"""

import os
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, to_date

import spark_log
from harness import Line, Row
from orbitmq.spark import export
from orbitmq.spark.start.session import make_session
from orbitmq.units import KiB
from spark_log import Log

GOAL = 1.5
LOG_BYTES = 1_000_000_000
RUNS = 3
FORMATS = ("parquet", "delta", "iceberg")
SMOKE_FILES = (("segment_bytes", 512 * KiB), ("index_slots", 1_250), ("index_items", 1_000))


class Sides:
    """Both ways to write a log's rows, and a check of what they wrote."""

    def __init__(self, spark: SparkSession, log: Log, directory: Path) -> None:
        self._spark, self._log, self._directory = spark, log, directory

    def ours(self, format_: str) -> Path:
        target = self._fresh(format_)
        done = export(
            self._spark, target, store=self._log.root, settings=self._log.settings, format=format_
        )
        spark_log.require(done.rows == self._log.count, f"{done.rows} rows exported")
        return target

    def sparks(self) -> Path:
        target = self._fresh("spark")
        config = self._directory / "broker.conf"
        config.write_text("".join(f"{k}={v}\n" for k, v in self._log.settings.items()))
        rows = self._spark.read.format("orbitmq").option("config", str(config))
        dated = rows.load(str(self._log.root)).withColumn("day", to_date(col("store_time")))
        dated.drop("error").write.partitionBy("topic", "day").parquet(str(target))
        return target

    def require_right(self, target: Path) -> int:
        """Check what lies there; return its bytes."""
        question = (
            "select count(*), count(distinct log_offset), sum(octet_length(body)) "
            f"from read_parquet('{target}/**/*.parquet')"
        )
        with duckdb.connect() as connection:
            found = connection.execute(question).fetchone()
        wanted = (self._log.count, self._log.count, self._log.count * self._log.body_bytes)
        spark_log.require(found == wanted, f"{target.name}: {found} instead of {wanted}")
        return sum(path.stat().st_size for path in target.rglob("*.parquet"))

    def _fresh(self, name: str) -> Path:
        target = self._directory / name
        shutil.rmtree(target, ignore_errors=True)
        return target


def seconds(work: Callable[[], Path]) -> tuple[float, Path]:
    start = time.perf_counter()
    target = work()
    return time.perf_counter() - start, target


def measure(sides: Sides, runs: int) -> dict[str, Row]:
    ways: dict[str, Callable[[], Path]] = {"spark": sides.sparks}
    ways |= {name: (lambda name=name: sides.ours(name)) for name in FORMATS}
    times: dict[str, list[float]] = {name: [] for name in ways}
    written: dict[str, int] = {}
    for _ in range(runs):
        for name, way in ways.items():  # in turns: what slows the machine down slows all
            took, target = seconds(way)
            times[name].append(took)
            written[name] = sides.require_right(target)
            shutil.rmtree(target)
    return {
        name: {"seconds": statistics.median(times[name]), "bytes": written[name]} for name in ways
    }


def lines(size: str, directory: Path) -> list[Line]:
    """Measure both ways and compare them."""
    smoke = size == "smoke"
    files, count = SMOKE_FILES if smoke else (), (4_000_000 if smoke else LOG_BYTES)
    count //= spark_log.RECORD_BYTES
    log = Log(directory / "log", count, files=files)
    warm = Log(directory / "warm", min(count // 20, 20_000), files=files)
    found = _run(log, warm, directory, 1 if smoke else RUNS)
    megabytes = log.log_bytes / 1e6
    theirs = megabytes / found["spark"]["seconds"]
    what = f"export of {megabytes / 1e3:.2g} GB"
    return [
        Line(
            f"{what}, {name}: Spark's own writer",
            megabytes / found[name]["seconds"],
            theirs,
            "MB/s",
            GOAL,
        )
        for name in FORMATS
    ]


def _run(log: Log, warm: Log, directory: Path, runs: int) -> dict[str, Row]:
    for one in (warm, log):
        one.make()
    cores = os.cpu_count() or 1
    spark = make_session(app="orbitmq-bench", master=f"local[{cores}]", quiet=True)
    try:
        measure(Sides(spark, warm, directory), 1)
        spark_log.warm_pages(log.root)
        return measure(Sides(spark, log, directory), runs)
    finally:
        spark.stop()
