"""Java and Go clients on a broker whose queues and index only a Spark job writes."""

from collections.abc import Iterator

import pytest

from compat import scenarios
from compat.client_kinds import go_client, java_client, why_no
from compat.client_program import ClientProgram
from compat.clusters import Cluster
from compat.java_store import needs_java
from compat.our_cluster import our_broker, our_namesrv
from spark.dispatch_process import job_process

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.compat, pytest.mark.spark, pytest.mark.timeout(900)]

needs_go = pytest.mark.skipif(why_no("go") is not None, reason=why_no("go") or "")
MODES = ("sync", "async", "oneway", "batch")


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Cluster]:
    """A broker with its job; at the end the job tells how long records took."""
    directory = tmp_path_factory.mktemp("spark-dispatch")
    settings = {"dispatch": "spark"}
    with (
        our_namesrv(directory) as namesrv,
        our_broker(directory, namesrv=namesrv.address, settings=settings) as broker,
        job_process(broker.root / "store", directory) as job,
    ):
        yield Cluster("spark", namesrv.address, broker)
        told = job.stop()
        assert told["behind_bytes"] == 0
        assert told["records"] > 0
        times = f"p50 {told['latency_ms_p50']:.0f} ms, p99 {told['latency_ms_p99']:.0f} ms"
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nappend to dispatched by Spark: {times}")  # noqa: T201


@pytest.fixture(
    scope="module",
    params=[pytest.param("java", marks=needs_java), pytest.param("go", marks=needs_go)],
)
def program(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClientProgram]:
    start = {"java": java_client, "go": go_client}[request.param]
    with start(tmp_path_factory.mktemp(request.param), cluster.namesrv) as running:
        yield running


@pytest.mark.feature("P7")
def test_messages_sent_in_every_way_arrive_once_where_the_answer_said(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.sends_every_way(cluster, program, MODES)


@pytest.mark.feature("P7")
def test_a_consumer_gets_only_the_tags_that_it_asked_for(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.gets_only_its_tags(cluster, program)


def test_a_failed_message_comes_again(cluster: Cluster, program: ClientProgram) -> None:
    scenarios.comes_again_after_a_failure(cluster, program)


def test_an_orderly_consumer_sees_each_queue_in_order(
    cluster: Cluster, program: ClientProgram
) -> None:
    scenarios.keeps_the_order_of_each_queue(cluster, program)
