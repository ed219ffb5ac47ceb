"""RocketMQ's own store classes and its broker on a store that a load made: every row, in order."""

import hashlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat.java_cluster import SMALL_BROKER, java_broker
from compat.java_store import needs_java, read_store
from compat.our_cluster import our_namesrv
from compat.our_store import require_consistent
from compat.server_process import await_route
from orbitmq.client import Message, Producer
from orbitmq.spark import load
from spark.load_world import SETTINGS, read_queues, require_rows, rows, table

pytestmark = [pytest.mark.compat, pytest.mark.spark, needs_java, pytest.mark.timeout(600)]


@pytest.mark.feature("P14", "X2.ours-to-java")
def test_the_java_store_serves_a_loaded_store_in_order(spark: SparkSession, tmp_path: Path) -> None:
    messages = rows(900)
    load(table(spark, messages), tmp_path / "store", SETTINGS)

    view = read_store(tmp_path / "store", SETTINGS, shutdown=False)

    require_consistent(view)
    assert len(view.records) == 900
    for (topic, queue_id), queue in view.gets.items():
        wanted = [row for row in messages if (row.topic, row.queue_id) == (topic, queue_id)]
        offsets = [log_offset for _, log_offset, _ in queue["messages"]]
        bodies = {record["log_offset"]: record["body_sha256"] for record in view.records}
        assert [bodies[offset] for offset in offsets] == [_sha256(row.body) for row in wanted]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.mark.feature("P14", "X2.ours-to-java")
def test_a_java_broker_serves_a_loaded_store_and_goes_on_with_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    messages = rows(2000)
    load(table(spark, messages), tmp_path / "java" / "store", SMALL_BROKER)
    topics = sorted({row.topic for row in messages})

    with (
        our_namesrv(tmp_path) as namesrv,
        java_broker(tmp_path, namesrv=namesrv.address, root=tmp_path / "java"),
        Producer(namesrv.address, "behind") as producer,
    ):
        for topic in topics:
            await_route(namesrv.address, topic)
        require_rows(read_queues(namesrv.address, topics), messages)
        sent = producer.send(Message("Orders", b"behind them"))

    wanted = [
        row for row in messages if row.topic == "Orders" and row.queue_id == sent.queue.queue_id
    ]
    assert sent.queue_offset == len(wanted)
