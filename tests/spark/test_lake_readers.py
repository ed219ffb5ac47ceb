"""Lakes as other versions of Spark read them, with the runtimes of Delta and Iceberg, and agree on every row.

Neither runtime works with the Spark that we run on, so each has an environment of its own under
`build/foreign`, made here by pip and Maven: half a gigabyte each. Hence only with ORBITMQ_FOREIGN_SPARK=1
(`make test-lake-readers`).
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from orbitmq.spark.jobs.compact.job import compact
from spark.export_world import COLUMNS, TOPICS, append, export_here, log_rows
from spark.test_export_bodies import send

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        os.environ.get("ORBITMQ_FOREIGN_SPARK") != "1",
        reason="downloads other versions of Spark, half a gigabyte each: ORBITMQ_FOREIGN_SPARK=1",
    ),
]

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "foreign"
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


class Foreign(NamedTuple):
    """A Spark with a runtime for one format."""

    version: str
    requirements: tuple[str, ...]
    jars: tuple[str, ...]


SPARKS = {
    "delta": Foreign(
        "4.2.0",
        ("pyspark==4.2.0",),
        (
            "io.delta:delta-spark_4.2_2.13:4.4.0",
            "io.delta:delta-storage:4.4.0",
            "io.delta:delta-kernel-api:4.4.0",
            "io.delta:delta-kernel-defaults:4.4.0",
        ),
    ),
    "iceberg": Foreign(
        "4.1.4",
        ("pyspark==4.1.4",),
        (
            "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
            "org.xerial:sqlite-jdbc:3.50.3.0",
        ),
    ),
}


def python_of(format_: str) -> Path:
    """Return the Python of an environment, which is made if it is not there."""
    root, wanted = BUILD / format_, "\n".join(SPARKS[format_].requirements)
    stamp = root / "requirements.txt"
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([sys.executable, "-m", "venv", root], check=True)
        pip = [root / "bin" / "python", "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, *SPARKS[format_].requirements], check=True)
        stamp.write_text(wanted)
    return root / "bin" / "python"


def jars_of(format_: str) -> str:
    """Return the paths of jars, which are fetched if they are not there."""
    paths = []
    for name in SPARKS[format_].jars:
        _, artifact, version = name.split(":")
        paths.append(BUILD / "jars" / f"{artifact}-{version}.jar")
        if not paths[-1].exists():
            words = [f"-Dartifact={name}", f"-DoutputDirectory={paths[-1].parent}"]
            subprocess.run(["mvn", "-q", "-B", COPY, *words], check=True)
    return ",".join(map(str, paths))


def rows_of(
    format_: str, lake: Path, tables: Sequence[str], columns: Sequence[str] = COLUMNS
) -> dict[str, list[tuple[Any, ...]]]:
    """Return what the other Spark reads, by table, in log order."""
    spark = SPARKS[format_]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [
            *(python_of(format_), HERE / "foreign" / "read_lake.py", format_, lake),
            *(jars_of(format_), ";".join(columns), *tables),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={name: value for name, value in environment.items() if not name.startswith("SPARK_")},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert lines[0] == ["version", spark.version]
    found: dict[str, list[tuple[Any, ...]]] = {name: [] for name in tables}
    for name, *values in lines[1:]:
        found[name].append(tuple(values))
    return found


def wanted_rows(store: Path, topic: str) -> list[tuple[Any, ...]]:
    return [(*row[:-1], row[-1].hex()) for row in log_rows(store, topic)]


@pytest.mark.feature("P10", "P18")
@pytest.mark.parametrize("format_", list(SPARKS))
def test_another_spark_agrees_on_every_row_of_every_table(format_: str, tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    for seed in range(3):
        append(store, 400, seed=seed)
        export_here(store, lake, format=format_, topics=TOPICS)
    send(store, b"plain")
    compact(lake, cluster_by=["keys"], topics=["Orders"])
    compact(lake, topics=["Payments"])
    export_here(store, lake, format=format_, topics=TOPICS)

    found = rows_of(format_, lake, ["Orders", "Payments", "~25RETRY~25group"])

    for table, topic in zip(found, ("Orders", "Payments", "%RETRY%group"), strict=True):
        assert found[table] == wanted_rows(store, topic)
        assert len(found[table]) > 390


@pytest.mark.feature("P18")
def test_another_spark_reads_variants_of_delta(tmp_path: Path) -> None:
    store, lake = tmp_path / "store", tmp_path / "lake"
    bodies = [{"id": 1, "lines": [{"sku": "\u00e9", "n": 2.50}]}, [1, None, True], "text", 2**40]
    send(store, *bodies)
    export_here(store, lake, format="delta", body="variant")
    send(store, {"later": 1}, b"no JSON")
    export_here(store, lake, format="delta")
    compact(lake)

    columns = ("log_offset", "to_json(value)", "try_variant_get(value, '$.id', 'int')")
    found = rows_of("delta", lake, ["Orders"], columns)["Orders"]

    assert [json.loads(text) for _, text, _ in found] == [*bodies, {"later": 1}]
    assert [number for *_, number in found] == [1, None, None, None, None]
