"""The reader of columns against the plain source: the same rows, what plans say, clean ends."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import golden_stores
from log_builder import LogBuilder, write_log
from orbitmq.errors import (
    ConfigError,
    CorruptRecordError,
    JobFailedError,
    NotAStoreError,
    SparkSetupError,
)
from orbitmq.message import AppendRequest
from orbitmq.spark.columns import install
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.units import MiB

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

READERS = ("auto", "rows")
WHOLE = os.environ.get("ORBITMQ_COLUMN_STORES") == "whole"
"""Compare over the longest store, and damaged ones from end to end: a thousand tasks for each reader."""
STORE = "mixed" if WHOLE else "propcrc"
RECORDS = golden_stores.rows(STORE, "record")
TOPIC = next(record["topic"] for record in RECORDS if record["topic"].endswith("Aa"))
MIDDLE = RECORDS[len(RECORDS) // 2]
KEYED = next(record for record in RECORDS if record["properties"].get("KEYS", "").strip())
OPTIONS: list[dict[str, object]] = [
    {"topics": TOPIC},
    {"tags": "Aa,BB"},
    {"keys": KEYED["properties"]["KEYS"].split()[0]},
    {"ids": KEYED["offsetMsgId"]},
    {"sql92": "TAGS IN ('Aa', 'BB') AND KEYS IS NOT NULL"},
    {"startTime": MIDDLE["storeTimestamp"]},
    {"endTime": MIDDLE["storeTimestamp"]},
    {"startTime": "now-1h"},
    {"startOffset": MIDDLE["phyOffset"], "endOffset": MIDDLE["phyOffset"] + 70_000},
    {"queueId": 1, "startQueueOffset": 2, "endQueueOffset": 7},
    {"includeBody": "false"},
    {"includeBody": "false", "bodyAs": "text"},
    {"bodyAs": "text"},
    {"bodyAs": "json", "rowPerKey": "true"},
    {"decompress": "false"},
    {"checkCrc": "true", "includeBody": "false"},
    {"splitBytes": 20_000},
    {"rowPerKey": "true"},
    {"pushdown": "false"},
    {"config": golden_stores.GOLDEN / f"{STORE}.conf"},
]
FILTERS = [
    f"topic = '{TOPIC}' and queue_id in (1, 2)",
    f"topic <> '{TOPIC}' and tags is not null",
    "tags like 'Aa%' and not (queue_offset > 5)",
    "tags <=> 'Aa' or size > 500",
    "store_time >= timestamp'2026-11-15 00:00:00' and log_offset between 65536 and 700000",
    "store_time < timestamp'9999-12-31 00:00:00' and array_size(keys) > 0",
    "message_id is null",
    "hex(body) like '%0%' and sys_flag = 0",
]
STORES = golden_stores.STORES
DAMAGED_LOGS = [
    variant
    for variant in golden_stores.torn_variants()
    if variant.startswith(("tail-", "flip-", "bad-", "blank-", "log-"))
]
"""All variants are compared without Spark, from end to end, in test_column_pool.py."""
WHOLE_VARIANT = "flip-early"
"""The damaged log that is read from end to end in every run."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack(STORE, tmp_path_factory.mktemp("columns"))


def _load(
    spark: SparkSession, path: Path | str, reader: str = "auto", schema: str = "", **options: object
) -> DataFrame:
    source = spark.read.format("orbitmq").option("reader", reader)
    for name, value in options.items():
        source = source.option(name, str(value))
    return (source.schema(schema) if schema else source).load(str(path))


def _plan(frame: DataFrame, mode: str = "simple") -> str:
    modes = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode
    text: str = frame._jdf.queryExecution().explainString(modes.fromString(mode))
    return text


@dataclass(frozen=True)
class Case:
    """A read of a store, of which both readers must show the same rows."""

    path: Path
    where: str = "true"
    options: dict[str, object] = field(default_factory=dict)


def _same(spark: SparkSession, cases: dict[str, Case]) -> dict[str, list[dict[str, Any]]]:
    """Read all cases with both readers, compare, return the rows of each; one query for each reader."""
    columns, rows = (_together(spark, cases, reader) for reader in READERS)
    assert _plan(columns).count("(columns)") == len(cases)
    assert _plan(rows).count("(Python)") == len(cases)
    found, expected = _by_case(columns, cases), _by_case(rows, cases)
    for name in cases:
        assert found[name] == expected[name], name
    return found


def _together(spark: SparkSession, cases: dict[str, Case], reader: str) -> DataFrame:
    frames = (
        _load(spark, case.path, reader, **case.options)
        .where(case.where)
        .withColumn("case", F.lit(name))
        for name, case in cases.items()
    )
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def _by_case(frame: DataFrame, cases: dict[str, Case]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in cases}
    for row in frame.collect():
        found[row["case"]].append(row.asDict())
    for rows in found.values():
        rows.sort(key=lambda row: (row["log_offset"], row.get("key") or ""))
    return found


