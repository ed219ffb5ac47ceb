"""`orbitmq spark export --namesrv`: a cluster's topics by their queue offsets, each message once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import Message, Producer
from orbitmq.errors import NoRouteError, PipelineError
from orbitmq.spark.jobs.export.job import export
from orbitmq.spark.jobs.export.report import ExportReport
from orbitmq.testing import Broker
from spark.export_world import FORMATS, lake_rows, leftovers, log_rows
from spark.rebuild_world import InProcessSpark

pytestmark = pytest.mark.spark

TOPICS = ("Pull0", "Pull1")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        send(running, 120)
        yield running


def send(broker: Broker, count: int) -> None:
    with Producer(broker.namesrv, "lake") as producer:
        for number in range(count):
            producer.send(Message(TOPICS[number % 2], b"%d" % number * 40, tag=f"t{number % 3}"))
    broker.wait_dispatched()


def export_cluster(broker: Broker, lake: Path, **given: Any) -> ExportReport:
    spark: Any = InProcessSpark()
    return export(spark, lake, namesrv=broker.namesrv, **given)


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", FORMATS)
def test_a_cluster_is_exported_by_its_queues_each_message_once(
    format_: str, broker: Broker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    counted = export_cluster(broker, lake, dry_run=True)
    first = export_cluster(broker, lake, format=format_)
    send(broker, 30)
    second = export_cluster(broker, lake, format=format_)
    third = export_cluster(broker, lake, format=format_)

    assert (counted.rows, first.rows, second.rows, third.rows) == (120, 120, 30, 0)
    for topic in TOPICS:
        assert lake_rows(lake, format_, topic) == log_rows(broker.store_path, topic)
    assert not leftovers(lake)


@pytest.mark.feature("P18")
def test_a_clusters_lake_begins_at_a_time_and_is_filled_in_later(
    broker: Broker, tmp_path: Path
) -> None:
    lake = tmp_path / "lake"

    assert export_cluster(broker, lake, since="now", topics=["Pull0"]).rows == 0
    send(broker, 10)
    assert export_cluster(broker, lake, topics=["Pull0"]).rows == 5
    assert export_cluster(broker, lake, from_offset=0).rows == 60 + 65

    for topic in TOPICS:
        assert lake_rows(lake, "parquet", topic) == log_rows(broker.store_path, topic)


@pytest.mark.feature("P10")
def test_a_lake_of_queues_takes_no_log_and_no_other_cluster(broker: Broker, tmp_path: Path) -> None:
    lake, spark = tmp_path / "lake", InProcessSpark()
    export_cluster(broker, lake)

    with pytest.raises(PipelineError, match="by the offsets of queues"):
        export(spark, lake, store=broker.store_path)  # type: ignore[arg-type]
    with pytest.raises(NoRouteError):
        export_cluster(broker, tmp_path / "misspelled", topics=["Pul0"])
    with Broker() as other:
        send(other, 4)
        with pytest.raises(PipelineError, match="but this lake holds it up to"):
            export_cluster(other, lake)
