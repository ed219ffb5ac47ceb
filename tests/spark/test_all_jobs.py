"""Every job over one store that a live broker wrote, each compared with what was sent.

ORBITMQ_JOB_MESSAGES says how many messages it has (3 000; a million is the size that is promised).
"""

import os
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from orbitmq.client import Admin, Consumer, Message, Producer
from orbitmq.spark import LoadOptions, ReplayOptions, audit, export, load, query, replay
from orbitmq.store.config import StoreConfig
from orbitmq.store.store import MessageStore
from orbitmq.testing.broker import Broker
from orbitmq.units import MiB

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1800)]

COUNT = int(os.environ.get("ORBITMQ_JOB_MESSAGES", "3000"))
TOPICS = ("Orders", "Payments", "Stock")
QUEUES = 4
TAGS = 5
KEYS = 29
"""Different keys of a topic: each has far more messages than the 64 that tools of RocketMQ show."""
TWICE = 500
BATCH = 60
SEGMENT_BYTES = 16 * MiB


def topic(number: int) -> str:
    return TOPICS[number % len(TOPICS)]


def tag(number: int) -> str:
    return f"tag{number % TAGS}"


def message(number: int) -> Message:
    keys = [f"key{number % KEYS}", f"number{number}"]
    return Message(topic(number), b'{"n": %d}' % number, tag=tag(number), keys=keys)


def numbers(*, of: str | None = None, with_tag: str | None = None) -> list[int]:
    """Return what was sent: the plain reference of everything here."""
    sent = [*range(COUNT), *range(0, COUNT, TWICE)]
    sent = [one for one in sent if of is None or topic(one) == of]
    return [one for one in sent if with_tag is None or tag(one) == with_tag]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("jobs") / "store"


@pytest.fixture(scope="module")
def broker(store: Path) -> Iterator[Broker]:
    settings = {"mappedFileSizeCommitLog": str(SEGMENT_BYTES)}
    with Broker(store, settings=settings) as running, Admin(running.namesrv) as admin:
        for name in (*TOPICS, "Again", "Sunk"):
            admin.create_topic(name, queues=QUEUES)
        with Producer(running.namesrv, "jobs") as producer:
            waiting: dict[str, list[Message]] = {name: [] for name in TOPICS}
            for number in numbers():
                one = message(number)
                waiting[one.topic].append(one)
                if len(waiting[one.topic]) == BATCH:
                    producer.send_batch(waiting[one.topic])
                    waiting[one.topic] = []
            for left in waiting.values():
                if left:
                    producer.send_batch(left)
        running.wait_dispatched()
        yield running


@pytest.fixture
def messages(spark: SparkSession, broker: Broker, store: Path) -> DataFrame:
    return spark.read.format("orbitmq").load(str(store))


def found_in(broker: Broker, name: str) -> Counter[int]:
    """Return which numbers a topic holds, as a browser of its queues sees them."""
    broker.wait_dispatched()
    found: Counter[int] = Counter()
    with Admin(broker.namesrv) as admin:
        for stats in admin.topic_stats(name):
            for one in admin.browse(stats.queue, stats.min_offset, stats.max_offset):
                found[int(one.body[6:-1])] += 1
    return found


@pytest.mark.feature("P10", "P18")
def test_an_export_holds_each_message_once(spark, broker, store, tmp_path):
    report = export(spark, tmp_path / "lake", store=store, topics=TOPICS)

    assert report.rows == len(numbers())
    number = "CAST(json_extract(decode(body), '$.n') AS BIGINT)"
    for name in TOPICS:
        files = str(tmp_path / "lake" / name / "**" / "*.parquet")
        asked = f"SELECT count(*), count(DISTINCT {number}), sum({number}) FROM read_parquet(?)"
        with duckdb.connect() as connection:
            answer = connection.execute(asked, [files]).fetchone()
        sent = numbers(of=name)
        assert answer == (len(sent), len(set(sent)), sum(sent))