@pytest.mark.feature("P1", "P17")
def test_both_readers_show_stores_alike_damaged_ones_too(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    golden = {name: Case(golden_stores.unpack(name, tmp_path / name)) for name in STORES}
    damaged = {variant: _damaged(variant, tmp_path) for variant in DAMAGED_LOGS}

    found = _same(interpreted, golden | damaged)

    for name in golden:
        assert len(found[name]) == len(golden_stores.rows(name, "record"))
    assert any(row["error"] for variant in damaged for row in found[variant])


def _damaged(variant: str, directory: Path) -> Case:
    root = golden_stores.unpack("crashed", directory / variant)
    before = _segments(root)
    golden_stores.damage(root, variant)
    options: dict[str, object] = {"badRecords": "keep"}
    if not (WHOLE or variant == WHOLE_VARIANT):
        options |= _around(before, _segments(root))
    return Case(root, options=options)


def _segments(root: Path) -> dict[int, bytes]:
    return {int(file.name): file.read_bytes() for file in (root / "commitlog").iterdir()}


def _around(before: dict[int, bytes], after: dict[int, bytes]) -> dict[str, object]:
    """Return the stretch from a segment before the damage to one after it: each segment is a task."""
    length = len(next(iter(before.values())))
    hurt = [
        start for start in before.keys() | after.keys() if before.get(start) != after.get(start)
    ]
    return {"startOffset": max(min(hurt) - length, 0), "endOffset": max(hurt) + 2 * length}


@pytest.mark.feature("P3.options", "P17")
def test_both_readers_know_every_option(interpreted: SparkSession, store: Path) -> None:
    found = _same(interpreted, {str(options): Case(store, options=options) for options in OPTIONS})

    assert [name for name, rows in found.items() if not rows] == [str({"startTime": "now-1h"})]


@pytest.mark.feature("P4", "P17")
def test_both_readers_filter_alike(spark: SparkSession, store: Path) -> None:
    found = _same(spark, {where: Case(store, where) for where in FILTERS})

    assert any(found.values())


@pytest.mark.feature("P17")
def test_a_plan_shows_the_columns_and_filters_that_python_was_given(
    spark: SparkSession, store: Path
) -> None:
    chosen = _load(spark, store).where("queue_id > 0").select("topic", "tags")
    few = _load(spark, store).select("topic").limit(2)

    plan, formatted = _plan(chosen), _plan(chosen, "formatted")

    assert "GreaterThan(queue_id,0)" in plan
    scan = next(line for line in plan.splitlines() if "BatchScan orbitmq" in line)
    assert "topic#" in scan
    assert "tags#" in scan
    assert "queue_id#" not in scan
    assert "body#" not in scan
    assert "ReadSchema: struct<topic:string,tags:string>" in formatted
    assert "Filter" not in plan.replace("PushedFilters", "").replace("RuntimeFilters", "")
    assert "Limit: 2" in _plan(few)
    assert len(few.collect()) == 2


FIGURES = ["count(*)", "count(tags)", "min(size)", "max(store_time)"]


@pytest.mark.feature("P17")
def test_groups_are_counted_by_python_where_that_gives_few_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Some segments, so some tasks with partial results, and a row of a bad place.
    damaged = _damaged(next(one for one in DAMAGED_LOGS if one.startswith("bad-")), tmp_path)

    def counted(reader: str, where: str, by: list[str], *figures: str) -> DataFrame:
        frame = _load(spark, damaged.path, reader, rowPerKey="true", **damaged.options)
        return frame.where(where).groupBy(*by).agg(*(F.expr(figure) for figure in figures))

    def rows(frame: DataFrame) -> list[Any]:
        return sorted(map(repr, frame.collect()))

    pushed = ("queue_id >= 1", ["topic", "tags"], *FIGURES)
    whole = ("true", ["topic", "tags", "queue_id"], *FIGURES)
    for asked in (pushed, whole):
        assert rows(counted("auto", *asked)) == rows(counted("rows", *asked))
    assert "Groups: [topic, tags, queue_id, count(*)," in _plan(counted("auto", *whole))
    assert "PushedAggregates: [topic, tags, queue_id" in _plan(counted("auto", *whole), "formatted")
    for left in (
        ("true", ["message_id"], "count(*)"),  # as many groups as rows
        ("hex(message_id) > ''", ["topic"], "count(*)"),  # Spark has a filter to do before
        ("true", ["topic"], "count(distinct tags)"),
        ("true", ["topic"], "sum(size)"),
        ("true", ["upper(topic)"], "count(*)"),
        ("true", ["topic"], "max(size + 1)"),
    ):
        by = [F.expr(text) for text in left[1]]
        assert "Groups: " not in _plan(counted("auto", left[0], by, *left[2:])), left


@pytest.mark.feature("P17")
def test_a_count_has_so_many_tasks_for_each_core(spark: SparkSession, tmp_path: Path) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    root, metrics = tmp_path / "store", tmp_path / "metrics"
    with MessageStore.open(StoreConfig(root=root), background=False) as store:
        for _ in range(16):
            store.append_many([AppendRequest("Orders", 0, bytes(1 * MiB))] * 20)
    counted = _load(spark, root, metricsPath=metrics).groupBy("topic").count()

    assert [tuple(row) for row in counted.collect()] == [("Orders", 320)]
    assert (
        read_metrics(metrics).tasks == 4
    )  # of 80 MiB; five, if nobody had said how many cores there are


@pytest.mark.feature("P17")
def test_a_count_reads_no_column_and_no_body(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    counted = _load(spark, store, metricsPath=tmp_path / "counted")
    whole = _load(spark, store, metricsPath=tmp_path / "whole")

    assert counted.count() == len(whole.collect()) == len(RECORDS)

    read = {name: read_metrics(tmp_path / name) for name in ("counted", "whole")}
    assert read["counted"].rows == read["whole"].rows
    assert 0 < read["counted"].log_bytes < read["whole"].log_bytes


@pytest.mark.feature("P17")
def test_a_join_reads_two_tables_in_one_task(spark: SparkSession, store: Path) -> None:
    one = _load(spark, store, topics=TOPIC).select("log_offset")
    other = _load(spark, store, topics=TOPIC).selectExpr("log_offset as other")

    assert one.crossJoin(other).count() == one.count() ** 2
    assert one.join(other, one["log_offset"] == other["other"]).count() == one.count()


@pytest.mark.feature("P17")
def test_the_planner_knows_how_much_there_is_to_read(spark: SparkSession, store: Path) -> None:
    plan = _load(spark, store).select("topic")._jdf.queryExecution().optimizedPlan()

    size = int(plan.stats().sizeInBytes())

    assert size <= sum(file.stat().st_size for file in (store / "commitlog").iterdir())


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    ("options", "schema", "kind", "text"),
    [
        ({"topic": "a"}, "", ConfigError, "unknown option; did you mean topics?"),
        ({"reader": "fast"}, "", ConfigError, "must be auto or rows"),
        ({"splitBytes": "few"}, "", ConfigError, "must be a number of bytes"),
        ({}, "topic string, tag string", ConfigError, "no such column; there are topic, queue_id"),
    ],
)
def test_what_is_wrong_is_one_sentence_whoever_reads(
    spark: SparkSession,
    store: Path,
    reader: str,
    options: dict[str, object],
    schema: str,
    kind: type[Exception],
    text: str,
) -> None:
    given = {"reader": reader, **options}
    with pytest.raises(kind) as caught, clear_errors("read"):
        _load(spark, store, schema=schema, **given).select("topic").collect()  # type: ignore[arg-type]

    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.feature("P17")
def test_a_damaged_body_matters_to_who_reads_bodies(spark: SparkSession, tmp_path: Path) -> None:
    builder = LogBuilder()
    for _ in range(3):
        builder.append()
    builder.flip(builder.records[1].start + 90)
    root = write_log(builder, tmp_path / "bad")

    assert _load(spark, root).select("topic").count() == 3
    with pytest.raises(CorruptRecordError, match="does not match its checksum"), clear_errors("r"):
        _load(spark, root).select("body").collect()


@contextmanager
def _setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name, None)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(name)
        else:
            spark.conf.set(name, before)


