"""What a log says about its messages and their readers, counted by Spark.

  look    the driver: where the log or the queues begin and end, where groups stand, what they want
  scan    tasks read records once: they count traffic, sizes, latency, lag, retries and dead letters, and hand
          ids, keys and trace records on, by a hash (`tally`, `keyed`, `traces`)
  join    tasks see all copies of an id or key, and its trace records: duplicates, ways (`copies`, `traces`)

Nothing is changed. No message is a row of Spark; what it moves are pieces of Arrow columns.
"""

import time
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from orbitmq.spark.context import Spark, context_of
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.jobs.audit.options import AuditOptions
from orbitmq.spark.jobs.audit.report import Asked, AuditReport
from orbitmq.spark.jobs.audit.scan import AuditJoin, AuditScan, Found
from orbitmq.spark.jobs.audit.sources import Look, look
from orbitmq.spark.jobs.audit.tables import report_of
from orbitmq.spark.jobs.export.job import From
from orbitmq.spark.progress import JobProgress
from orbitmq.units import MiB

BUCKET_BYTES: Final = 256 * MiB
"""So much of the log has its ids and keys in one bucket, about a fifth of that in memory."""


def audit(
    spark: Spark,
    *,
    store: str | Path = "",
    namesrv: str = "",
    settings: Mapping[str, str] | None = None,
    progress: JobProgress | None = None,
    **given: Any,
) -> AuditReport:
    """Return what the log of a store directory, or a cluster, says about its messages and their readers.

    `store` is a directory, or `namesrv` names a cluster. Further arguments: `topics` and `groups` (all),
    `since` and `until` (times as "now-1d": when messages were stored), `subscriptions` (what groups want,
    where nobody tells: {"group:Orders": "TagA || TagB", "other:Orders": "sql92:price > 3"}), `trace_topic`,
    `bad_records` ("fail", "skip"), `top` (so many duplicates are named).

    ConfigError: an argument that cannot work. NotAStoreError, CorruptRecordError: the log is damaged.
    """
    options = AuditOptions.of(**given)
    source = From.of(store, namesrv, settings)
    return run_audit(spark, source, options, progress)


def run_audit(
    spark: Spark, source: From, options: AuditOptions, progress: JobProgress | None = None
) -> AuditReport:
    """Do what checked options ask for."""
    context = context_of(spark)
    with (
        nullcontext(progress) if progress is not None else JobProgress(spark) as shown,
        clear_errors("audit"),
    ):
        made_ms = time.time_ns() // 1_000_000
        looked = look(source, options, context.defaultParallelism)
        found = _run(context, looked, options, shown)
    topics, groups = list(options.topics), list(options.groups)
    asked = Asked(looked.name, made_ms, options.since_ms, options.until_ms, topics, groups)
    return report_of(asked, looked, found, options.top)


def _run(context: Any, looked: Look, options: AuditOptions, progress: JobProgress) -> Found:
    whole = Found()
    if not looked.works:
        return whole
    buckets = max(context.defaultParallelism, looked.bytes // BUCKET_BYTES)
    scan = AuditScan.of(looked, options, buckets, progress.stage("audit", looked.bytes))
    join = AuditJoin(frozenset(options.groups), options.top)
    handed = context.parallelize(looked.works, len(looked.works)).mapPartitionsWithIndex(scan)
    # Keys are the numbers of partitions already.
    for found in handed.partitionBy(buckets + 1, int).mapPartitionsWithIndex(join).collect():
        whole.merge(found, options.top)
    return whole
