"""`orbitmq spark load`: any table becomes a store that a broker serves, in order, or there is none."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from command import call
from orbitmq.errors import ConfigError, InvalidMessageError, OrbitError
from orbitmq.files.state_file import read_state
from orbitmq.message import AppendStatus
from orbitmq.spark import LoadOptions, load
from orbitmq.spark.progress import JobProgress, StageProgress
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.store.verify.check import check_store
from orbitmq.testing.fake_clock import FakeClock
from spark.load_world import (
    SETTINGS,
    queue_of_key,
    require_rows,
    rows,
    served,
    simple_table,
    table,
)
from spark.rebuild_world import files_below, made_files

pytestmark = pytest.mark.spark


def topic_queues(root: Path) -> dict[str, int]:
    known = read_state(root / "config" / "topics.json")["topicConfigTable"]
    return {topic: config["writeQueueNums"] for topic, config in known.items()}


@pytest.mark.feature("P14")
def test_a_loaded_store_has_the_bytes_of_one_that_was_appended_to_and_a_broker_serves_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    messages, clock, root = rows(1200), FakeClock(), tmp_path / "store"
    config = StoreConfig.from_settings(tmp_path / "live", SETTINGS)
    with MessageStore.open(config, clock=clock, background=False) as store:
        for row in messages:
            assert store.append(row.request(clock.now_ms())).status is AppendStatus.PUT_OK
        store.wait_dispatched(timeout=30)
    shown: list[StageProgress] = []

    with JobProgress(spark, show=shown.append) as progress:
        report = load(table(spark, messages), root, SETTINGS, progress=progress, clock=clock)

    assert files_below(root / "commitlog") == _without_spare(config.root / "commitlog")
    assert made_files(root) == made_files(config.root)
    assert check_store(root, SETTINGS).findings == ()
    assert (report.records, report.segments) == (1200, len(list((root / "commitlog").iterdir())))
    assert report.segments > 3
    assert topic_queues(root) == {"Orders": 5, "%RETRY%" + "g" * 140: 5}
    assert {one.stage for one in shown} == {"encode", "place", "scan", "build"}
    assert [path.name for path in tmp_path.iterdir() if "load" in path.name] == []
    with MessageStore.open(StoreConfig.from_settings(root, SETTINGS), background=False) as store:
        assert not store.recovery_report.adopted
    require_rows(served(root), messages)


def _without_spare(log: Path) -> dict[str, bytes]:
    """Return the segments that hold records; a live store has empty ones ready."""
    return {name: data for name, data in files_below(log).items() if any(data[:8])}


@pytest.mark.feature("P14")
def test_a_table_of_a_store_can_be_loaded_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    load(table(spark, rows(300)), tmp_path / "one", SETTINGS)
    one = spark.read.format("orbitmq").option("config", _conf(tmp_path)).load(str(tmp_path / "one"))

    load(one, tmp_path / "two", SETTINGS)

    two = spark.read.format("orbitmq").option("config", _conf(tmp_path)).load(str(tmp_path / "two"))
    places, times = ("topic", "queue_id", "queue_offset"), ("born_time", "flag")
    kept = (*places, "tags", "keys", "message_id", *times, "properties", "body")
    assert one.select(*kept).collect() == two.select(*kept).collect()


def _conf(tmp_path: Path) -> str:
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={value}\n" for key, value in SETTINGS.items()))
    return str(file)


@pytest.mark.feature("P14")
def test_rows_without_a_queue_go_by_their_key_as_a_producer_sends_them_and_else_in_turn(
    spark: SparkSession, tmp_path: Path
) -> None:
    key = "if(id % 2 = 0, concat('\u8ba2-', id % 10), NULL) AS sharding_key"
    frame = simple_table(spark, 600, key)

    report = load(frame, tmp_path / "store", SETTINGS, LoadOptions(queues=3))

    assert topic_queues(tmp_path / "store") == {"T": 3}
    assert (report.topics, report.queues) == ({"T": 600}, 3)
    queues = served(tmp_path / "store")
    numbers = {queue: [int(one.body[5:]) for one in found] for (_, queue), found in queues.items()}
    assert all(found == sorted(found) for found in numbers.values())
    for queue, found in numbers.items():
        keyed = {number for number in found if number % 2 == 0}
        wanted = {n for n in range(0, 600, 2) if queue_of_key(f"\u8ba2-{n % 10}", 3) == queue}
        assert keyed == wanted
        assert len(found) - len(keyed) == 100


@pytest.mark.feature("P14")
def test_rows_are_sorted_when_asked_and_a_dry_run_writes_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = simple_table(spark, 100, "-id AS rank", "id % 2 AS flag").drop("topic")
    options = LoadOptions("Sorted", 1, ("flag", "rank"), dry_run=True)

    tried = load(frame, tmp_path / "store", SETTINGS, options)

    assert list(tmp_path.iterdir()) == []
    (tmp_path / "store").mkdir()  # an empty directory is as good as none
    made = load(frame, tmp_path / "store", SETTINGS, LoadOptions("Sorted", 1, ("flag", "rank")))
    assert (tried.records, tried.record_bytes, tried.topics) == (
        made.records,
        made.record_bytes,
        made.topics,
    )
    ((_, found),) = served(tmp_path / "store").items()
    numbers = [*range(98, -1, -2), *range(99, 0, -2)]
    assert [one.body for one in found] == [b"body %d" % number for number in numbers]


REFUSED = (
    (("CAST(NULL AS string) AS tags", "1 AS price"), ConfigError, "price"),
    (("1 AS tags",), ConfigError, "column tags"),
    (("'x' AS queue_id",), OrbitError, "x"),
    (("-1 AS queue_id",), InvalidMessageError, "queue_id is -1"),
    (("map('a', '\u0002') AS properties",), InvalidMessageError, "0x01 and 0x02"),
    (("map('', 'b') AS properties",), InvalidMessageError, "empty name"),
    (("repeat('k', 40000) AS keys",), InvalidMessageError, "40006 bytes"),
    (("4 AS sys_flag",), InvalidMessageError, "half message"),
)


@pytest.mark.feature("P14", "P16")
@pytest.mark.parametrize(("columns", "error", "words"), REFUSED)
def test_what_no_broker_would_take_is_refused_in_one_sentence(
    columns: tuple[str, ...],
    error: type[OrbitError],
    words: str,
    interpreted: SparkSession,
    tmp_path: Path,
) -> None:
    frame = simple_table(interpreted, 3, *columns)
    with pytest.raises(error, match=words) as raised:
        load(frame, tmp_path / "store", SETTINGS)
    assert "\n" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("P14", "P16")
def test_topics_and_bodies_that_no_broker_would_take_are_refused(
    interpreted: SparkSession, tmp_path: Path
) -> None:
    small = {**SETTINGS, "maxMessageSize": "1024"}
    cases = (
        ("'T' AS topic, NULL AS body", "column body"),
        ("'T' AS topic, '' AS body", "no body"),
        ("'a/b' AS topic, 'x' AS body", "a/b"),
        ("'rmq_sys_wheel_timer' AS topic, 'x' AS body", "broker's own"),
        ("CAST(NULL AS string) AS topic, 'x' AS body", "no topic"),
        ("'T' AS topic, repeat('x', 1025) AS body", "a body has 1025 bytes"),
        ("'T' AS topic", "no column body"),
        ("'x' AS body", "no column topic"),
        ("'T' AS topic, 'x' AS body WHERE 1 = 0", "no rows"),
    )
    for text, words in cases:
        with pytest.raises(OrbitError, match=words):
            load(interpreted.sql(f"SELECT {text}"), tmp_path / "store", small)
    long = interpreted.sql("SELECT 'T' AS topic, repeat('x', 65500) AS body")
    with pytest.raises(InvalidMessageError, match="mappedFileSizeCommitLog"):
        load(long, tmp_path / "store", SETTINGS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.feature("P14", "P16")
def test_the_command_refuses_what_cannot_be_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "commitlog").mkdir()
    (tmp_path / "file").touch()
    cases = (
        (("--to", tmp_path / "full"), "is not empty"),
        (("--to", tmp_path / "file"), "is a file"),
        (("--to", tmp_path / "new", "--store-host", "here"), "must be IP:PORT"),
        (("--to", tmp_path / "new", "--option", "header"), "must be NAME=VALUE"),
    )
    for arguments, words in cases:
        done = call("spark", "load", tmp_path / "table.parquet", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


@pytest.mark.feature("P14")
def test_settings_that_cannot_be_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = simple_table(spark, 1)
    cases: tuple[tuple[dict[str, str], LoadOptions, str], ...] = (
        ({"storePathCommitLog": "/elsewhere"}, LoadOptions(), "into the store directory"),
        ({"readOnlyCommitLogStorePaths": "/elsewhere"}, LoadOptions(), "into the store directory"),
        ({"brokerIP1": "::1"}, LoadOptions(), "IPv4"),
        ({}, LoadOptions(queues=0), "--queues"),
        ({}, LoadOptions(topic="a b"), "a b"),
        ({}, LoadOptions(order_by=("price",)), "--order-by"),
    )
    for settings, options, words in cases:
        with pytest.raises(OrbitError, match=words):
            load(frame, tmp_path / "store", settings, options)
    assert list(tmp_path.iterdir()) == []


def test_the_facts_of_a_load_are_json(spark: SparkSession, tmp_path: Path) -> None:
    from orbitmq.cli.spark.load import load_text, load_value

    usual = {**SETTINGS, "storePathCommitLog": str(tmp_path / "store" / "commitlog")}
    report = load(simple_table(spark, 5), tmp_path / "store", usual, LoadOptions(queues=9))

    told = json.loads(json.dumps(load_value(report)))
    assert (told["records"], told["topics"]) == (5, {"T": 5})
    assert told["queues"] < 9
    assert topic_queues(tmp_path / "store") == {"T": 9}  # all that there were to choose from
    assert "5 messages" in load_text(report)