def test_a_setting_chooses_rows(spark: SparkSession, store: Path) -> None:
    with _setting(spark, install.SETTING, "rows"):
        frame = spark.read.format("orbitmq").load(str(store))

        assert "(Python)" in _plan(frame)
        assert install.install(spark) == "spark.orbitmq.reader is rows"
        assert "(Python)" in _plan(spark.read.format("orbitmq").load(str(store)))
    assert install.install(spark) == ""
    assert "(columns)" in _plan(spark.read.format("orbitmq").load(str(store)))


def test_another_spark_reads_rows(
    spark: SparkSession, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "SPARK", "9.9")

    assert "made for Spark 9.9" in install.install(spark)
    assert _load(spark, store).count() == len(RECORDS)
    assert "(Python)" in _plan(_load(spark, store))

    monkeypatch.undo()
    assert install.install(spark) == ""


def test_a_python_that_is_not_there_is_one_sentence(spark: SparkSession, store: Path) -> None:
    _load(spark, store).count()  # the pool that was started early serves whoever comes first
    with (
        _setting(spark, install.PYTHON_SETTING, "/nowhere/python"),
        pytest.raises(SparkSetupError, match="Spark cannot start /nowhere/python"),
        clear_errors("read"),
    ):
        _load(spark, store).count()


