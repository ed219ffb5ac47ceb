"""`orbitmq spark doctor`: what is there, what is wrong, and the exit code."""

import importlib.metadata
import json
import sys
from pathlib import Path

import pytest

import command
import golden_stores
from orbitmq.cli.spark.options import require_pyspark, spark_settings
from orbitmq.errors import ConfigError, SparkSetupError
from orbitmq.spark.start import doctor
from spark.bare_python import make_bare_python
from spark.drivers import ONE_EXECUTOR, SMALL, quick_executors
from spark.standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

CONF = [word for item in SMALL.items() for word in ("--conf", "=".join(item))]


def states(text: str) -> dict[str, str]:
    return {row["what"]: row["state"] for row in json.loads(text)}


def test_a_machine_as_it_should_be_is_all_ok(tmp_path: Path):
    done = command.run("spark", "doctor", "--master", "local[1]", *CONF)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if "  ok " in f" {line}"]
    assert [line[1] for line in lines] == [
        *("python", "pyspark", "pyarrow", "numba", "SPARK_HOME", "java", "class"),
        *("machine", "PYSPARK_PYTHON", "spark", "reader", "workers"),
    ]
    assert done.stderr == ""


def test_workers_without_the_package_are_a_problem_with_the_next_step(
    cluster: StandaloneCluster, tmp_path: Path
):
    python = make_bare_python(tmp_path)
    executors = quick_executors() | ONE_EXECUTOR | {"spark.task.maxFailures": "1"}
    conf = [
        *CONF,
        *(word for pair in executors.items() for word in ("--conf", "=".join(pair))),
    ]
    options = ["--master", cluster.master, *conf, "--conf", "spark.orbitmq.package=installed"]

    done = command.run("spark", "doctor", "--output", "json", *options, PYSPARK_PYTHON=str(python))

    assert done.returncode == 1, done.stdout + done.stderr
    assert states(done.stdout)["workers"] == "problem"
    workers = json.loads(done.stdout)[-1]
    assert workers["found"] == "a tiny job: the Python of the executors has no module orbitmq"
    assert "docs/SPARK.md" in workers["next_step"]


def test_a_wrong_java_is_a_problem_and_spark_is_not_started(tmp_path: Path):
    done = command.run("spark", "doctor", "--output", "json", JAVA_HOME=str(tmp_path))

    assert done.returncode == 1
    found = states(done.stdout)
    assert found["java"] == "problem"
    assert "spark" not in found


def test_a_wrong_java_ends_a_command_with_one_sentence(tmp_path: Path):
    store = golden_stores.unpack("mixed", tmp_path)
    config = golden_stores.GOLDEN / "mixed.conf"
    no_java = str(tmp_path / "no-java")

    done = command.run("spark", "verify", store, "--config", config, JAVA_HOME=no_java)

    assert done.returncode == 2
    assert done.stderr.startswith(f"orbitmq: JAVA_HOME is {tmp_path}")
    assert len(done.stderr.splitlines()) == 1


def test_a_spark_home_of_another_version_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert not doctor._spark_home().ok

    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core_2.13-3.5.1.jar").write_bytes(b"")
    check = doctor._spark_home()

    assert not check.ok
    assert "Spark 3.5.1" in check.found


@pytest.mark.parametrize(
    ("name", "version", "ok"),
    [
        ("pyspark", "4.3.0", True),
        ("pyspark", "4.4.0", False),
        ("pyspark", "3.5.1", False),
        ("pyarrow", "17.0.0", False),
        ("pyarrow", "26.0.1", True),
        ("numba", "0.61.2", True),
        ("numba", "0.60.0", False),
    ],
)
def test_versions_are_compared(monkeypatch: pytest.MonkeyPatch, name: str, version: str, ok: bool):
    monkeypatch.setattr(importlib.metadata, "version", lambda _: version)

    assert doctor._library(name, doctor.LIBRARIES[name]).ok is ok


def test_a_missing_library_is_a_problem(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)

    check = doctor._library("pyspark", "4.3")

    assert (check.ok, check.next_step) == (False, "pip install 'orbitmq[spark]'")


def test_a_command_without_the_extra_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(SparkSetupError, match=r"pip install 'orbitmq\[spark\]'"):
        require_pyspark()


def test_settings_are_pairs():
    assert spark_settings(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    with pytest.raises(ConfigError, match="must be NAME=VALUE"):
        spark_settings(["a"])


def test_the_archive_is_written(tmp_path: Path):
    done = command.run("spark", "package", tmp_path / "orbitmq.zip")

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "orbitmq.zip").stat().st_size > 100_000
