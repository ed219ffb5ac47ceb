"""The pipeline's benchmark still runs and still gets right results; its figures are not looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.drivers import quick_java

pytestmark = pytest.mark.spark

BENCH = Path(__file__).parents[2] / "bench"
SCRIPT = BENCH / "bench_spark.py"
# Its figures are not looked at: nothing is compiled that is asked once, and few tasks are started.
IN_A_HURRY = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_benchmark_of_the_pipeline_runs_in_its_smallest_size(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    java = [quick_java(), *(f"-D{name}={value}" for name, value in IN_A_HURRY.items())]
    options = ["--size", "smoke", "--without-java", "--without-kafka", "--directory", str(tmp_path)]

    ended = subprocess.run(
        [
            sys.executable,
            str(SCRIPT),
            *options,
            "--json",
            str(figures),
            "--only",
            "rebuild",
            "read",
            "first",
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JDK_JAVA_OPTIONS": " ".join(java)},
    )

    assert ended.returncode == 0, ended.stderr
    lines = json.loads(figures.read_text())["lines"]
    assert all(line["ours"] > 0 for line in lines)
    beside = [line["what"] for line in lines if line["java"]]
    assert len(beside) == 12  # twice one process; five queries over Parquet, five by rows
    assert not [path for path in tmp_path.iterdir() if path != figures]


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Import the benchmark's modules as its programs do."""
    monkeypatch.syspath_prepend(str(BENCH))


@pytest.mark.usefixtures("modules")
def test_a_wrong_answer_of_any_side_ends_the_benchmark(tmp_path: Path) -> None:
    import spark_log
    import spark_parts

    log = spark_log.Log(tmp_path, 300)
    right = {
        "counts": dict(log.counts),
        "sums": dict(log.sums),
        "parquet_sums": dict(log.sums),
        "found": [log.place(7), log.place(299)],
    }
    wrong = [
        {"counts": {**log.counts, "Bench00000 Tag0": 0}},
        {"sums": {**log.sums, "bodies": log.sums["bodies"] + 1}},
        {"parquet_sums": {**log.sums, "rows": 299}},
        {"found": [log.place(8)]},
    ]

    assert spark_parts.check(right | {"read_seconds": 1.0}, log, [0, 7, 299]) == {
        "read_seconds": 1.0
    }
    for part in wrong:
        with pytest.raises(SystemExit, match="wrong result"):
            spark_parts.check(part, log, [0, 7])


@pytest.mark.usefixtures("modules")
def test_messages_of_the_log_are_spread_over_all_queues_and_tags(tmp_path: Path) -> None:
    import spark_log

    log = spark_log.Log(tmp_path, 64 * 4 * 3)

    assert len(log.counts) == 8 * 4
    assert set(log.counts.values()) == {8 * 3}
    assert len({log.body(i) for i in range(log.count)}) == log.count
    assert log.request(65).properties.count(b"\x02") == 3


@pytest.mark.usefixtures("modules")
def test_only_python_below_a_jvm_counts_as_a_worker() -> None:
    import spark_watch

    names = {1: "init", 10: "python3", 20: "java", 30: "python", 31: "python", 40: "java"}
    parents = {10: 1, 20: 10, 30: 20, 31: 30, 40: 10}

    found = [pid for pid in names if spark_watch.has_java_above(pid, 10, names, parents)]

    assert found == [30, 31]


@pytest.mark.usefixtures("modules")
def test_a_kept_log_is_taken_as_it_was_made_and_not_otherwise(tmp_path: Path) -> None:
    import spark_log
    import spark_notes

    log = spark_log.Log(tmp_path / "log-1", 300)
    queue = log.root / "consumequeue" / "0"
    queue.parent.mkdir(parents=True)
    queue.write_bytes(b"1")
    digest = spark_log.digest(log.root)
    notes = spark_notes.Notes(tmp_path)

    assert notes.digest(log) is None
    notes.keep_digest(log, digest)
    assert spark_notes.Notes(tmp_path).digest(log) == digest
    assert notes.digest(spark_log.Log(log.root, 301)) is None
    queue.write_bytes(b"2")
    assert notes.digest(log) is None
