"""`orbitmq spark query` by key against a full scan: which share of the bytes is read.

Somebody asks where one order went, in a log of some gigabytes and in the lake beside it. Bytes are counted as
the command counts them: records, index files and queues of the log, what tasks get from Parquet files. The
other side is a query by body, which has to read everything. Bytes are the same on every machine.
"""

import os
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import harness
import spark_log
from harness import Line
from orbitmq.spark import export
from orbitmq.spark.jobs.query.figures import QueryFigures, SideFigures
from orbitmq.spark.jobs.query.job import Query
from orbitmq.spark.jobs.query.options import QueryOptions
from orbitmq.spark.start.session import make_session
from orbitmq.units import KiB
from spark_log import QUEUES, Log

GOAL_PERCENT = 2.0
LOG_BYTES = 4_000_000_000
SMOKE_BYTES = 4_000_000
SMOKE_FILES = (("segment_bytes", 512 * KiB), ("index_slots", 1_250), ("index_items", 1_000))


class Asked:
    """Queries over one log, or over its lake, whose answers are checked."""

    def __init__(self, spark: SparkSession, log: Log, directory: Path) -> None:
        self._spark, self._log = spark, log
        self._config = directory / "broker.conf"
        self._config.write_text("".join(f"{k}={v}\n" for k, v in log.settings.items()))
        self._lake = directory / "lake"

    def export(self) -> None:
        export(self._spark, self._lake, store=self._log.root, settings=self._log.settings)

    def log(self, **given: object) -> SideFigures:
        found = self._ask({"store": self._log.root, "config": self._config}, given).log
        assert found is not None
        return found

    def lake(self, **given: object) -> SideFigures:
        found = self._ask({"lake": self._lake}, given).lake
        assert found is not None
        return found

    def _ask(self, where: dict[str, object], given: dict[str, object]) -> QueryFigures:
        number = self._log.count // 3
        with tempfile.TemporaryDirectory() as figures:
            options = QueryOptions.of(**where, **given)  # type: ignore[arg-type]
            asked = Query(self._spark, options, figures)
            rows = asked.frame().select("topic", "queue_id", "queue_offset", "body").collect()
            place = self._log.place(number)
            found = [(row.topic, row.queue_id, row.queue_offset) for row in rows]
            wanted = (place["topic"], place["queue_id"], place["queue_offset"])
            if "keys" in given:
                spark_log.require(found == [wanted], f"{found} instead of {wanted}")
            else:
                spark_log.require(not found, f"{len(found)} messages instead of none")
            return asked.figures()


def lines(size: str, directory: Path) -> list[Line]:
    """Measure what a key costs, and what everything does."""
    smoke = size == "smoke"
    count = (SMOKE_BYTES if smoke else LOG_BYTES) // spark_log.RECORD_BYTES
    log = Log(directory / "log", count, files=SMOKE_FILES if smoke else ())
    log.make()
    cores = os.cpu_count() or 1
    spark = make_session(app="orbitmq-bench", master=f"local[{cores}]", quiet=True)
    try:
        return _measured(Asked(spark, log, directory), log)
    finally:
        spark.stop()


def _measured(asked: Asked, log: Log) -> list[Line]:
    key = harness.key(log.count // 3)
    topic = harness.topic(log.count // 3, QUEUES)
    everything = {"body": "no such body"}
    asked.export()
    whole, whole_lake = asked.log(**everything), asked.lake(**everything)
    what = f"{log.log_bytes / 1e9:.2g} GB"
    return [
        _line(f"search by key, log of {what}", asked.log(keys=[key]), whole),
        _line(
            f"search by key and topic, log of {what}", asked.log(keys=[key], topics=[topic]), whole
        ),
        _line(f"search by key, lake of {what}", asked.lake(keys=[key]), whole_lake),
    ]


def _line(what: str, found: SideFigures, whole: SideFigures) -> Line:
    spark_log.require(bool(found.read_bytes and whole.read_bytes), f"{what}: nothing was counted")
    percent = 100 * (found.read_bytes or 0) / (whole.read_bytes or 1)
    return Line(
        f"{what}: bytes read",
        percent,
        100.0,
        "% of a scan",
        GOAL_PERCENT,
        more_is_better=False,
        goal_unit="%",
    )
