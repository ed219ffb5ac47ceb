"""RocketMQ's own store classes, run as small Java programs (sources in `java/`), and what they say.

Maven builds the programs once; a stamp over the sources tells whether that is still true, so a later
run costs nothing and needs no network. `why_not` gives the reason when Java or Maven is missing; a test
that reads a store is skipped when Maven can get RocketMQ's jars from nowhere.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).with_name("java")
TARGET = PROJECT / "target"
PACKAGE = "orbitmq.javastore"
JAVA_VERSION_MIN = 11
BUILD_SECONDS_MAX = 600

# RocketMQ unmaps files and locks memory through JDK internals that are closed by default.
OPENED_MODULES = (
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.misc",
)

# What Maven says when it cannot get something, and not when it does not like our sources.
UNRESOLVED = re.compile(
    r"could not (be )?resolved?|could not (find|transfer) artifact|cannot access \S+ .* in offline mode"
    r"|unknown host|connection (refused|timed out)|was not found in|no plugin found for prefix",
    re.IGNORECASE,
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


class NoJarsError(Exception):
    """RocketMQ's jars are neither in Maven's local repository nor can they be fetched."""


def classpath() -> str:
    """Build the programs if their sources changed; return the class path to run them with.

    NoJarsError: what they need cannot be had here.
    """
    problem = _built()
    if problem is not None:
        raise NoJarsError(problem)
    return f"{TARGET / 'classes'}{os.pathsep}{(TARGET / 'classpath.txt').read_text()}"


@cache
def _built() -> str | None:
    """Build the programs if need be; return why their jars cannot be had, or None. Tried once."""
    TARGET.mkdir(exist_ok=True)
    # Several test workers may come here at once; Maven is not made for that.
    with (TARGET / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return None if _is_built() else _build()


def java_command(program: str, *arguments: str, heap: str = "512m") -> list[str]:
    """Return the command line that runs a program of the project."""
    opened = [f"--add-opens={module}=ALL-UNNAMED" for module in OPENED_MODULES]
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", *opened]
    return ["java", *options, "-cp", classpath(), f"{PACKAGE}.{program}", *arguments]


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


def read_store(root: Path, settings: Settings, *, shutdown: bool = True) -> JavaView:
    """Open a store with RocketMQ's classes (this changes it) and return everything that they read."""
    arguments = [f"{key}={value}" for key, value in settings.items()]
    if not shutdown:
        arguments.append("shutdown=false")
    try:
        command = java_command("StoreReader", str(root), *arguments)
    except NoJarsError as error:
        pytest.skip(str(error))
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if ended.returncode != 0:
        raise AssertionError(f"StoreReader ended with {ended.returncode}:\n{ended.stderr}")
    view = _view(map(json.loads, ended.stdout.splitlines()))
    view.errors = ended.stderr
    return view


def _view(rows: Any) -> JavaView:
    view = JavaView(next(rows))
    for row in rows:
        match row["type"]:
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
    return view


def _stamp() -> str:
    digest = hashlib.sha256()
    for path in [PROJECT / "pom.xml", *sorted((PROJECT / "src").rglob("*"))]:
        if path.is_file():
            digest.update(path.relative_to(PROJECT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _is_built() -> bool:
    stamp, jars = TARGET / "stamp", TARGET / "classpath.txt"
    if not (stamp.exists() and jars.exists()) or stamp.read_text() != _stamp():
        return False
    return all(Path(jar).exists() for jar in jars.read_text().split(os.pathsep))


def _build() -> str | None:
    """Build; return None, or what could not be fetched. AssertionError if the sources are at fault."""
    goals = [
        "compile",
        "dependency:build-classpath",
        f"-Dmdep.outputFile={TARGET / 'classpath.txt'}",
    ]
    # Offline first: with everything in the local repository, Maven would still ask for updates.
    for extra in (["-o"], []):
        command = ["mvn", "-q", "-B", *extra, *goals]
        built = subprocess.run(
            command,
            cwd=PROJECT,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_SECONDS_MAX,
        )
        if built.returncode == 0:
            (TARGET / "stamp").write_text(_stamp())
            return None
    said = built.stdout + built.stderr
    if UNRESOLVED.search(said):
        errors = [line for line in said.splitlines() if UNRESOLVED.search(line)]
        return f"Maven cannot get RocketMQ's jars (no network, not in its cache): {errors[0][:300]}"
    raise AssertionError(f"Maven could not build {PROJECT}:\n{said[-2000:]}")
