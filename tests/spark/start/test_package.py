"""The package on its way to executors that do not have it, on a real cluster."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

import golden_stores
from log_builder import LogBuilder, write_log
from orbitmq import __version__
from orbitmq.errors import SparkSetupError
from orbitmq.spark.columns.install import COLUMNS, SETTING
from orbitmq.spark.start.class_archive import DRIVER_OPTIONS
from orbitmq.spark.start.java import find_java
from orbitmq.spark.start.package import ARCHIVE, write_package
from spark.bare_python import make_bare_python
from spark.drivers import ONE_EXECUTOR, SMALL, quick_executors, quick_java, run_command
from spark.standalone import StandaloneCluster

# Starting a cluster, a driver and executors takes its time where other tests run beside.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOB = Path(__file__).with_name("package_job.py")
IMPORTED = """
import json, orbitmq, orbitmq.format.kernels
print(json.dumps([orbitmq.__version__, orbitmq.__path__[0], orbitmq.format.kernels.__file__]))
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("package") / ARCHIVE)


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bare_python(tmp_path_factory.mktemp("python"))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden_stores.unpack("mixed", tmp_path_factory.mktemp("store"))


def test_the_same_package_gives_the_same_archive(archive: Path, tmp_path: Path):
    assert write_package(tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_the_archive_carries_sources_and_compiled_kernels(archive: Path):
    names = zipfile.ZipFile(archive).namelist()

    assert "payload/orbitmq/spark/source/source.py" in names
    assert any(name.endswith(".nbc") for name in names)
    assert not any(name.endswith(".pyc") for name in names)


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(SparkSetupError, match="No such file or directory"):
        write_package(tmp_path / "nowhere" / ARCHIVE)


def import_archive(
    archive: Path, python: Path, directory: Path, cache: Path
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [str(python), "-c", IMPORTED],
        stdout=subprocess.PIPE,
        text=True,
        cwd=directory,
        env={"PYTHONPATH": str(archive), "XDG_CACHE_HOME": str(cache), "HOME": str(cache)},
    )


def test_importing_the_archive_unpacks_it_once(archive: Path, bare_python: Path, tmp_path: Path):
    cache = tmp_path / "cache"

    programs = [import_archive(archive, bare_python, tmp_path, cache) for _ in range(4)]
    outputs = [program.communicate()[0] for program in programs]

    (found,) = {tuple(json.loads(output)) for output in outputs}
    version, path, module = found
    assert version == __version__
    assert Path(path).is_relative_to(cache / "orbitmq")
    assert Path(module).is_relative_to(path)
    assert len(list((cache / "orbitmq").iterdir())) == 1


def test_without_a_cache_directory_it_is_unpacked_where_the_executor_works(
    archive: Path, bare_python: Path, tmp_path: Path
):
    no_directory = tmp_path / "file"
    no_directory.write_text("")

    output, _ = import_archive(archive, bare_python, tmp_path, no_directory).communicate()

    _, path, _ = json.loads(output)
    assert Path(path).is_relative_to(tmp_path)


AVRO = '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "long"}]}'
AVRO_BODIES = {b"\x02": 1, b"\0\0\0\0\x07\x03": -2, b"\x80": None, b"\x80\x01": 64}


@pytest.fixture(scope="module")
def avro_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    builder = LogBuilder()
    for body in AVRO_BODIES:
        builder.append("Avro", body=body)
    return write_log(builder, tmp_path_factory.mktemp("avro") / "store")


@pytest.mark.feature("P3.options", "P15", "P17")
def test_a_session_sends_the_package_and_the_reader_to_executors_that_lack_it(
    cluster: StandaloneCluster, bare_python: Path, avro_store: Path, tmp_path: Path
):
    settings = SMALL | quick_executors()
    settings |= {"spark.executorEnv.XDG_CACHE_HOME": str(tmp_path / "cache"), SETTING: COLUMNS}

    answer = run_command(
        [sys.executable, str(JOB), cluster.master, json.dumps(settings), str(avro_store), AVRO],
        {"PYSPARK_PYTHON": str(bare_python)},
    )

    assert answer["master"] == cluster.master
    for worker in answer["workers"]:
        assert Path(worker["path"]).is_relative_to(tmp_path / "cache")
        assert worker["compiled_here"] == []  # the archive had it
    assert answer["reader"] == "columns"
    assert answer["count"] == len(AVRO_BODIES)
    assert [value for value, _ in answer["decoded"]] == list(AVRO_BODIES.values())
    assert [error is None for _, error in answer["decoded"]] == [True, True, False, True]


@pytest.mark.feature("P15")
def test_spark_submit_takes_the_archive_along(
    cluster: StandaloneCluster, archive: Path, bare_python: Path, store: Path, tmp_path: Path
):
    submit = Path(pyspark.__file__).with_name("bin") / "spark-submit"
    settings = SMALL | quick_executors() | ONE_EXECUTOR | {DRIVER_OPTIONS: quick_java()}
    conf = [word for item in settings.items() for word in ("--conf", "=".join(item))]
    python = {"PYSPARK_PYTHON": str(bare_python), "PYSPARK_DRIVER_PYTHON": str(bare_python)}

    answer = run_command(
        [
            *(str(submit), "--master", cluster.master, "--py-files", str(archive), *conf),
            *(str(JOB), "-", "{}", str(store)),
        ],
        {
            **python,
            **find_java().environment(),
            "XDG_CACHE_HOME": str(tmp_path),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "HOME": os.environ.get("HOME", "/"),
        },
    )

    assert answer["master"] == cluster.master
    assert answer["reader"] == "rows"  # a cluster is told to read columns
    assert answer["count"] == len(golden_stores.rows("mixed", "record"))
