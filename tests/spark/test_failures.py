"""Errors of Spark as errors of ours: the type and the sentence that a task raised, no Java alone."""

import os
from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader

from orbitmq.errors import (
    ConfigError,
    CorruptRecordError,
    JobFailedError,
    OrbitError,
    SparkSetupError,
)
from orbitmq.spark.failures import clear_errors, explained

pytestmark = pytest.mark.spark


class PlannedToFail(DataSource):
    """Fails where an option says: in the planning of a query or in a task."""

    @classmethod
    def name(cls) -> str:
        return "planned-to-fail"

    def schema(self) -> str:
        if self.options["where"] == "schema":
            raise ConfigError("where", "schema", "must be elsewhere")
        return "id long"

    def reader(self, schema: object) -> DataSourceReader:
        return FailingReader()


class FailingReader(DataSourceReader):
    def read(self, partition: object) -> Iterator[tuple[int]]:
        raise CorruptRecordError("/store/commitlog/000", 77, "no valid record", "Repair it.")


def wrong_setting(_: int) -> None:
    raise ConfigError("splitBytes", -1, "must be positive")


def no_such_column(_: int) -> None:
    raise KeyError("body")


def end_at_once(_: int) -> None:
    os._exit(9)


def run_task(spark: SparkSession, task: Callable[[int], None]) -> None:
    with clear_errors("the test"):
        spark.sparkContext.parallelize([1], 1).foreach(task)


def test_the_error_that_a_task_raised_comes_back(spark: SparkSession):
    with pytest.raises(ConfigError) as caught:
        run_task(spark, wrong_setting)

    assert str(caught.value) == "setting splitBytes = -1: must be positive"
    assert caught.value.exit_code == 2
    assert caught.value.setting is None
    assert isinstance(caught.value.__cause__, PySparkException)


def test_errors_of_planning_and_of_reading_come_back(spark: SparkSession):
    spark.dataSource.register(PlannedToFail)
    read = spark.read.format("planned-to-fail")

    planning = pytest.raises(ConfigError, match="setting where = 'schema': must be elsewhere")
    with planning, clear_errors("the test"):
        read.option("where", "schema").load()
    reading = pytest.raises(CorruptRecordError, match="/store/commitlog/000: position 77: no valid")
    with reading, clear_errors("the test"):
        read.option("where", "task").load().collect()


def test_an_error_of_somebody_else_is_one_sentence(spark: SparkSession):
    with pytest.raises(JobFailedError) as caught:
        run_task(spark, no_such_column)

    assert str(caught.value) == (
        "the test failed: KeyError: 'body'. ORBITMQ_DEBUG=1 shows all of what Spark said."
    )


def test_a_worker_that_dies_is_one_sentence(spark: SparkSession):
    with pytest.raises(JobFailedError, match="the test: a Python worker ended") as caught:
        run_task(spark, end_at_once)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        (
            "Traceback (most recent call last):\nModuleNotFoundError: No module named 'numba'",
            SparkSetupError,
            "the Python of the executors has no module numba",
        ),
        (
            'java.io.IOException: Cannot run program "/no/python3": error=2',
            SparkSetupError,
            "Spark cannot start /no/python3",
        ),
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than 3.11.",
            SparkSetupError,
            "Python in worker has different version",
        ),
        (
            ": java.lang.OutOfMemoryError: Java heap space\n\tat java.base/java.util.Arrays",
            JobFailedError,
            "the JVM ran out of memory (Java heap space)",
        ),
        (
            "ExecutorLostFailure (executor 1 exited) Reason: Command exited with code 137",
            JobFailedError,
            "an executor was lost too often (Command exited with code 137)",
        ),
        (
            "An error occurred while calling o1.load.\n"
            ": org.apache.spark.SparkException: no such thing\n\tat org.apache.spark.A.b(C.scala:1)",
            JobFailedError,
            "the test failed: no such thing.",
        ),
        ("", JobFailedError, "Spark gave no reason"),
    ],
    ids=["module", "program", "version", "memory", "executor", "other", "empty"],
)
def test_what_many_meet_is_said_in_one_sentence(text: str, kind: type[OrbitError], sentence: str):
    error = explained(Py4JError(text), "the test")

    assert type(error) is kind
    assert sentence in str(error)
    assert "\n" not in str(error)


def test_causes_give_way_to_what_came_of_them():
    text = (
        "Traceback (most recent call last):\n"
        "orbitmq.errors.FormatError: short (at byte 7)\n\n"
        "The above exception was the direct cause of the following exception:\n\n"
        "Traceback (most recent call last):\n"
        "orbitmq.errors.CorruptRecordError: /x: position 7: short. Repair it.\n"
    )

    error = explained(Py4JError(text), "the test")

    assert type(error) is CorruptRecordError
    assert str(error) == "/x: position 7: short. Repair it."


def test_a_jvm_that_is_gone_is_said():
    error = explained(Py4JNetworkError("Answer from Java side is empty"), "the test")

    assert str(error).startswith("the test: Spark's JVM is gone")


def test_errors_of_ours_and_of_python_pass():
    ours = ConfigError("a", 1, "no")

    assert explained(ours, "the test") is ours
    with pytest.raises(ZeroDivisionError), clear_errors("the test"):
        raise ZeroDivisionError
