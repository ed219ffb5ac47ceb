"""A real Spark standalone cluster on the loopback address: a master and workers, each a process of its own.

    with standalone_cluster(workers=2) as cluster:
        session = make_session(master=cluster.master)

The processes are `spark-class` of the installed pyspark, on free ports, with their files in a temporary
directory. They are stopped by their process ids; when the test fails, their logs are shown.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyspark

from orbitmq.spark.start.java import find_java
from spark.drivers import quick_java

START_SECONDS = 120.0
STOP_SECONDS = 20.0
LOG_LINES = 40
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
# These would lead to another cluster, or to the driver's own settings.
FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS", "MASTER", "PYTHONPATH")


@dataclass
class StandaloneCluster:
    """A running cluster; `master` is what --master takes."""

    directory: Path
    environment: Mapping[str, str]
    master: str = ""
    processes: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    logs: list[Path] = field(default_factory=list)

    def start(self, *arguments: str) -> Path:
        """Start a process of Spark; return its log."""
        log = self.directory / f"{len(self.logs)}-{arguments[0].rpartition('.')[2]}.log"
        script = Path(pyspark.__file__).with_name("bin") / "spark-class"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [str(script), *arguments], stdout=sink, stderr=sink, env=dict(self.environment)
            )
        self.processes.append(process)
        self.logs.append(log)
        return log

    def wait_for(self, log: Path, pattern: str) -> str:
        """Return what the pattern's group finds in a log, as soon as it does."""
        deadline = time.monotonic() + START_SECONDS
        process = self.processes[self.logs.index(log)]
        while True:
            found = re.search(pattern, log.read_text(errors="replace"))
            if found:
                return found[1]
            assert process.poll() is None, f"{log.name} ended at once\n{self.tail()}"
            assert time.monotonic() < deadline, f"{log.name} does not get ready\n{self.tail()}"
            time.sleep(0.05)

    def tail(self) -> str:
        """Return the end of every log, the executors' too."""
        logs = [*self.logs, *sorted(self.directory.glob("work-*/app-*/*/stderr"))]
        parts = (
            f"--- {log.relative_to(self.directory)}\n" + "\n".join(_last_lines(log)) for log in logs
        )
        return "\n".join(parts)

    def stop(self) -> None:
        """Stop workers first: they end their executors."""
        for process in reversed(self.processes):
            process.terminate()
        for process in reversed(self.processes):
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def standalone_cluster(
    workers: int = 2,
    cores: int = 1,
    memory: str = "1g",
    *,
    environment: Mapping[str, str] | None = None,
) -> Iterator[StandaloneCluster]:
    """Start a master and workers; `environment` is added to theirs, and so to the executors'."""
    with tempfile.TemporaryDirectory(
        prefix="orbitmq-cluster-", ignore_cleanup_errors=True
    ) as place:
        cluster = StandaloneCluster(Path(place), _environment(Path(place), environment))
        try:
            _start_all(cluster, workers, cores, memory)
            yield cluster
        except BaseException:
            sys.stderr.write(cluster.tail() + "\n")
            raise
        finally:
            cluster.stop()


def _start_all(cluster: StandaloneCluster, workers: int, cores: int, memory: str) -> None:
    here = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    log = cluster.start(MASTER, *here)
    cluster.master = cluster.wait_for(log, r"Starting Spark master at (spark://[\w.:]+)")
    logs = []
    for number in range(workers):
        work = cluster.directory / f"work-{number}"
        size = ("--cores", str(cores), "--memory", memory, "--work-dir", str(work))
        # Hosts of their own: Spark starts no second attempt of a task on the host of the first.
        there = ("--host", f"127.0.0.{number + 1}", *here[2:])
        logs.append(cluster.start(WORKER, *there, *size, cluster.master))
    for log in logs:
        cluster.wait_for(log, r"(Successfully registered with master)")


def _environment(directory: Path, added: Mapping[str, str] | None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    return {
        **kept,
        **find_java().environment(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(directory),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
        "SPARK_NO_DAEMONIZE": "1",
        **(added or {}),
    }


def _last_lines(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
