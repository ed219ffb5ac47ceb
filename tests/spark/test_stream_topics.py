"""The stream over topics without Spark around it: a real broker, real pulls, offsets as Spark keeps them."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

import golden_stores
from orbitmq.client.core.message import Message
from orbitmq.client.sync.admin import Admin
from orbitmq.client.sync.producer import Producer
from orbitmq.errors import ConfigError, PipelineError, UnreachableError
from orbitmq.spark.streams import cluster as stream_cluster
from orbitmq.spark.streams import topics as stream_topics
from orbitmq.testing import Broker
from spark.stream_world import (
    Batches,
    bodies,
    numbered,
    open_reader,
    rows_between,
    send,
    through_json,
)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture
def producer(broker: Broker) -> Iterator[Producer]:
    with Producer(broker.namesrv, "producers") as running:
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(broker.namesrv) as running:
        running.create_topic("Orders", queues=4)
        yield running


# --- where it starts ---


@pytest.mark.feature("P8")
def test_earliest_reads_each_message_once_and_no_batch_is_larger_than_the_limit(
    broker, producer, admin
) -> None:
    send(broker, producer, "Orders", 0, 100)
    with open_reader(namesrv=broker.namesrv, topics="Orders", maxRowsPerTrigger="30") as reader:
        stream = Batches(reader)
        sizes, found = [], []
        while len(found) < 100:
            batch = stream.next()
            sizes.append(len(batch))
            found += batch

        assert sizes == [30, 30, 30, 10]
        assert bodies(found) == numbered(0, 100)
        assert {row["queue_id"] for row in found} == {0, 1, 2, 3}
        assert stream.next() == []
        assert stream.at == stream.before


def test_columns_of_a_pulled_message_are_those_of_the_same_record_in_the_log(
    broker, producer, admin
) -> None:
    producer.send(
        Message("Orders", b"x" * 9_000, tag="TagA", keys=["k1", "k2"], properties={"colour": "red"})
    )
    broker.wait_dispatched()
    with open_reader(namesrv=broker.namesrv, topics="Orders") as reader:
        (pulled,) = Batches(reader).next()
    with open_reader(path=str(broker.store_path)) as reader:
        (scanned,) = Batches(reader).next()

    assert pulled == scanned
    assert pulled["keys"] == ["k1", "k2"]
    assert len(pulled["body"]) == 9_000


@pytest.mark.feature("P8")
def test_latest_starts_where_the_first_batch_was_planned_also_when_that_batch_is_repeated(
    broker, producer, admin
) -> None:
    send(broker, producer, "Orders", 0, 10)
    options = {"namesrv": broker.namesrv, "topics": "Orders", "startingOffsets": "latest"}
    with open_reader(**options) as reader:
        stream = Batches(reader)
        assert stream.next() == []
        first = stream.at
        send(broker, producer, "Orders", 10, 15)
        assert bodies(stream.next()) == numbered(10, 15)
        second = stream.at
    send(broker, producer, "Orders", 15, 20)

    # Killed, and started again from the checkpoint: the initial offset is asked for anew.
    with open_reader(**options) as reader:
        initial = through_json(reader.initialOffset())
        assert rows_between(reader, initial, first) == []
        assert bodies(rows_between(reader, first, second)) == numbered(10, 15)
        assert bodies(Batches(reader, second).next()) == numbered(15, 20)


@pytest.mark.feature("P8")
def test_timestamp_starts_with_the_first_message_stored_then_or_later(
    broker, producer, admin
) -> None:
    send(broker, producer, "Orders", 0, 10)
    time.sleep(0.02)  # sleep: the next ones get a later store time
    between = time.time_ns() // 1_000_000
    send(broker, producer, "Orders", 10, 20)

    start = f"timestamp:{between}"
    with open_reader(namesrv=broker.namesrv, topics="Orders", startingOffsets=start) as reader:
        assert bodies(Batches(reader).next()) == numbered(10, 20)


@pytest.mark.feature("P8")
def test_offsets_per_queue_start_there_and_other_queues_at_their_first_message(
    broker, producer, admin
) -> None:
    send(broker, producer, "Orders", 0, 40)

    start = '{"Orders": {"broker-a": {"0": 7, "1": 10}}}'
    with open_reader(namesrv=broker.namesrv, topics="Orders", startingOffsets=start) as reader:
        found = Batches(reader).next()

    places = sorted((row["queue_id"], row["queue_offset"]) for row in found)
    assert places == [(0, n) for n in (7, 8, 9)] + [(q, n) for q in (2, 3) for n in range(10)]


@pytest.mark.parametrize(
    ("start", "what"),
    [
        ("soon", "must be earliest, latest"),
        ("timestamp:yesterday", "write a time as"),
        ('{"Orders": 3}', "must be earliest, latest"),
        (
            '{"Orders": {"broker-a": {"9": 0}}}',
            "there is no topic Orders, broker broker-a, queue 9",
        ),
        ('{"Orders": {"broker-a": {"0": 5}}}', "has messages 0 to -1, not 5"),
    ],
    ids=["word", "time", "tree", "queue", "offset"],
)
def test_start_that_cannot_be_is_named(broker, admin, start: str, what: str) -> None:
    with (
        pytest.raises(ConfigError, match="startingOffsets.*" + what),
        open_reader(namesrv=broker.namesrv, topics="Orders", startingOffsets=start) as reader,
    ):
        Batches(reader).next()


def test_stream_over_a_cluster_needs_topics(broker) -> None:
    with pytest.raises(ConfigError, match="topics"), open_reader(namesrv=broker.namesrv):
        pass


# --- what turns up later ---


@pytest.mark.feature("P8")
def test_new_topics_and_new_queues_are_read_from_their_first_message(
    broker, producer, admin, monkeypatch
) -> None:
    monkeypatch.setattr(stream_cluster, "_ROUTES_S", 0.0)
    monkeypatch.setattr(stream_cluster, "_ABSENT_S", 0.0)
    options = {
        "namesrv": broker.namesrv,
        "topics": "Orders,Late,Stock*",
        "startingOffsets": "latest",
    }
    send(broker, producer, "Orders", 0, 10)
    with open_reader(**options) as reader:
        stream = Batches(reader)
        assert stream.next() == []
        admin.create_topic("Late", queues=2)
        admin.create_topic("StockEurope", queues=1)
        admin.create_topic("Other", queues=1)
        send(broker, producer, "Late", 100, 110)
        send(broker, producer, "StockEurope", 110, 120)
        send(broker, producer, "Other", 120, 130)
        assert bodies(stream.next()) == numbered(100, 120)

        admin.create_topic("Late", queues=8)
        with Producer(broker.namesrv, "more") as knows_all_queues:
            send(broker, knows_all_queues, "Late", 130, 200)
        found = stream.next()

    assert bodies(found) == numbered(130, 200)
    assert {row["queue_id"] for row in found} == set(range(8))


# --- how much ---


@pytest.mark.feature("P8")
def test_limit_by_bytes_is_kept_by_the_sizes_of_the_records(broker, producer, admin) -> None:
    for number in range(60):
        producer.send(Message("Orders", bytes([65 + number % 20]) * (1 + 100 * (number % 20))))
    broker.wait_dispatched()
    limit = 8_000
    with open_reader(
        namesrv=broker.namesrv, topics="Orders", maxBytesPerTrigger=str(limit)
    ) as reader:
        stream = Batches(reader)
        batches = []
        while sum(map(len, batches)) < 60:
            batches.append(stream.next())

    for batch in batches:
        assert sum(row["size"] for row in batch) <= limit
    assert len(batches) < 20
    places = [(row["queue_id"], row["queue_offset"]) for batch in batches for row in batch]
    assert len(set(places)) == 60


def test_message_larger_than_the_limit_is_read_all_the_same(broker, producer, admin) -> None:
    producer.send(Message("Orders", bytes(3_000)))
    broker.wait_dispatched()
    with open_reader(namesrv=broker.namesrv, topics="Orders", maxBytesPerTrigger="10") as reader:
        assert len(Batches(reader).next()) == 1


def test_trigger_that_wants_everything_gets_it_whatever_the_limits(broker, producer, admin) -> None:
    send(broker, producer, "Orders", 0, 50)
    with open_reader(namesrv=broker.namesrv, topics="Orders", maxRowsPerTrigger="3") as reader:
        assert len(Batches(reader).next(ReadAllAvailable())) == 50


@pytest.mark.feature("P8")
def test_available_now_ends_with_what_was_there_when_it_began(broker, producer, admin) -> None:
    send(broker, producer, "Orders", 0, 20)
    with open_reader(namesrv=broker.namesrv, topics="Orders", maxRowsPerTrigger="7") as reader:
        reader.prepareForTriggerAvailableNow()
        send(broker, producer, "Orders", 20, 40)

        assert bodies(Batches(reader).all()) == numbered(0, 20)
        assert through_json(reader.reportLatestOffset()) == {
            "queues": {"Orders": {"broker-a": {"0": 5, "1": 5, "2": 5, "3": 5}}},
            "from": {},
        }


def test_only_the_tags_that_are_asked_for_are_read(broker, producer, admin) -> None:
    for number in range(30):
        producer.send(Message("Orders", b"message %d" % number, tag=f"Tag{number % 3}"))
    broker.wait_dispatched()
    with open_reader(namesrv=broker.namesrv, topics="Orders", tags="Tag0,Tag1") as reader:
        found = Batches(reader).next()

    assert len(found) == 20
    assert {row["tags"] for row in found} == {"Tag0", "Tag1"}


# --- the group ---


@pytest.mark.feature("P8")
def test_group_follows_and_its_lag_goes_to_zero_with_nobody_online(broker, producer, admin) -> None:
    send(broker, producer, "Orders", 0, 20)
    with open_reader(
        namesrv=broker.namesrv, topics="Orders", group="stream", maxRowsPerTrigger="12"
    ) as reader:
        stream = Batches(reader)
        stream.next()
        assert admin.progress("stream", "Orders").lag == 20
        stream.next()
        assert admin.progress("stream", "Orders").lag == 8
        # Nothing more comes, so Spark does not call `commit` for the last batch.
        assert stream.next() == []

    progress = admin.progress("stream")
    assert progress.lag == 0
    assert [queue.consumer_offset for queue in progress.queues] == [5, 5, 5, 5]
    assert not admin.consumers("stream").is_online


def test_group_that_the_broker_does_not_make_is_named_with_what_to_do() -> None:
    with (
        Broker(settings={"autoCreateSubscriptionGroup": "false"}) as broker,
        Producer(broker.namesrv, "producers") as producer,
        Admin(broker.namesrv) as admin,
    ):
        admin.create_topic("Orders", queues=1)
        send(broker, producer, "Orders", 0, 3)
        with open_reader(namesrv=broker.namesrv, topics="Orders", group="stream") as reader:
            stream = Batches(reader)
            stream.next()
            with pytest.raises(ConfigError, match="orbitmq group create stream"):
                stream.next()
            admin.create_group("stream")
            stream.next()
            assert admin.progress("stream", "Orders").lag == 0


# --- what may happen to brokers ---


def test_broker_that_is_restarted_is_waited_for(broker, producer, admin) -> None:
    send(broker, producer, "Orders", 0, 3_000)
    restarts = threading.Thread(target=lambda: [broker.restart() for _ in range(3)])
    with open_reader(
        namesrv=broker.namesrv, topics="Orders", group="stream", maxRowsPerTrigger="150"
    ) as reader:
        stream = Batches(reader)
        found = stream.next()
        restarts.start()
        while len(found) < 3_000:
            found += stream.next()
        restarts.join()
        stream.next()

    assert bodies(found) == numbered(0, 3_000)
    broker.wait_dispatched()
    assert admin.progress("stream", "Orders").lag == 0


def test_name_server_that_is_not_there_is_an_error_after_a_while(monkeypatch) -> None:
    monkeypatch.setattr(stream_cluster, "RETRY_S", 0.5)
    with (
        open_reader(namesrv="127.0.0.1:1", topics="Orders") as reader,
        pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"),
    ):
        Batches(reader).next()


def test_messages_deleted_before_they_were_read_are_an_error_that_says_what_to_set(
    tmp_path: Path,
) -> None:
    root = golden_stores.unpack("cleaned", tmp_path)
    with Broker(root, settings=golden_stores.settings("cleaned")) as broker:
        with Admin(broker.namesrv) as admin:
            topic, kept = _cleaned_queue(admin)
        start = f'{{"{topic}": {{"{kept.queue.broker_name}": {{"0": 0}}}}}}'
        options = {"namesrv": broker.namesrv, "topics": topic, "startingOffsets": start}
        with (
            open_reader(**options) as reader,
            pytest.raises(PipelineError, match=r"deleted before the stream read them.*badRecords"),
        ):
            Batches(reader).next()
        with open_reader(**options, badRecords="skip") as reader:
            found = [row for row in Batches(reader).next() if row["queue_id"] == 0]

    assert [row["queue_offset"] for row in found] == list(range(kept.min_offset, kept.max_offset))


def _cleaned_queue(admin: Admin):
    for topic in admin.topics():
        for stats in admin.topic_stats(topic):
            if stats.queue.queue_id == 0 and 0 < stats.min_offset < stats.max_offset:
                return topic, stats
    raise AssertionError("the store has no queue 0 whose first messages were deleted")


def test_queue_that_ends_before_what_was_read_is_an_error_when_it_stays_so(
    broker, producer, admin, monkeypatch
) -> None:
    monkeypatch.setattr(stream_topics, "RETRY_S", 0.2)
    send(broker, producer, "Orders", 0, 4)
    at = {"queues": {"Orders": {"broker-a": {"0": 50}}}, "from": {}}
    with open_reader(namesrv=broker.namesrv, topics="Orders") as reader:
        stream = Batches(reader, at)
        stream.next()
        time.sleep(0.3)  # sleep: longer than RETRY_S
        with pytest.raises(PipelineError, match="queue 0 ends at 1, but the stream has read it"):
            stream.next()


def test_checkpoint_of_another_kind_of_stream_is_refused(broker, admin) -> None:
    with (
        open_reader(namesrv=broker.namesrv, topics="Orders") as reader,
        pytest.raises(PipelineError, match="checkpointLocation"),
    ):
        reader.latestOffset({"log": 5}, ReadAllAvailable())
