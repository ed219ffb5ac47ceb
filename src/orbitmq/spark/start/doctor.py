"""Whether Spark can be used here as it is set up, point by point, each with the next step.

Nothing of Spark is imported before it is known to be there.
"""

import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from orbitmq import __version__
from orbitmq.errors import OrbitError
from orbitmq.spark.start.java import find_java
from orbitmq.units import GiB, MiB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INSTALL: Final = "pip install 'orbitmq[spark]'"
MEMORY_MIN: Final = 2 * GiB
LIBRARIES: Final = {"pyspark": "4.3", "pyarrow": "18", "numba": "0.61"}
"""What is needed at least; of pyspark the very release, for its data source interface still changes."""


@dataclass(frozen=True, slots=True)
class Check:
    """One point: what was found, and what to do if it is a problem."""

    name: str
    found: str
    ok: bool = True
    next_step: str = ""


def examine(master: str | None = None, conf: Mapping[str, str] | None = None) -> Iterator[Check]:
    """Yield what is there; the last points start Spark and run a tiny job."""
    checks = [
        _python(),
        *(_library(name, least) for name, least in LIBRARIES.items()),
        _spark_home(),
        _java(),
        _class_archive(),
        _machine(),
        _worker_python(conf or {}),
    ]
    yield from checks
    if all(check.ok for check in checks):
        yield from _tried(master, conf)


def _python() -> Check:
    ok = sys.version_info >= (3, 11)
    found = f"{platform.python_version()} at {sys.executable}"
    return Check("python", found, ok, "" if ok else "Use Python 3.11 or newer.")


def _library(name: str, least: str) -> Check:
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, "not installed", ok=False, next_step=INSTALL)
    have, need = _numbers(version), _numbers(least)
    ok = have[:2] == need if name == "pyspark" else have >= need
    return Check(name, version, ok, "" if ok else f"{least} is needed: {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:2])


def _spark_home() -> Check:
    """Look at SPARK_HOME: it may lead to a Spark whose Java side does not fit this pyspark."""
    home = os.environ.get("SPARK_HOME")
    if not home:
        return Check("SPARK_HOME", "not set, Spark is the one of the package")
    cores = [path.stem.rpartition("-")[2] for path in Path(home, "jars").glob("spark-core_*.jar")]
    if not cores:
        return Check("SPARK_HOME", f"{home}: no Spark there", ok=False, next_step="Unset it.")
    try:
        ok = cores == [importlib.metadata.version("pyspark")]
    except importlib.metadata.PackageNotFoundError:
        ok = False
    step = "" if ok else "Unset it, or install that version of pyspark."
    return Check("SPARK_HOME", f"{home}: Spark {', '.join(cores)}", ok, step)


def _java() -> Check:
    try:
        java = find_java()
    except OrbitError as error:
        what, _, step = str(error).partition(". ")
        return Check("java", what, ok=False, next_step=step)
    return Check("java", f"{java.version} from {java.source}, {java.executable}")


def _class_archive() -> Check:
    name, step = "class data sharing", "Spark starts sooner with an archive: orbitmq spark prepare"
    try:
        from orbitmq.spark.start.class_archive import found_archive

        path = found_archive(find_java())
    except (ImportError, OrbitError):
        return Check(name, "not looked for")  # what is missing is said by the points before
    return Check(name, "none", next_step=step) if path is None else Check(name, str(path))


def _machine() -> Check:
    cores = len(os.sched_getaffinity(0))
    meminfo = Path("/proc/meminfo").read_text(encoding="ascii")
    sizes = {name: int(kib) * 1024 for name, kib in re.findall(r"(\w+): +(\d+) kB", meminfo)}
    free, total = sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
    found = f"{cores} cores, {free // MiB:,} of {total // MiB:,} MiB memory free"
    ok = free >= MEMORY_MIN
    step = (
        ""
        if ok
        else "Free memory, or give less: --master 'local[1]' --conf spark.driver.memory=512m"
    )
    return Check("machine", found, ok, step)


def _worker_python(conf: Mapping[str, str]) -> Check:
    given = conf.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON")
    found = given or f"not set, workers get {sys.executable}"
    return Check("PYSPARK_PYTHON", found)


def _tried(master: str | None, conf: Mapping[str, str] | None) -> Iterator[Check]:
    """Start Spark and look at its Python workers."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    from orbitmq.spark.failures import explained
    from orbitmq.spark.start.session import make_session

    started = time.monotonic()
    session, name = None, "spark"
    try:
        session = make_session(app="orbitmq doctor", master=master, conf=conf, quiet=True)
        seconds = time.monotonic() - started
        where = session.sparkContext.master
        yield Check(name, f"{session.version} on {where}, started in {seconds:.1f} s")
        yield _reader(session)
        name = "workers"
        yield _workers(session)
    except (OrbitError, Py4JError, PySparkException) as error:
        what, _, step = str(explained(error, "a tiny job")).partition(". ")
        yield Check(name, what, ok=False, next_step=step)
    finally:
        if session is not None:
            session.stop()


def _reader(session: "SparkSession") -> Check:
    from orbitmq.spark.columns.install import install

    reason = install(session)
    found = f"by rows: {reason}" if reason else "by columns"
    return Check("reader", found)


def _workers(session: "SparkSession") -> Check:
    context = session.sparkContext
    count = max(2, context.defaultParallelism)
    found = context.parallelize(range(count), count).map(look_at_worker).collect()
    versions = {worker["orbitmq"] for worker in found}
    hosts = sorted({worker["host"] for worker in found})
    seconds = max(worker["seconds"] for worker in found)
    text = (
        f"Python {_joined(found, 'python')}, pyarrow {_joined(found, 'pyarrow')}, "
        f"orbitmq {_joined(found, 'orbitmq')} with compiled kernels in {seconds:.1f} s "
        f"on {', '.join(hosts)}"
    )
    ok = versions == {__version__}
    step = "" if ok else f"The driver has {__version__}: leave spark.orbitmq.package at `send`."
    return Check("workers", text, ok, step)


def _joined(found: list[dict[str, Any]], name: str) -> str:
    return ", ".join(sorted({str(worker[name]) for worker in found}))


def look_at_worker(_: int) -> dict[str, Any]:
    """Return what a task finds around it. Runs on executors."""
    import pyarrow

    from orbitmq.format.kernels import compiled

    started = time.monotonic()
    kernels = compiled()
    return {
        "host": platform.node(),
        "python": platform.python_version(),
        "pyarrow": pyarrow.__version__,
        "orbitmq": __version__,
        "kernels": kernels.name,
        "seconds": time.monotonic() - started,
    }
