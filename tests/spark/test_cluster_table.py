"""The table through the brokers is the table of their store directories, row for row."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition

import golden_stores
from orbitmq.client import Admin, Message, Producer
from orbitmq.errors import NoRouteError, PipelineError, UnreachableError
from orbitmq.spark.source import cluster_table
from orbitmq.spark.source.cluster_query import joined
from orbitmq.spark.start.session import register
from orbitmq.spark.streams.offsets import QueueRange, cut_tasks
from orbitmq.testing import Broker
from orbitmq.wire.bodies.message_queue import MessageQueue
from orbitmq.wire.bodies.topic_config import PERM_WRITE
from spark.table_world import Row, read_tasks, table_reader, table_rows

WAIT_SECONDS = 60.0

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]

TOPICS = "Pull0,Pull1,Pull2"
MESSAGES = 1500


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A broker with three topics, a key that many messages have, and two long messages."""
    with Broker() as running, Producer(running.namesrv, "tables") as producer:
        for number in range(MESSAGES):
            keys = f"key{number % 300} {'often' if number % 3 == 1 else 'rare'}"
            body = b"%d " % number * (number % 40 + 1)
            message = Message(f"Pull{number % 3}", body, keys=keys, tag=f"tag{number % 5}")
            producer.send(message) if number < 3 else producer.send_oneway(message)
        producer.send(Message("Pull0", b"%d" % 7 * (3 << 20), keys="long"))
        producer.send(Message("Pull1", bytes(range(256)) * 8192, keys="long", tag="tagged"))
        running.wait_dispatched()
        yield running


def both(broker: Broker, **options: object) -> tuple[list[Row], list[Row]]:
    """Return the rows through the broker and those of its store directory."""
    return (
        table_rows(namesrv=broker.namesrv, **options),
        table_rows(path=broker.store_path, **options),
    )


