"""Streaming queries on a real Spark: a store directory and a live cluster into Parquet, from checkpoints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from orbitmq.client.sync.admin import Admin
from orbitmq.client.sync.producer import Producer
from orbitmq.testing import Broker
from spark.stream_world import WAIT_S, numbered, send, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("interpreted")]


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


class Sink:
    """A Parquet directory and the checkpoint of the query that fills it."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._out, self._checkpoint = (
            spark,
            str(root / "out"),
            str(root / "checkpoint"),
        )

    def start(self, frame: DataFrame, **trigger: Any) -> StreamingQuery:
        writer = frame.selectExpr("cast(body as string) body", "queue_id", "queue_offset")
        started = writer.writeStream.format("parquet").option("path", self._out)
        return started.option("checkpointLocation", self._checkpoint).trigger(**trigger).start()

    def run(self, frame: DataFrame) -> list[Any]:
        """Take what is there now; return the progress of each batch that had rows."""
        query = self.start(frame, availableNow=True)
        assert query.awaitTermination(WAIT_S)
        return [one for one in query.recentProgress if one["numInputRows"]]

    def bodies(self) -> list[str]:
        return sorted(row.body for row in self._spark.read.parquet(self._out).collect())


@pytest.fixture
def sink(spark: SparkSession, tmp_path: Path) -> Sink:
    return Sink(spark, tmp_path)


def stream(spark: SparkSession, **options: str) -> DataFrame:
    return spark.readStream.format("orbitmq").options(**options).load()


@pytest.mark.feature("P8")
def test_available_now_over_a_store_takes_each_record_once_in_batches_below_the_limit(
    spark, broker, producer, admin, sink
) -> None:
    frame = stream(spark, path=str(broker.store_path), maxRowsPerTrigger="40")
    send(broker, producer, "Orders", 0, 100)

    first = sink.run(frame)
    send(broker, producer, "Orders", 100, 130)
    second = sink.run(frame)

    assert [one["numInputRows"] for one in first] == [40, 40, 20]
    assert [one["numInputRows"] for one in second] == [30]
    assert sink.bodies() == numbered(0, 130)


@pytest.mark.feature("P8")
def test_available_now_over_a_cluster_commits_the_group_and_goes_on_from_the_checkpoint(
    spark, broker, producer, admin, sink
) -> None:
    options = {"namesrv": broker.namesrv, "topics": "Orders,Stock*", "group": "stream"}
    frame = stream(spark, **options, maxRowsPerTrigger="40")
    send(broker, producer, "Orders", 0, 100)

    first = sink.run(frame)
    assert admin.progress("stream").lag == 0
    admin.create_topic("StockEurope", queues=2)
    admin.create_topic("Orders", queues=6)
    with Producer(broker.namesrv, "more") as knows_all_queues:
        send(broker, knows_all_queues, "Orders", 100, 130)
        send(broker, knows_all_queues, "StockEurope", 130, 150)
    assert admin.progress("stream").lag == 30
    sink.run(frame)

    assert [one["numInputRows"] for one in first] == [40, 40, 20]
    assert sink.bodies() == numbered(0, 150)
    progress = admin.progress("stream")
    assert progress.topics == ["Orders", "StockEurope"]
    assert progress.lag == 0


@pytest.mark.feature("P8")
def test_query_that_runs_on_follows_new_topics_over_restarts_of_the_broker(
    spark, broker, producer, admin, sink
) -> None:
    options = {"namesrv": broker.namesrv, "topics": "Orders,Late", "group": "stream"}
    query = sink.start(stream(spark, **options), processingTime="100 milliseconds")
    try:
        send(broker, producer, "Orders", 0, 50)
        wait_until(lambda: _committed(admin, "Orders") == 50)
        broker.restart()
        admin.create_topic("Late", queues=2)
        send(broker, producer, "Late", 50, 80)
        send(broker, producer, "Orders", 80, 100)
        wait_until(lambda: _committed(admin, "Orders") + _committed(admin, "Late") == 100)
        (source,) = query.lastProgress["sources"]
    finally:
        query.stop()

    assert query.exception() is None
    assert sink.bodies() == numbered(0, 100)
    assert "Late" in source["latestOffset"]


def _committed(admin: Admin, topic: str) -> int:
    return sum(queue.consumer_offset for queue in admin.progress("stream").of_topic(topic))


def test_error_of_a_stream_says_in_one_sentence_what_to_do(spark, broker, admin, sink) -> None:
    frame = stream(spark, namesrv=broker.namesrv, topics="Orders", startingOffsets="soon")

    with pytest.raises(StreamingQueryException, match="startingOffsets = 'soon': must be earliest"):
        sink.start(frame, availableNow=True).awaitTermination(WAIT_S)
