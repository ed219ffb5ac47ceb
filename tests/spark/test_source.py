"""`spark.read.format("orbitmq")`: golden stores, push-down on and off, and errors as a user sees them."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import golden_stores
from log_builder import LogBuilder, write_log
from orbitmq.errors import ConfigError, CorruptRecordError, NotAStoreError, OrbitError
from orbitmq.spark.failures import clear_errors
from orbitmq.spark.source.metrics import read_metrics
from orbitmq.units import MiB

pytestmark = pytest.mark.spark

READER = "spark.orbitmq.reader"
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("mixed", tmp_path_factory.mktemp("store"))


@pytest.fixture(autouse=True, params=["auto", "rows"])
def reader(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Each test of this file with both readers: by columns, and by rows."""
    spark.conf.set(READER, request.param)
    yield request.param
    spark.conf.unset(READER)


@contextmanager
def _pushdown(spark: SparkSession, enabled: str) -> Iterator[None]:
    before = spark.conf.get(PUSHDOWN)
    spark.conf.set(PUSHDOWN, enabled)
    try:
        yield
    finally:
        spark.conf.set(PUSHDOWN, before)


def _load(spark: SparkSession, path: Path, schema: str = "", **options: object) -> DataFrame:
    reader = spark.read.format("orbitmq")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return (reader.schema(schema) if schema else reader).load(str(path))


def _expected(record: dict[str, Any]) -> dict[str, Any]:
    """Return the row of the table for a row of a manifest."""
    properties = record["properties"]
    return {
        "topic": record["topic"],
        "queue_id": record["queueId"],
        "queue_offset": record["queueOffset"],
        "log_offset": record["phyOffset"],
        "size": record["size"],
        "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS", "").split(),
        "message_id": properties.get("UNIQ_KEY"),
        "offset_id": record["offsetMsgId"],
        "born_time": EPOCH + timedelta(milliseconds=record["bornTimestamp"]),
        "store_time": EPOCH + timedelta(milliseconds=record["storeTimestamp"]),
        "born_host": record["bornHost"],
        "store_host": record["storeHost"],
        "sys_flag": record["sysFlag"],
        "flag": record["flag"],
        "reconsume_times": record["reconsumeTimes"],
        "prepared_offset": record["preparedTransactionOffset"],
        "body_crc": record["bodyCRC"],
        "body_length": record["bodyLength"],
        "properties": properties,
        "body": record["bodySha256"],
        "error": None,
    }


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    # Spark gives local times without a zone.
    times = {name: row[name].astimezone(UTC) for name in ("born_time", "store_time")}
    return row | times | {"body": hashlib.sha256(row["body"]).hexdigest()}


@pytest.mark.feature("P1")
@pytest.mark.parametrize("name", golden_stores.STORES)
def test_a_golden_store_reads_as_its_manifest(
    spark: SparkSession, name: str, tmp_path: Path
) -> None:
    root = golden_stores.unpack(name, tmp_path)

    found = _load(spark, root, decompress="false", splitBytes=40_000).collect()

    rows = sorted((_shown(row.asDict()) for row in found), key=lambda row: row["log_offset"])
    assert rows == [_expected(record) for record in golden_stores.rows(name, "record")]


@pytest.mark.feature("P1")
def test_count_by_topic_and_tag_needs_two_columns_only(spark: SparkSession, mixed: Path) -> None:
    frame = _load(spark, mixed, "topic string, tags string")

    found = {(row[0], row[1]): row[2] for row in frame.groupBy("topic", "tags").count().collect()}

    expected: dict[tuple[str, str | None], int] = {}
    for record in golden_stores.rows("mixed", "record"):
        key = record["topic"], record["properties"].get("TAGS")
        expected[key] = expected.get(key, 0) + 1
    assert frame.columns == ["topic", "tags"]
    assert found == expected


@pytest.mark.feature("P4")
def test_filters_give_the_same_rows_with_and_without_push_down(
    spark: SparkSession, mixed: Path, tmp_path: Path
) -> None:
    where = (
        "topic = 'GoldAa' and queue_id in (1, 2) and tags like 'Aa%' and log_offset between 65536 and 700000"
        " and store_time >= timestamp'2026-11-15 00:00:00' and array_size(keys) >= 0"
    )
    found, plans, read = {}, {}, {}
    for enabled in ("true", "false"):
        with _pushdown(spark, enabled):
            metrics = tmp_path / enabled
            frame = _load(spark, mixed, metricsPath=metrics).where(where)
            found[enabled] = sorted(row["log_offset"] for row in frame.collect())
            plans[enabled] = _formatted_plan(frame)
            read[enabled] = read_metrics(metrics)

    assert found["true"] == found["false"] != []
    assert "PushedFilters: [" in plans["true"]
    assert "EqualTo(topic,GoldAa)" in plans["true"]
    assert "PushedFilters" not in plans["false"]
    assert read["true"].rows == len(found["true"])
    assert read["false"].rows == len(golden_stores.rows("mixed", "record"))
    assert 0 < read["true"].log_bytes < read["false"].log_bytes / 4