@pytest.mark.feature("P2")
@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({"topics": TOPICS}, MESSAGES + 2),
        ({"topics": TOPICS, "splitBytes": "2k"}, MESSAGES + 2),
        ({"topics": TOPICS, "includeBody": "false"}, MESSAGES + 2),
        ({"topics": TOPICS, "decompress": "false"}, MESSAGES + 2),
        ({"topics": "Pull1", "bodyAs": "text"}, MESSAGES // 3 + 1),
        ({"topics": "Pull1", "bodyAs": "json"}, MESSAGES // 3 + 1),
        ({"topics": "Pull1", "bodyAs": "variant"}, MESSAGES // 3 + 1),
        ({"topics": "Pull1", "tags": "tag2,tagged"}, MESSAGES // 15 + 1),
        ({"topics": TOPICS, "tags": "tag2", "splitBytes": "2k"}, MESSAGES // 5),
        ({"topics": TOPICS, "sql92": "TAGS = 'tag2' AND KEYS IS NOT NULL"}, MESSAGES // 5),
        ({"topics": TOPICS, "keys": "key77"}, MESSAGES // 300),
        ({"topics": TOPICS, "keys": "key1,key4,long"}, 2 * MESSAGES // 300 + 2),
        ({"topics": "Pull1", "keys": "often"}, MESSAGES // 3),
        ({"topics": "Pull0", "keys": "often"}, 0),
        ({"topics": "Pull2", "queueId": "1"}, None),
        ({"topics": TOPICS, "startQueueOffset": "17", "endQueueOffset": "40"}, 3 * 4 * 23),
        ({"topics": "Pull0", "startTime": "now-1h", "endTime": "now"}, MESSAGES // 3 + 1),
        ({"topics": "Pull0", "endTime": "now-3h"}, 0),
        ({"topics": "Pull0", "startOffset": "100000", "endOffset": "200000"}, None),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else None,
)
def test_rows_through_a_broker_are_those_of_its_store(
    broker: Broker, options: dict[str, str], count: int | None
) -> None:
    pulled, stored = both(broker, **options)

    assert pulled == stored
    if "bodyAs" in options:  # Pull1 has messages 1, 4, 7 and so on, and one whose bytes are no text
        kinds = {"text": str, "json": str, "variant": dict}
        bodies = [row["body"] for row in pulled if row["body"] is not None]
        assert {type(body) for body in bodies} == {kinds[options["bodyAs"]]}
        assert pulled[-1]["error"] == "the body is no UTF-8 (byte 128)"
    assert len(pulled) in (range(1, MESSAGES) if count is None else [count])


@pytest.mark.feature("P2")
def test_messages_are_found_by_both_kinds_of_id(broker: Broker) -> None:
    rows = table_rows(path=broker.store_path, topics="Pull2")
    ids = f"{rows[3]['message_id']},{rows[200]['offset_id']},{'0' * 32},no id at all"

    pulled, stored = both(broker, topics="Pull2", ids=ids)

    assert pulled == stored == [rows[3], rows[200]]


@pytest.mark.feature("P2")
def test_without_topics_all_but_the_brokers_own_are_read(broker: Broker) -> None:
    pulled = table_rows(namesrv=broker.namesrv)

    topics = {row["topic"] for row in pulled}
    assert topics >= set(TOPICS.split(","))
    assert topics <= {*TOPICS.split(","), "Grows"}  # of another test
    assert pulled == table_rows(path=broker.store_path, topics=",".join(topics))


@pytest.mark.feature("P2")
def test_a_long_queue_is_pulled_by_several_tasks(broker: Broker) -> None:
    reader = table_reader(namesrv=broker.namesrv, topics="Pull1", queueId=0, splitBytes="4k")

    tasks = reader.partitions()

    ranges = [one for task in tasks for one in task.value]
    assert len(tasks) > 3
    assert joined(ranges) == [QueueRange("Pull1", "broker-a", 0, 0, ranges[-1].end)]


@pytest.mark.feature("P2")
def test_what_is_sent_after_planning_is_not_part_of_the_table(broker: Broker) -> None:
    with Producer(broker.namesrv, "later") as producer:
        producer.send(Message("Grows", b"before"))
        broker.wait_dispatched()
        reader = table_reader(namesrv=broker.namesrv, topics="Grows")
        tasks = reader.partitions()
        for _ in range(20):
            producer.send(Message("Grows", b"after"))
        broker.wait_dispatched()

        rows = read_tasks(reader, tasks)

    assert [row["body"] for row in rows] == [b"before"]


def wait_for_delayed(broker: Broker) -> None:
    """Wait until the broker has delivered the delayed messages whose time came long ago."""
    deadline = time.monotonic() + WAIT_SECONDS
    with Admin(broker.namesrv) as admin:
        while not _all_delivered(admin.broker_runtime(broker.address)):
            assert time.monotonic() < deadline, "the store does not come to rest"
            time.sleep(0.05)
    broker.wait_dispatched()


def _all_delivered(info: Mapping[str, str]) -> bool:
    levels = [text for name, text in info.items() if name.startswith("scheduleMessageOffset_")]
    return all(done == end for done, end in (text.split(",") for text in levels))


@pytest.mark.feature("P2")
@pytest.mark.parametrize("name", ["mixed", "batchcq", "cleaned"])
def test_a_store_that_java_wrote_is_the_same_through_our_broker(name: str, tmp_path: Path) -> None:
    root = golden_stores.unpack(name, tmp_path)
    config = golden_stores.GOLDEN / f"{name}.conf"
    with Broker(root, settings=golden_stores.settings(name)) as broker:
        wait_for_delayed(broker)
        pulled = table_rows(namesrv=broker.namesrv, splitBytes="64k")
        topics = sorted({row["topic"] for row in pulled})

        stored = table_rows(path=root, config=config, topics=",".join(topics))

    assert len(topics) > 0
    assert pulled == stored


@pytest.mark.feature("P2")
def test_messages_that_were_deleted_meanwhile_follow_the_rule_for_bad_records(
    tmp_path: Path,
) -> None:
    root = golden_stores.unpack("cleaned", tmp_path)
    with Broker(root, settings=golden_stores.settings("cleaned")) as broker:
        planned = table_reader(namesrv=broker.namesrv).partitions()
        # As it was planned before the first messages of each queue were deleted.
        tasks = [
            InputPartition(tuple(one._replace(start=0) for one in task.value)) for task in planned
        ]
        assert [task.value for task in tasks] != [task.value for task in planned]

        with pytest.raises(PipelineError, match="were deleted"):
            read_tasks(table_reader(namesrv=broker.namesrv), list(tasks))
        skipping = table_reader(namesrv=broker.namesrv, badRecords="skip")

        assert read_tasks(skipping, list(tasks)) == table_rows(namesrv=broker.namesrv)


@pytest.mark.feature("P2")
def test_a_topic_that_is_not_there_or_not_readable_is_named(broker: Broker) -> None:
    with Admin(broker.namesrv) as admin:
        admin.create_topic("Closed", perm=PERM_WRITE)
    for topic in ("Nowhere", "Closed"):
        with pytest.raises(NoRouteError, match=topic):
            table_reader(namesrv=broker.namesrv, topics=f"Pull0,{topic}").partitions()


@pytest.mark.feature("P2")
def test_a_name_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_table, "RETRY_S", 0.1)
    with Broker() as broker:
        gone = broker.namesrv

    with pytest.raises(UnreachableError, match=gone):
        table_reader(namesrv=gone, topics="Orders").partitions()


def test_short_ranges_share_a_task_and_long_ones_are_cut() -> None:
    short = [QueueRange("T", "a", number, 0, 10) for number in range(4)]
    ranges = [*short, QueueRange("T", "a", 4, 100, 1100), QueueRange("T", "b", 0, 0, 10)]

    tasks = cut_tasks(ranges, 100_000, {MessageQueue("T", "a", 4): 500}, 1024)

    assert tasks[0][:4] == tuple(short)
    assert all(len({one.broker_name for one in task}) == 1 for task in tasks)
    assert joined(one for task in tasks for one in task) == sorted(ranges)
    assert sum(one.queue_id == 4 for task in tasks for one in task) == 5


@pytest.mark.feature("P2")
def test_a_query_over_a_cluster_in_a_spark_session(spark: SparkSession, broker: Broker) -> None:
    register(spark)
    frame = (
        spark.read.format("orbitmq")
        .option("namesrv", broker.namesrv)
        .option("topics", TOPICS)
        .option("splitBytes", "64k")
        .load()
    )

    counts = {row["topic"]: row["count"] for row in frame.groupBy("topic").count().collect()}
    chosen = frame.where("topic = 'Pull1' and queue_offset < 5").select("queue_offset").collect()

    assert counts == {
        "Pull0": MESSAGES // 3 + 1,
        "Pull1": MESSAGES // 3 + 1,
        "Pull2": MESSAGES // 3,
    }
    assert sorted(row[0] for row in chosen) == sorted([*range(5)] * 4)
