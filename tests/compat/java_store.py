"""RocketMQ's own store classes, run as small Java programs (sources in `java/`), and what they say.

One process reads all the stores of a test run, one after the other: starting it is most of the work.
`maven.py` builds the programs. `why_not` gives the reason when Java or Maven is missing; a test
that reads a store is skipped when Maven can get RocketMQ's jars from nowhere.
"""

import atexit
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compat.maven import NoJarsError
from compat.maven import classpath as project_classpath

STORE_VERSION = "5.3.3"
PACKAGE = "orbitmq.javastore"
JAVA_VERSION_MIN = 11
READ_SECONDS_MAX = 120
END_SECONDS_MAX = 20

# RocketMQ unmaps files and locks memory through JDK internals that are closed by default.
OPENED_MODULES = (
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.misc",
)

Row = dict[str, Any]
Settings = dict[str, str]


@cache
def why_not() -> str | None:
    """Return why the programs cannot be run here, or None."""
    if shutil.which("java") is None:
        return "no java command: RocketMQ's store classes need Java 11 or newer"
    if shutil.which("mvn") is None:
        return "no mvn command: Maven fetches RocketMQ's store classes"
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False)
    version = re.search(r'version "(\d+)', told.stderr)
    if version is None or int(version[1]) < JAVA_VERSION_MIN:
        first_line = told.stderr.partition("\n")[0]
        return f"Java {JAVA_VERSION_MIN} or newer is needed, found: {first_line}"
    return None


needs_java = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


def classpath() -> str:
    """Build the programs if their sources changed; return the class path to run them with."""
    return project_classpath("java", STORE_VERSION)


def java_command(
    program: str,
    *arguments: str,
    heap: str = "512m",
    options: tuple[str, ...] = ("-XX:+UseG1GC",),
) -> list[str]:
    """Return the command line that runs a program of the project."""
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in OPENED_MODULES]
    return [
        "java",
        f"-Xms{heap}",
        f"-Xmx{heap}",
        *options,
        *opened,
        "-cp",
        classpath(),
        f"{PACKAGE}.{program}",
        *arguments,
    ]


@dataclass
class JavaView:
    """What RocketMQ's store found in a directory."""

    opened: Row
    records: list[Row] = field(default_factory=list)
    scan: Row = field(default_factory=dict)
    queues: dict[tuple[str, int], Row] = field(default_factory=dict)
    gets: dict[tuple[str, int], Row] = field(default_factory=dict)
    queries: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    closed: bool = False
    errors: str = ""


class ReaderProcess:
    """The program StoreReader: a store's directory and settings go in, rows come out."""

    def __init__(self) -> None:
        options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
        self._process = subprocess.Popen(
            java_command("StoreReader", options=options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )

    def read(self, words: list[str]) -> Iterator[Row]:
        """Yield the rows of one store; the last one is of type "end"."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        too_late = threading.Timer(READ_SECONDS_MAX, self._process.kill)
        too_late.start()
        try:
            self._process.stdin.write("\t".join(words) + "\n")
            self._process.stdin.flush()
            for line in self._process.stdout:
                row: Row = json.loads(line)
                yield row
                if row["type"] == "end":
                    return
            raise AssertionError(f"StoreReader ended, or took too long, with {words[0]}")
        finally:
            too_late.cancel()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


@cache
def _reader() -> ReaderProcess:
    process = ReaderProcess()
    atexit.register(process.close)
    return process


def read_store(root: Path, settings: Settings, *, shutdown: bool = True) -> JavaView:
    """Open a store with RocketMQ's classes (this changes it) and return everything that they read.

    `shutdown=False` does not wait until it is closed again: nobody may open it after that.
    """
    words = [str(root), *(f"{key}={value}" for key, value in settings.items())]
    if not shutdown:
        words.append("shutdown=false")
    try:
        reader = _reader()
    except NoJarsError as error:
        pytest.skip(str(error))
    return _view(reader.read(words))


def _view(rows: Iterator[Row]) -> JavaView:
    view = JavaView({})
    failed = False
    for row in rows:
        match row["type"]:
            case "opened":
                view.opened = row
            case "failed":
                failed = True
            case "record":
                view.records.append(row)
            case "scan":
                view.scan = row
            case "queue":
                view.queues[row["topic"], row["queue_id"]] = row
            case "get":
                view.gets[row["topic"], row["queue_id"]] = row
            case "query":
                view.queries[row["topic"], row["key"]] = row["log_offsets"]
            case "closed":
                view.closed = True
            case "end":
                view.errors = row["errors"]
    assert not failed, view.errors
    return view
