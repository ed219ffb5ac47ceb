"""The benchmark of topics in memory still runs; its figures are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_memory.py"


def run(tmp_path: Path, *options: str) -> object:
    figures = tmp_path / "figures.json"
    command = [sys.executable, str(SCRIPT), "--size", "smoke", "--directory", str(tmp_path)]
    ended = subprocess.run(
        [*command, "--json", str(figures), *options], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(figures.read_text())


@pytest.mark.slow
@pytest.mark.feature("F104")
def test_the_benchmark_of_topics_in_memory_runs_in_its_smallest_size(tmp_path: Path) -> None:
    lines = run(tmp_path)

    assert {line["what"] for line in lines} >= {"sends, 4 in flight", "pulls of all, 8 queues"}
    assert all(line["memory"] > 0 and line["disk"] > 0 for line in lines)


@pytest.mark.slow
@pytest.mark.feature("F104")
def test_an_overload_leaves_the_disk_alone_and_memory_at_its_limit(tmp_path: Path) -> None:
    row = run(tmp_path, "--overload", "0.5", "--limit-mb", "1")

    assert row["evicted"] > 0
    assert row["disk_growth_bytes"] == 0
    assert 0 < row["counted_bytes"] <= row["limit_bytes"]
    assert row["allocated_bytes"] < row["limit_bytes"] * 1.1
