"""The process that workers are forked from, where it is started before Spark asks for it."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark import SparkContext

from orbitmq.spark.columns import install
from orbitmq.spark.start import cache_files, daemon, prestart, session

pytestmark = pytest.mark.spark

PROGRAM = """
import os
import sys
from pathlib import Path

from orbitmq.spark.context import stop_quickly
from orbitmq.spark.start.session import make_context


def look(_: int) -> tuple[str, bool, int, str, bool]:
    parent = Path(f"/proc/{os.getppid()}")
    command = (parent / "cmdline").read_text().split("\\0")[2]
    loaded = "orbitmq.format.compiled" in sys.modules
    threads = len(list((parent / "task").iterdir()))
    of_spark = "PYTHON_WORKER_FACTORY_SECRET" in os.environ
    return command, loaded, threads, os.environ["PYTHONHASHSEED"], of_spark


context = make_context(master="local[1]", conf={"spark.driver.memory": "512m", **%r}, quiet=True)
print(*context.parallelize([0], 1).map(look).collect()[0])
stop_quickly(context)
"""


def run(conf: dict[str, str], temporary: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM % conf],
        capture_output=True,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_workers_come_from_the_process_that_was_prestarted(tmp_path: Path):
    assert run({}, tmp_path) == "orbitmq.spark.start.prestart True 1 0 True\n"

    assert not list(tmp_path.glob("orbitmq-daemon-*"))


def test_workers_with_an_environment_of_their_own_get_their_own_daemon(tmp_path: Path):
    conf = {"spark.executorEnv.NUMBA_DISABLE_INTEL_SVML": "1"}

    assert run(conf, tmp_path) == "orbitmq.spark.start.daemon True 1 0 True\n"


def test_the_daemon_does_the_work_itself_where_nobody_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(prestart.VARIABLE, str(tmp_path / "gone"))

    assert not prestart.handed_over()
    assert prestart.VARIABLE not in os.environ  # workers have nothing to do with it


def test_the_process_ends_with_a_driver_that_never_asked_for_it():
    prestart.prestart_daemon()
    started = prestart._started.pop()

    assert started.stdin is not None
    started.stdin.close()

    assert started.wait(timeout=60) == 0


def test_the_pool_of_the_column_reader_ends_with_a_driver_that_never_asked_for_it():
    path = Path(prestart.prestart_pool()[prestart.POOL_VARIABLE])
    started = prestart._started.pop()

    assert path.parent.stat().st_mode & 0o077 == 0
    assert started.stdin is not None
    started.stdin.close()

    assert started.wait(timeout=60) == 0
    assert not path.parent.exists()


def test_only_a_jvm_that_is_yet_to_start_gets_a_pool(monkeypatch: pytest.MonkeyPatch):
    local = {"spark.master": "local[2]", "spark.python.daemon.module": daemon.__name__}
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", None)

    assert session.starts_pool(local)
    assert not session.starts_pool(local | {install.SETTING: install.ROWS})
    assert not session.starts_pool(local | {"spark.master": "spark://a:7077"})
    assert not session.starts_pool(local | {"spark.executorEnv.A": "b"})

    monkeypatch.setattr(SparkContext, "_gateway", object())  # of a session that was stopped
    assert not session.starts_pool(local)


def test_no_pool_is_started_where_the_path_of_its_socket_would_be_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    before = list(prestart._started)

    assert prestart.prestart_pool() == {}
    assert prestart._started == before


def test_what_killed_processes_left_behind_is_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    program = (
        "import sys, orbitmq.spark.start.cache_files as c; print(c.private_directory('orbitmq-x-'))"
    )
    program += "; sys.stdout.flush(); sys.stdin.read()"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen([sys.executable, "-c", program], **pipes) as living,
        subprocess.Popen([sys.executable, "-c", program], **pipes) as killed,
    ):
        kept, left = (Path(one.stdout.readline().strip()) for one in (living, killed))
        killed.kill()
        killed.wait()
        foreign = tmp_path / "orbitmq-x-somebody"
        foreign.mkdir()

        made = cache_files.private_directory("orbitmq-x-")

        assert sorted(tmp_path.iterdir()) == sorted([kept, foreign, made])
        assert left not in tmp_path.iterdir()
