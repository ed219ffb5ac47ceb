"""Java and Go clients on a broker whose queues and index only a Spark job writes."""

from collections.abc import Iterator
from functools import partial

import pytest

from compat import scenarios
from compat.client_kinds import Clients
from compat.clusters import Cluster
from compat.our_cluster import our_broker, our_namesrv
from compat.side_by_side import begun
from spark.dispatch_process import job_process

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.compat, pytest.mark.spark, pytest.mark.timeout(900)]

SCENARIOS = (
    scenarios.sends_every_way,
    scenarios.gets_only_its_tags,
    scenarios.comes_again_after_a_failure,
    scenarios.keeps_the_order_of_each_queue,
)


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


@pytest.mark.feature("P7")
@pytest.mark.parametrize("client", ["java-new-json", "go"])
def test_a_client_sends_and_receives(client: str, cluster: Cluster, clients: Clients) -> None:
    one = clients.get(client, cluster.namesrv)
    runs = {played.__name__: partial(played, cluster, one) for played in SCENARIOS}

    with begun(runs) as outcomes:
        for outcome in outcomes.values():
            outcome()