@pytest.mark.feature("P4")
def test_a_filter_on_a_key_is_pushed_down(spark: SparkSession, mixed: Path, tmp_path: Path) -> None:
    keys = {
        key: record["phyOffset"]
        for record in golden_stores.rows("mixed", "record")
        for key in record["properties"].get("KEYS", "").split()
    }
    key, last = next(iter(keys.items()))
    config = golden_stores.GOLDEN / "mixed.conf"
    found, plans, read = {}, {}, {}
    for enabled in ("true", "false"):
        with _pushdown(spark, enabled):
            metrics = tmp_path / enabled
            options = {"rowPerKey": "true", "config": config, "metricsPath": metrics}
            frame = _load(spark, mixed, **options).where(f"key = '{key}'")
            found[enabled] = sorted((row["log_offset"], row["key"]) for row in frame.collect())
            plans[enabled] = _formatted_plan(frame)
            read[enabled] = read_metrics(metrics)

    assert found["true"] == found["false"]
    assert (last, key) in found["true"]
    assert f"EqualTo(key,{key})" in plans["true"]
    assert "PushedFilters" not in plans["false"]
    assert read["true"].rows == len(found["true"]) < read["false"].rows
    assert 0 < read["true"].log_bytes < read["false"].log_bytes / 4


def _formatted_plan(frame: DataFrame) -> str:
    text: str = frame._jdf.queryExecution().explainString(
        frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    )
    return text


@pytest.mark.feature("P4")
def test_an_option_leaves_all_filters_to_spark(spark: SparkSession, mixed: Path) -> None:
    frame = _load(spark, mixed, pushdown="false").where("topic = 'GoldAa'")

    assert "PushedFilters" not in _formatted_plan(frame)
    assert frame.count() == sum(
        record["topic"] == "GoldAa" for record in golden_stores.rows("mixed", "record")
    )


@pytest.mark.feature("P3.sql92")
def test_an_sql92_expression_selects_what_a_broker_would(spark: SparkSession, mixed: Path) -> None:
    expected = [
        record["phyOffset"]
        for record in golden_stores.rows("mixed", "record")
        if record["properties"].get("TAGS") in ("Aa", "BB") and "KEYS" in record["properties"]
    ]

    frame = _load(spark, mixed, sql92="TAGS IN ('Aa', 'BB') AND KEYS IS NOT NULL")

    assert expected
    assert sorted(row["log_offset"] for row in frame.select("log_offset").collect()) == expected


@pytest.mark.feature("P3.options")
def test_a_key_and_a_range_read_little_of_the_log(
    spark: SparkSession, mixed: Path, tmp_path: Path
) -> None:
    config = tmp_path / "broker.conf"
    lines = [f"{key}={value}" for key, value in golden_stores.settings("mixed").items()]
    config.write_text("\n".join(lines))
    keyed = next(
        one for one in golden_stores.rows("mixed", "record") if "KEYS" in one["properties"]
    )
    key = keyed["properties"]["KEYS"].split()[0]
    expected = [
        record["phyOffset"]
        for record in golden_stores.rows("mixed", "record")
        if key in record["properties"].get("KEYS", "").split()
    ]

    frame = _load(spark, mixed, config=config, keys=key, metricsPath=tmp_path / "metrics")

    assert sorted(row["log_offset"] for row in frame.collect()) == expected
    assert read_metrics(tmp_path / "metrics").log_bytes < 400_000  # of 3.9 million


Failing = Callable[[SparkSession, Path], Any]


def _one_bad_record(root: Path) -> Path:
    builder = LogBuilder()
    for _ in range(3):
        builder.append()
    builder.flip(builder.records[1].start + 90)
    return write_log(builder, root)


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda spark, path: _load(spark, path / "none").count(), NotAStoreError, "no commit log"),
        (
            lambda spark, path: _load(spark, path, topic="a"),
            ConfigError,
            "setting topic = 'a': unknown option; did you mean topics?",
        ),
        (
            lambda spark, path: _load(spark, path, splitBytes="few").count(),
            ConfigError,
            "must be a number of bytes",
        ),
        (
            lambda spark, path: _load(spark, path, "topic string, tag string").count(),
            ConfigError,
            "no such column; there are topic, queue_id",
        ),
        (
            lambda spark, path: _load(spark, path, "topic binary").count(),
            ConfigError,
            "the column has the type string",
        ),
        (
            lambda spark, path: _load(spark, _one_bad_record(path / "bad")).collect(),
            CorruptRecordError,
            f"{0:020d}: position 162: the body does not match its checksum. Read with badRecords=skip",
        ),
    ],
    ids=["no store", "unknown option", "bad value", "no column", "wrong type", "bad record"],
)
def test_what_is_wrong_is_said_in_one_sentence(
    spark: SparkSession, tmp_path: Path, act: Failing, kind: type[OrbitError], text: str
) -> None:
    with pytest.raises(kind) as caught, clear_errors("read"):
        act(spark, tmp_path)

    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_bad_records_are_skipped_or_kept(spark: SparkSession, tmp_path: Path) -> None:
    root = _one_bad_record(tmp_path / "bad")

    skipped = _load(spark, root, badRecords="skip", metricsPath=tmp_path / "metrics").collect()
    kept = _load(spark, root, badRecords="keep").where("error is not null").collect()

    assert [row["log_offset"] for row in skipped] == [0, 324]
    assert read_metrics(tmp_path / "metrics").bad_places == 1
    assert [(row["log_offset"], row["size"], row["topic"]) for row in kept] == [(162, 162, None)]


def test_large_bodies_arrive_whole(spark: SparkSession, tmp_path: Path) -> None:
    builder = LogBuilder(segment_bytes=32 * MiB)
    for number in range(6):
        builder.append(body=bytes([number]) * (4 * MiB))

    frame = _load(spark, write_log(builder, tmp_path / "store"), "body binary", splitBytes="8m")

    found = frame.selectExpr("length(body) as length", "hex(substring(body, 4194304, 1)) as last")
    assert sorted((row["length"], row["last"]) for row in found.collect()) == [
        (4 * MiB, f"{number:02X}") for number in range(6)
    ]


def test_a_store_without_messages_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "store" / "commitlog").mkdir(parents=True)

    assert _load(spark, tmp_path / "store").count() == 0
