"""The sink into a cluster with RocketMQ's own broker: the same promises, by its own requests alone."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from compat.java_cluster import java_broker
from compat.java_store import needs_java
from compat.our_cluster import our_namesrv
from compat.server_process import ServerProcess, await_route, create_topic
from orbitmq.client import Admin
from orbitmq.spark.sink.options import GROUP
from orbitmq.spark.source.source import OrbitmqSource
from spark.sink_world import Write, messages_of, require_each_once, rows, schema_of
from spark.stream_world import wait_until
from spark.test_sink_kills import Faults

pytestmark = [pytest.mark.spark, pytest.mark.compat, needs_java, pytest.mark.timeout(600)]

COUNT = 300


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Yield a name server with a Java broker, which has the topics of the tests."""
    directory = tmp_path_factory.mktemp("java-sink")
    with ExitStack() as stack:
        namesrv = stack.enter_context(our_namesrv(directory))
        broker = stack.enter_context(java_broker(directory, namesrv=namesrv.address))
        for topic in ("Whole", "Faulty", "Later"):
            create_topic(broker.address, topic)
            await_route(namesrv.address, topic)
        yield namesrv


def count_of(namesrv: str, topic: str) -> int:
    with Admin(namesrv) as admin:
        return sum(stats.message_count for stats in admin.topic_stats(topic))


@pytest.mark.feature("P9")
def test_a_java_broker_gets_each_row_once_with_all_its_parts_in_order(
    cluster: ServerProcess, tmp_path: Path
) -> None:
    given = rows(COUNT, "Whole")
    for _ in range(2):
        write = Write(cluster.address, stagingPath=str(tmp_path), writeId="w", batchRows="40")
        write.tasks(given, 3).commit()
    wait_until(lambda: count_of(cluster.address, "Whole") >= COUNT)
    require_each_once(cluster.address, "Whole", given)


@pytest.mark.feature("P9")
def test_sends_to_a_java_broker_that_were_not_answered_leave_each_row_once(
    cluster: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = rows(COUNT, "Faulty")
    answers = iter(["ok"] * 9 + ["unanswered"] + ["ok"] * 5 + ["busy", "ok", "lost"])
    faults = Faults(monkeypatch, lambda: next(answers, "ok"))

    Write(cluster.address, stagingPath=str(tmp_path), batchRows="7").tasks(given, 3).commit()

    wait_until(lambda: count_of(cluster.address, "Faulty") >= COUNT)
    require_each_once(cluster.address, "Faulty", given)
    assert {"unanswered", "busy", "lost"} <= set(faults.seen)
    with Admin(cluster.address) as admin:
        assert admin.producers(GROUP, "Faulty") == []


@pytest.mark.feature("P9")
def test_delayed_rows_whose_sends_a_java_broker_did_not_answer_come_once(
    cluster: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["unanswered"] * 3)
    Faults(monkeypatch, lambda: next(answers, "ok"))
    options = {"namesrv": cluster.address, "topic": "Later", "stagingPath": str(tmp_path)}
    schema = schema_of("body string, delay_level int, delay_ms int")
    writer: Any = OrbitmqSource(options=options).writer(schema, False)
    columns = {"body": ["a", "b", "c"], "delay_level": [1, 0, 0], "delay_ms": [0, 1000, 0]}

    writer.commit([writer.write(iter([pa.record_batch(columns)]))])

    wait_until(lambda: count_of(cluster.address, "Later") >= 3)
    found = sorted(message.body for message in messages_of(cluster.address, "Later"))
    assert found == [b"a", b"b", b"c"]
