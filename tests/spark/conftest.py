"""One Spark session for all tests of this folder: a JVM takes seconds to start."""

import os
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from orbitmq.spark.start.session import make_session
from spark.drivers import SHORT_LIFE
from spark.s3_world import KEYS, S3Server, s3_server
from spark.standalone import StandaloneCluster, standalone_cluster

# Before each JVM of Spark there is another one, which makes its command line.
os.environ.setdefault("SPARK_LAUNCHER_OPTS", SHORT_LIFE)
# Of the S3 server: the JVM of the shared session hands its own variables to tasks.
os.environ.update(KEYS)

CONF = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIFE,
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "1",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = make_session(app="orbitmq-tests", master="local[2]", conf=CONF)
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture
def interpreted(spark: SparkSession) -> Iterator[SparkSession]:
    """Return a session that compiles nothing: what a test asks once is compiled for nothing."""
    names = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value or "")


@pytest.fixture(scope="session")
def cluster() -> Iterator[StandaloneCluster]:
    """A master and two workers, for commands and drivers that run as processes of their own."""
    with standalone_cluster(workers=2, cores=1, memory="1g") as running:
        yield running


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with one bucket; a test takes names of its own in it."""
    with s3_server(tmp_path_factory.mktemp("s3")) as running:
        yield running
