"""A log and a lake as one table, in which each message is once, whichever holds it.

  look    the driver: where the log begins, then what the lake holds (`lake`); by keys and ids tasks look into
          the lake's files (`lake_search`)
  log     the table of the format `orbitmq`, without what the lake holds (option `without`)
  lake    the Parquet files that are left, read by Spark
  view    both together; what is wanted is asked of each side, in the form that costs least

The order of the first two matters: what is exported and deleted between them is in the lake. What is
deleted later is missed by nobody: the log's table sees that it begins later than it did, and fails.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (Spark's own habit)

from orbitmq.errors import PipelineError
from orbitmq.log_read import plan_log
from orbitmq.spark.jobs.export.covered import Key
from orbitmq.spark.jobs.export.lakes.lake import lake_at
from orbitmq.spark.jobs.export.log_source import require_same_log
from orbitmq.spark.jobs.export.names import name_of
from orbitmq.spark.jobs.query.figures import COUNTED, QueryFigures, SideFigures, input_bytes
from orbitmq.spark.jobs.query.lake import Lake, read_lake
from orbitmq.spark.jobs.query.lake_search import LakeHits, find, removed
from orbitmq.spark.jobs.query.lake_source import PLAN, LakePlan, LakeSource, PartPlan
from orbitmq.spark.jobs.query.options import QueryOptions
from orbitmq.spark.jobs.query.sql import require_pattern, run_sql
from orbitmq.spark.remote.address import Address
from orbitmq.spark.remote.names import store_names
from orbitmq.spark.source.cluster_table import RETRY_S
from orbitmq.spark.source.metrics import ReadMetrics, read_metrics
from orbitmq.spark.source.options import ReadOptions
from orbitmq.spark.source.schemas import MESSAGE_SCHEMA
from orbitmq.spark.source.sql92_column import sql92
from orbitmq.spark.start.package import is_local
from orbitmq.spark.streams.cluster import ClusterView

HITS_MAX: Final = 1_000
"""For more rows than these it is not worth naming each to Parquet's reader."""
_GLOB: Final = re.compile(r"[\\{}\[\]*?]")
"""What Spark takes for a pattern in a path."""
_COUNTED: Final[Mapping[str, str]] = {"log": "a log", "queues": "queues"}
_OTHER_KIND: Final = (
    "A store and a cluster count differently: give what the lake was exported from."
)


def query(spark: SparkSession, store: str | Path = "", **given: Any) -> DataFrame:
    """Return messages of a store or a cluster (`namesrv`), and of a lake (`lake`), as one message table.

    Further arguments select, and all of them must hold: `topics`, `keys`, `ids` (of either kind), `tags`
    (lists), `sql92` (over properties), `body` (a regular expression of Java, found anywhere in the body read
    as UTF-8), `since` and `until` (store time, as "now-1h"). `sql` is a query over the view `messages`, which
    is made of the selected ones; its answer comes back. `config` is a broker.conf, `bad_records` is "fail" or
    "skip", `catalog` the database of Iceberg tables at s3://.

    Keys and ids are looked up in the lake at once, all else happens when the table is used.
    ConfigError: an argument that cannot work. PipelineError: the lake is not of this store.
    """
    return Query(spark, QueryOptions.of(store=store, **given)).frame()


