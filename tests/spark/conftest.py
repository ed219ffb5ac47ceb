"""One Spark session for all tests of this folder: a JVM takes seconds to start."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.start.session import make_session
from spark.standalone import StandaloneCluster, standalone_cluster

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session(app="orbitmq-tests", master="local[2]", conf=CONF)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def cluster() -> Iterator[StandaloneCluster]:
    """A master and two workers, for commands and drivers that run as processes of their own."""
    with standalone_cluster(workers=2, cores=1, memory="1g") as running:
        yield running
