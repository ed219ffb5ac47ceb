"""Kafka beside us: a server on the loopback address, and Spark's connector in an environment of its own.

What is needed is fetched once, into `build/bench`: the jars by Maven, and the pyspark that belongs to the
connector (the connector exists for 4.0.0, ours runs on a later one) by pip.
"""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import harness
from compat.java_store import why_not as why_no_java
from compat.server_process import ServerProcess, free_port
from harness import Row
from spark_notes import Notes

HERE: Final = Path(__file__).parent
CACHE: Final = harness.REPOSITORY / "build" / "bench"
PYSPARK: Final = "4.0.0"
READER: Final = HERE / "kafka_reader.py"
RESOLVE: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
CONNECTOR_JARS: Final = (
    "spark-sql-kafka-0-10",
    "spark-token-provider-kafka-0-10",
    "kafka-clients",
    "commons-pool2",
)
"""The others of the connector's class path come with pyspark itself."""
HEAP: Final = "1g"
FETCH_SECONDS_MAX: Final = 900
READ_SECONDS_MAX: Final = 3_600


def why_no_kafka() -> str | None:
    """Return why this side cannot be run here, or None. Fetches what is needed."""
    if reason := why_no_java():
        return reason
    try:
        class_path("server")
        class_path("connector")
        spark_python()
    except (subprocess.SubprocessError, OSError) as error:
        said = getattr(error, "stdout", None) or getattr(error, "stderr", None) or ""
        return f"{error} {said[-500:]}".strip()
    return None


@cache
def class_path(project: str) -> str:
    """Return the class path of a project of `kafka/`."""
    pom = HERE / "kafka" / f"{project}.xml"
    digest = hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    jars = CACHE / f"kafka-{project}-{digest}.txt"
    if not (jars.exists() and all(map(os.path.exists, jars.read_text().split(os.pathsep)))):
        CACHE.mkdir(parents=True, exist_ok=True)
        # Maven puts what it makes beside the project file, which is no place for it here.
        copy = Path(shutil.copy(pom, CACHE))
        # A file that is there is whole: what a killed Maven leaves must not count.
        made = jars.with_suffix(".new")
        _run(["mvn", "-q", "-B", "-f", str(copy), RESOLVE, f"-Dmdep.outputFile={made}"])
        made.rename(jars)
    return jars.read_text().strip()


def connector_jars() -> list[str]:
    """Return what the connector's pyspark does not have itself."""
    jars = class_path("connector").split(os.pathsep)
    return [jar for jar in jars if Path(jar).name.startswith(CONNECTOR_JARS)]


@cache
def spark_python() -> Path:
    """Return the interpreter whose pyspark is the connector's."""
    place = CACHE / f"pyspark-{PYSPARK}"
    python, done = place / "bin" / "python", place / ".ready"
    if not done.exists():
        shutil.rmtree(place, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(place)])
        _run([str(python), "-m", "pip", "install", "--quiet", f"pyspark=={PYSPARK}"])
        done.touch()
    return python


def _run(command: list[str]) -> str:
    ended = subprocess.run(
        command,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FETCH_SECONDS_MAX,
    )
    return ended.stdout


@contextmanager
def kafka_running(root: Path) -> Iterator[str]:
    """Run a Kafka server, one process for both roles, empty in a new directory; give its address."""
    is_new = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    port, controller_port = free_port(), free_port()
    settings = write_settings(root, port, controller_port)
    if is_new:
        identity = _cluster_id()
        _run(_kafka_java("kafka.tools.StorageTool", "format", "-t", identity, "-c", str(settings)))
    command = _kafka_java("kafka.Kafka", str(settings))
    server = ServerProcess("Kafka", command, port, root, lambda: _listens(port))
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    except BaseException:
        sys.stderr.write(server.tail())
        raise
    finally:
        server.kill()


def write_settings(root: Path, port: int, controller_port: int) -> Path:
    """Write a server's settings: Kafka's defaults, on the loopback address only."""
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(root / "data"),
        "num.partitions": str(harness.QUEUES_PER_TOPIC),
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    path = root / "server.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


def _kafka_java(main: str, *arguments: str) -> list[str]:
    options = [f"-Xms{HEAP}", f"-Xmx{HEAP}", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
    return ["java", *options, "-cp", class_path("server"), main, *arguments]


def _cluster_id() -> str:
    """Return an identity as Kafka writes one: 16 bytes in base 64 without the padding."""
    import base64

    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def _listens(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return True


def load(directory: Path, parquet: Path, count: int) -> None:
    """Have the rows of Parquet files in a server's topics, if they are not there already."""
    notes = Notes(directory)
    if notes.kept("kafka") is not None:
        return
    shutil.rmtree(directory / "kafka", ignore_errors=True)  # half of it
    with kafka_running(directory / "kafka") as address:
        loaded = run_reader("load", address, parquet=parquet)
    if loaded["rows"] != count:
        raise SystemExit(f"{loaded} rows of {count} loaded into Kafka")
    notes.keep("kafka", loaded)


def measure(directory: Path, **options: object) -> Row:
    """Ask the connector over a server with these rows; return its times and answers."""
    with kafka_running(directory / "kafka") as address:
        return run_reader("measure", address, **options)


def run_reader(what: str, address: str, **options: object) -> Row:
    """Run `kafka_reader.py` with the connector; return the row that it prints."""
    python = str(spark_python())
    arguments = [f"{name}={value}" for name, value in options.items()]
    jars = ",".join(connector_jars())
    command = [python, str(READER), what, f"address={address}", f"jars={jars}", *arguments]
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))
    }
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=READ_SECONDS_MAX,
        env={**environment, "PYSPARK_PYTHON": python},
    )
    if ended.returncode != 0 or not ended.stdout.strip():
        raise SystemExit(f"Kafka, {what}: {ended.stdout[-2000:]}{ended.stderr[-20000:]}")
    row: Row = json.loads(ended.stdout.splitlines()[-1])
    return row
