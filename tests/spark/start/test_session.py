"""The session: what is set, what is left alone, what its tasks find."""

import os
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from orbitmq.errors import ConfigError
from orbitmq.spark.start import session as session_module
from orbitmq.spark.start.daemon import installed_first
from orbitmq.spark.start.java import find_java
from orbitmq.spark.start.session import make_session, register

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    for name in ("MASTER", "SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)


def test_a_local_master_stays_on_this_machine():
    settings = session_module._settings("local[2]", {})

    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.python.daemon.module"] == "orbitmq.spark.start.daemon"


def test_a_cluster_keeps_its_own_settings():
    settings = session_module._settings("spark://10.1.2.3:7077", {})

    assert "spark.driver.host" not in settings
    assert "spark.python.daemon.module" not in settings
    assert "spark.ui.enabled" not in settings


def test_a_cluster_with_the_package_installed_gets_the_daemon():
    settings = session_module._settings("yarn", {"spark.orbitmq.package": "installed"})

    assert settings["spark.python.daemon.module"] == "orbitmq.spark.start.daemon"


def test_a_wrong_package_setting_is_an_error():
    with pytest.raises(ConfigError, match="must be send or installed"):
        session_module._settings("yarn", {"spark.orbitmq.package": "fetch"})


def test_what_is_given_wins():
    given = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.driver.host": "10.0.0.1"}

    settings = session_module._settings("local[2]", given)

    assert settings.items() >= given.items()


def test_the_usual_master_is_sparks_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert session_module._usual_master() == "local[*]"

    (tmp_path / "spark-defaults.conf").write_text(
        "# ours\nspark.master   spark://a:1  # one\n\nx\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session_module._usual_master() == "spark://a:1"

    monkeypatch.setenv("MASTER", "local[3]")
    assert session_module._usual_master() == "local[3]"


def test_a_log_configuration_of_the_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def log_file() -> str | None:
        variables = session_module._variables({}, find_java(), quiet=True)
        return variables.get("LOG4J_CONFIGURATION_FILE")

    ours = log_file()
    assert ours is not None
    assert "rootLogger.level = OFF" in Path(ours).read_text()

    (tmp_path / "log4j2.properties").write_text("")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert log_file() is None


def test_the_environment_is_as_before(spark: SparkSession):
    before = dict(os.environ)

    assert make_session() is spark

    assert dict(os.environ) == before


def test_workers_are_this_python_with_the_kernels_loaded(spark: SparkSession):
    def look(_: int) -> tuple[str, bool, int]:
        loaded = "orbitmq.format.compiled" in sys.modules
        return sys.executable, loaded, len(list(Path(f"/proc/{os.getppid()}/task").iterdir()))

    ((python, loaded, threads_of_daemon),) = (
        spark.sparkContext.parallelize([0], 1).map(look).collect()
    )

    assert Path(python).resolve() == Path(sys.executable).resolve()
    assert loaded
    assert threads_of_daemon == 1  # a process with threads cannot be forked safely


@pytest.mark.feature("P1")
def test_the_format_is_known_in_any_session(spark: SparkSession, tmp_path: Path):
    other = spark.newSession()
    register(other)

    schema = other.read.format("orbitmq").load(str(tmp_path)).schema

    assert "topic" in schema.fieldNames()
    assert other.conf.get("spark.sql.python.filterPushdown.enabled") == "true"


def test_the_archives_of_an_installed_spark_come_last():
    archives = ["/venv/pyspark/python/lib/pyspark.zip", "/venv/pyspark/jars/spark-core.jar"]

    assert installed_first([*archives, "/work", "/venv"]) == ["/work", "/venv", *archives]


def test_the_archives_of_another_spark_stay_first():
    path = ["/opt/spark/python/lib/pyspark.zip", "/other/pyspark/python/lib/pyspark.zip", "/venv"]

    assert installed_first(path) == path


def test_workers_take_spark_from_where_it_is_installed(spark: SparkSession):
    places = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()

    assert places == [pyspark.__file__]