@pytest.mark.feature("P11")
def test_a_query_finds_what_a_full_scan_finds(spark, broker, store):
    hits = query(spark, store, keys=["key7"], topics=["Orders"])
    sql = "SELECT topic, tags, count(*) AS n FROM messages GROUP BY ALL"
    by_tag = query(spark, store, topics=TOPICS, sql=sql)

    assert hits.count() == len([one for one in numbers(of="Orders") if one % KEYS == 7])
    assert {(row.topic, row.tags): row.n for row in by_tag.collect()} == Counter(
        (topic(one), tag(one)) for one in numbers()
    )


@pytest.mark.feature("P12")
def test_an_audit_counts_what_was_sent(spark, broker, store):
    report = audit(spark, store=store, topics=TOPICS)

    assert {(row.topic, row.tag): row.messages for row in report.tags} == Counter(
        (topic(one), tag(one)) for one in numbers()
    )
    sent = Counter(numbers(of="Orders"))
    keys: Counter[str] = Counter()
    for one, copies in sent.items():
        keys[f"key{one % KEYS}"] += copies
        keys[f"number{one}"] += copies
    by_key = next(row for row in report.duplicates if (row.topic, row.by) == ("Orders", "key"))
    repeated = [count for count in keys.values() if count > 1]
    assert (by_key.distinct, by_key.repeated) == (len(keys), len(repeated))
    assert by_key.surplus == sum(repeated) - len(repeated)


@pytest.mark.feature("P14")
def test_a_loaded_store_has_every_row_in_the_order_of_its_queue(messages, tmp_path):
    orders = messages.where("topic = 'Orders'").select("topic", "queue_id", "body", "tags", "keys")
    report = load(orders, tmp_path / "loaded", options=LoadOptions(queues=QUEUES))

    assert report.records == len(numbers(of="Orders"))
    found: Counter[int] = Counter()
    with MessageStore.open(StoreConfig(root=tmp_path / "loaded")) as loaded:
        for queue in range(QUEUES):
            read = list(_numbers_of(loaded, queue))
            found.update(read)
            falls = [number for before, number in pairwise(read) if number <= before]
            assert len(falls) <= 1  # those that were sent again come last
    assert found == Counter(numbers(of="Orders"))


def _numbers_of(store: MessageStore, queue: int) -> Iterator[int]:
    from orbitmq.format.record import decode_record

    offset = 0
    while True:
        result = store.get("Orders", queue, offset, 32)
        if not result.records:
            return
        for one in result.records:
            yield int(bytes(decode_record(one).body)[6:-1])
        offset = result.next_offset


@pytest.mark.feature("P13")
def test_a_replay_sends_each_chosen_message_once(broker, messages, tmp_path):
    chosen = messages.where("topic = 'Orders' AND tags = 'tag1'")
    options = ReplayOptions(broker.namesrv, tmp_path / "state.json", to_topic="Again")

    replay(chosen, options)

    assert found_in(broker, "Again") == Counter(numbers(of="Orders", with_tag="tag1"))


@pytest.mark.feature("P9")
def test_the_sink_sends_each_row_once(broker, messages):
    rows = messages.where("topic = 'Stock'").select("body", "tags", "keys")

    rows.write.format("orbitmq").mode("append").options(namesrv=broker.namesrv, topic="Sunk").save()

    assert found_in(broker, "Sunk") == Counter(numbers(of="Stock"))


def test_a_consumer_reads_the_same(broker):
    found: Counter[int] = Counter()
    wanted = numbers(of="Payments", with_tag="tag2")
    topics = {"Payments": "tag2"}
    with Consumer(broker.namesrv, "reader", topics, start_from="first") as consumer:
        for one in consumer:
            found[int(one.body[6:-1])] += 1
            if found.total() == len(wanted):
                one.ack()
                break
    assert found == Counter(wanted)
