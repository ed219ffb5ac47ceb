"""What we reach into of PySpark may be gone in its next release: it degrades, it does not break.

docs/PYSPARK-PATCHES.md lists the places.
"""

import io
import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, accumulators, java_gateway
from pyspark import daemon as of_spark
from pyspark import worker as spark_worker
from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from orbitmq.spark import context as contexts
from orbitmq.spark.jobs.load.arrow_map import map_in_arrow
from orbitmq.spark.source.cluster_table import ClusterTable
from orbitmq.spark.source.log_table import LogTable
from orbitmq.spark.source.row_columns import ARROW_SCHEMA, arrow_schema
from orbitmq.spark.source.schemas import KEY_SCHEMA, MESSAGE_SCHEMA
from orbitmq.spark.start import session, workers
from orbitmq.spark.start.workers import acknowledging

pytestmark = pytest.mark.spark


# The daemon


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what serves, in place of a loop without an end."""
    done: list[str] = []
    monkeypatch.setattr(of_spark, "worker", of_spark.worker)  # put back afterwards
    monkeypatch.setattr(of_spark, "manager", lambda: done.append("manager"))
    monkeypatch.setattr(
        workers.runpy, "run_module", lambda name, **how: done.append(f"{name} as {how['run_name']}")
    )
    return done


def test_without_the_function_of_a_worker_spark_runs_its_own(
    served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(of_spark, "worker")

    workers.serve_tasks()

    assert served == ["manager"]
    assert not hasattr(of_spark, "worker")


def test_without_a_manager_the_daemon_is_run_as_spark_runs_it(
    served: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(of_spark, "manager")

    workers.serve_tasks()

    assert served == ["pyspark.daemon as __main__"]
    assert isinstance(of_spark.worker, workers.Worker)


def test_a_worker_hands_on_whatever_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "take_over", lambda sock: None)
    monkeypatch.setattr(workers, "keep_objects", lambda: None)
    given: list[Any] = []

    def run(*words: Any) -> int:
        given.extend(words)
        return 0

    with socket.socket() as sock:
        assert workers.Worker(run)(sock, True, "something new") == 0
        assert given == [sock, True, "something new"]


def test_a_task_module_without_main_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(spark_worker, "main")

    with socket.socket() as sock:
        workers.take_over(sock)

    assert not hasattr(spark_worker, "main")


def test_a_main_gets_files_of_another_kind_and_more_arguments_as_they_are() -> None:
    given: list[Any] = []
    infile, outfile = SimpleNamespace(read=lambda size: b""), io.BytesIO()

    with socket.socket() as sock:
        acknowledging(lambda *words: given.extend(words), sock)(infile, outfile, "something new")

    assert given == [infile, outfile, "something new"]


# The driver


def test_a_jvm_that_is_started_some_other_way_is_not_looked_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(java_gateway, "Popen")
    done = []

    with session.no_jvm_left_behind():
        done.append("start")
    with pytest.raises(KeyboardInterrupt), session.no_jvm_left_behind():
        raise KeyboardInterrupt

    assert done == ["start"]
    assert not hasattr(java_gateway, "Popen")


def test_a_broken_start_says_its_own_error_where_no_gateway_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(SparkContext, "_gateway")
    process: list[subprocess.Popen[bytes]] = []

    def broken_off() -> None:
        with session.no_jvm_left_behind():
            process.append(java_gateway.Popen([sys.executable, "-c", "input()"], stdin=-1))
            raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        broken_off()
    assert process[0].poll() is not None
    process[0].stdin.close()


def test_a_session_counts_as_not_running_where_no_context_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(SparkContext, "_active_spark_context")
    monkeypatch.delenv(session.SUBMITTED, raising=False)

    assert not session._is_running()


@pytest.mark.parametrize("gone", ["server", "class"])
def test_a_context_stops_as_slowly_as_spark_has_it(
    monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    stopped = []
    context = SimpleNamespace(stop=lambda: stopped.append("stop"))
    if gone == "class":
        monkeypatch.delattr(accumulators, "AccumulatorTCPServer")
        context._accumulatorServer = object()

    contexts.stop_quickly(context)

    assert stopped == ["stop"]


# The source


def test_a_reader_overrides_nothing_of_its_class() -> None:
    """However Spark asks whether filters are pushed: by the class there is nothing, and it filters itself."""
    assert LogTable.pushFilters is DataSourceReader.pushFilters
    assert ClusterTable.pushFilters is DataSourceReader.pushFilters


@pytest.mark.parametrize("schema", [MESSAGE_SCHEMA, KEY_SCHEMA], ids=["messages", "keys"])
def test_arrow_types_are_those_that_spark_itself_would_take(schema: StructType) -> None:
    expected = to_arrow_schema(schema, timezone="UTC")

    assert arrow_schema(schema).equals(expected, check_metadata=True)
    assert ARROW_SCHEMA.equals(to_arrow_schema(KEY_SCHEMA, timezone="UTC"))


# Loads


def test_without_the_class_of_functions_a_load_asks_spark_which_wants_pandas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr("pyspark.sql.udf.UserDefinedFunction")
    frame: Any = SimpleNamespace(columns=[], mapInArrow=lambda work, schema: (work, schema))

    assert map_in_arrow(frame, iter, "facts binary") == (iter, "facts binary")