def test_a_python_without_the_package_is_one_sentence(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'orbitmq'\" >&2\nexit 1\n"
    )
    python.chmod(0o755)
    _load(spark, store).count()  # the pool that was started early serves whoever comes first
    with (
        _setting(spark, install.PYTHON_SETTING, str(python)),
        pytest.raises(SparkSetupError, match="the Python of the executors has no module orbitmq"),
        clear_errors("read"),
    ):
        _load(spark, store).count()


def test_a_file_that_goes_while_it_is_read_is_one_sentence(
    spark: SparkSession, store: Path, tmp_path: Path
) -> None:
    """The pool is a real one, but for the names of the files that it has the JVM map."""
    script = tmp_path / "pool.py"
    script.write_text(
        "import runpy, sys\n"
        "from orbitmq.spark.source import in_place\n"
        "in_place.Stretch = lambda path, *more, make=in_place.Stretch: make(path + '.gone', *more)\n"
        "sys.argv = [sys.argv[0], sys.argv[-1]]\n"
        "runpy.run_module('orbitmq.spark.columns.pool', run_name='__main__')\n"
    )
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$@"\n')
    python.chmod(0o755)
    _load(spark, store).count()  # the pool that was started early serves whoever comes first
    with (
        _setting(spark, install.PYTHON_SETTING, str(python)),
        pytest.raises(NotAStoreError, match=r"\.gone: cannot be mapped any more. Try again"),
        clear_errors("read"),
    ):
        _load(spark, store).select("body").collect()


def _pools() -> list[int]:
    """Return the pools of this test's JVM."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            is_below = _is_below(int(process.name), os.getpid())
        except OSError:
            continue
        if b"orbitmq.spark.columns.pool" in words and is_below:
            found.append(int(process.name))
    return found


def _is_below(process: int, ancestor: int) -> bool:
    while process > 1:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        process = int(fields[1])
        if process == ancestor:
            return True
    return False


def _large(root: Path) -> Path:
    builder = LogBuilder(segment_bytes=64 * MiB)
    for number in range(48):
        builder.append(body=bytes([number]) * MiB)
    return write_log(builder, root)


def _long_query(spark: SparkSession, root: Path) -> None:
    """Do so much with each body that Python waits in the middle of a task: texts do not stay in the file."""
    bodies = _load(spark, root, splitBytes="64m", bodyAs="text").select("body")
    pairs = bodies.crossJoin(spark.range(20))
    pairs.selectExpr("sum(crc32(encode(concat(body, string(id)), 'utf-8')))").collect()


def _wait_for_a_job(spark: SparkSession) -> None:
    deadline = time.monotonic() + 30
    while not spark.sparkContext.statusTracker().getActiveJobsIds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextmanager
def _in_background(act: Callable[[], None]) -> Iterator[list[BaseException]]:
    """Run it beside the body of the `with`; give what it raised, after its end."""
    caught = list[BaseException]()

    def run() -> None:
        try:
            act()
        except (Py4JError, PySparkException) as error:
            caught.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield caught
    finally:
        thread.join(60)
        assert not thread.is_alive()


def test_a_killed_pool_is_one_sentence_and_the_next_query_has_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = _large(tmp_path / "large")
    assert _load(spark, root).count() == 48
    before = _pools()
    assert before

    with _in_background(lambda: _long_query(spark, root)) as caught:
        _wait_for_a_job(spark)
        for process in before:  # a pool and its workers
            os.kill(process, signal.SIGKILL)

    if caught:  # else the worker had sent all that the query needed
        with pytest.raises(JobFailedError) as told, clear_errors("read"):
            raise caught[0]
        assert "\n" not in str(told.value)
    assert _load(spark, root).count() == 48
    assert not set(before) & set(_pools())


def _cancel(spark: SparkSession, caught: list[BaseException]) -> None:
    """Cancel what runs until the query has ended: it has several jobs, and none runs between two of them."""
    deadline = time.monotonic() + 30
    while not caught:
        assert time.monotonic() < deadline
        spark.sparkContext.cancelAllJobs()
        time.sleep(0.05)


def test_a_cancelled_query_ends_and_leaves_the_pool_usable(
    spark: SparkSession, tmp_path: Path
) -> None:
    root = _large(tmp_path / "large")
    assert _load(spark, root).count() == 48
    before = _pools()

    with _in_background(lambda: _long_query(spark, root)) as caught:
        _wait_for_a_job(spark)
        _cancel(spark, caught)

    with pytest.raises(JobFailedError, match="cancelled"), clear_errors("read"):
        raise caught[0]
    assert _load(spark, root).count() == 48
    assert set(before) & set(_pools())