class Query:
    """One query over both sides. Not thread-safe."""

    def __init__(self, spark: SparkSession, options: QueryOptions, metrics_path: str = "") -> None:
        self._spark, self._options, self._metrics_path = spark, options, metrics_path
        self._lake: Lake | None = None
        self._hits = LakeHits([], None)
        self._log_bytes: int | None = None
        self._input_before: int | None = None

    def frame(self) -> DataFrame:
        """Look at both sides; return the table."""
        options = self._options
        require_pattern(self._spark, options.body)
        if options.lake is None:
            return self._finished([self._log_side("")])
        firsts = self._firsts()
        self._lake = lake = read_lake(options.lake, options.catalog)
        if options.reads is not None:
            self._require_same(lake, options.reads)
        self._hits = find(self._spark, lake.root, lake.files, options.wanted)
        self._input_before = input_bytes(self._spark.sparkContext)
        sides = [self._lake_side()] if self._hits.parts else []
        if options.reads is not None:
            sides.append(self._log_side(lake.held(firsts).to_text()))
        return self._finished(sides)

    def figures(self) -> QueryFigures:
        """Return what was read so far."""
        return QueryFigures(log=self._log_figures(), lake=self._lake_figures())

    def require_lake(self) -> None:
        """Raise StaleQueryError where files of the lake are gone that were to be read."""
        root = self._options.lake
        if root is None:
            return
        lake = lake_at(root)
        for part in self._hits.parts:
            if not lake.has_file(name_of(root, part.path)):
                raise removed(part.path)

    def _finished(self, sides: list[DataFrame]) -> DataFrame:
        if not sides:
            sides = [self._spark.createDataFrame([], MESSAGE_SCHEMA)]
        joined = reduce(DataFrame.unionByName, sides)
        return run_sql(self._spark, self._options.sql, joined) if self._options.sql else joined

    # --- the log, or the brokers ---

    def _firsts(self) -> dict[Key, int]:
        """Return where the log, or each queue, begins."""
        reads = self._options.reads
        if reads is None:
            return {}
        if reads.path:
            with store_names(reads.path, reads.settings) as names:
                return {(): plan_log(names.root, names.settings).start}
        view = ClusterView(reads.namesrv, reads.topics or ("*",), retry_s=RETRY_S)
        try:
            spans = view.look_at_all().spans
        finally:
            view.close()
        return {(q.topic, q.broker_name, q.queue_id): span.start for q, span in spans.items()}

    def _require_same(self, lake: Lake, reads: ReadOptions) -> None:
        kind = "log" if reads.path else "queues"
        if lake.source != kind:
            what = f"{lake.root} holds messages by the offsets of {_COUNTED[lake.source]}"
            raise PipelineError(what, _OTHER_KIND)
        if reads.path:
            with store_names(reads.path, reads.settings) as names:
                plan = plan_log(names.root, names.settings)
                require_same_log(names.shown, plan, lake.covered, lake.anchor)

    def _log_side(self, without: str) -> DataFrame:
        reads = self._options.reads
        assert reads is not None
        more = {"without": without, "metricsPath": self._metrics_path}
        given = self._options.reading(**{name: text for name, text in more.items() if text})
        if reads.path:
            with store_names(reads.path, reads.settings) as names:
                self._log_bytes = plan_log(names.root, names.settings).log_bytes
        rows = self._spark.read.format("orbitmq").options(**given).load()
        return rows.where(self._has_body()) if self._options.body else rows

    def _log_figures(self) -> SideFigures | None:
        if self._options.reads is None:
            return None
        assert self._metrics_path, "figures are of a query that was given a directory for them"
        found = read_metrics(self._metrics_path)
        read_bytes: int | None = found.log_bytes + found.lookup_bytes
        if not found.tasks and not self._is_local:
            read_bytes = None  # executors that do not share the directory have left nothing in it
        return SideFigures(
            found_by=tuple(dict.fromkeys(found.found_by)),
            read_bytes=read_bytes,
            of_bytes=self._log_bytes,
        )

    # --- the lake ---

    def _lake_side(self) -> DataFrame:
        if self._asks_tasks:
            rows = self._by_tasks()
        else:
            rows = self._by_spark([part.path for part in self._hits.parts])
        for condition in self._conditions():
            rows = rows.where(condition)
        return rows

    def _few_hits(self) -> bool:
        offsets = self._hits.log_offsets
        return offsets is not None and len(offsets) <= HITS_MAX

    def _by_spark(self, paths: Sequence[str]) -> DataFrame:
        reader = self._spark.read.schema(MESSAGE_SCHEMA)
        if self._metrics_path:
            reader = reader.options(**COUNTED)
        # `error` is in no file, so it is null: a message that a lake holds is a good one.
        return reader.parquet(*(_GLOB.sub(r"\\\g<0>", path) for path in paths))

    @property
    def _asks_tasks(self) -> bool:
        return isinstance(self._options.lake, Address) or self._few_hits()

    @property
    def _is_local(self) -> bool:
        return is_local(self._spark.sparkContext.master or "")

    def _by_tasks(self) -> DataFrame:
        """Read the row groups with hits, or files that Spark cannot reach."""
        root, hits = self._options.lake, self._hits
        plan = LakePlan(
            root.text if isinstance(root, Address) else str(root),
            [PartPlan(part.path, hits.groups.get(part.path)) for part in hits.parts],
            hits.log_offsets if self._few_hits() else None,
            self._lake_metrics,
        )
        self._spark.dataSource.register(LakeSource)
        return self._spark.read.format(LakeSource.name()).option(PLAN, plan.text()).load()

    @property
    def _lake_metrics(self) -> str:
        return f"{self._metrics_path}/lake" if self._metrics_path else ""

    def _conditions(self) -> list[Column]:
        """Return what selects on this side; topics are chosen by file."""
        wanted, offsets = self._options.wanted, self._hits.log_offsets
        found: list[Column] = []
        if offsets is not None and self._few_hits():
            found.append(F.col("log_offset").isin(offsets))
        if wanted.keys:
            found.append(F.arrays_overlap("keys", F.array(*map(F.lit, wanted.keys))))
        if wanted.ids:
            words = sorted(wanted.index_words)
            found.append(F.col("message_id").isin(words) | F.col("offset_id").isin(words))
        if wanted.tags:
            found.append(F.col("tags").isin(list(wanted.tags)))
        if wanted.start_ms is not None:
            found.append(F.col("store_time") >= _moment(wanted.start_ms))
        if wanted.end_ms is not None:
            found.append(F.col("store_time") < _moment(wanted.end_ms))
        if wanted.sql92:
            found.append(sql92(wanted.sql92))
        if self._options.body:
            found.append(self._has_body())
        return found

    def _has_body(self) -> Column:
        # A cast leaves bytes as they are; those that are no UTF-8 are U+FFFD for the expression.
        return F.col("body").cast("string").rlike(self._options.body)

    def _lake_figures(self) -> SideFigures | None:
        lake, hits = self._lake, self._hits
        if lake is None:
            return None
        wanted = self._options.wanted
        narrowed = wanted.topics or wanted.start_ms is not None or wanted.end_ms is not None
        means = {"manifests": narrowed, "Parquet statistics": hits.log_offsets is not None}
        return SideFigures(
            found_by=tuple(name for name, used in means.items() if used),
            read_bytes=self._lake_bytes(),
            of_bytes=lake.bytes,
            files=len(hits.parts),
            of_files=len(lake.files),
        )

    def _lake_bytes(self) -> int | None:
        """Return how much was read of files, by Spark and by tasks of ours; None: that is not known."""
        now, before = input_bytes(self._spark.sparkContext), self._input_before
        by_tasks = read_metrics(self._lake_metrics) if self._lake_metrics else ReadMetrics()
        unseen = self._asks_tasks and not by_tasks.tasks and not self._is_local
        if now is None or before is None or unseen:
            return None
        return now - before + self._hits.read_bytes + by_tasks.fetched_bytes


def _moment(milliseconds: int) -> Column:
    return F.timestamp_millis(F.lit(milliseconds))
