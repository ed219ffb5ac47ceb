"""The benchmark of replicas still runs and still gets right results; its figures are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_replication.py"


@pytest.mark.slow
def test_the_benchmark_of_replicas_runs_in_its_smallest_size(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--size", "smoke", "--without-java", "--directory", str(tmp_path)]
    options += ["--only", "async", "catch-up"]  # sync is as async, with another setting

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--json", str(figures)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    lines = json.loads(figures.read_text())
    assert {
        "sends with a replica, async, 4 in flight",
        "with a replica on a core of its own, of the rate without, 4 in flight",
        "catch-up",
    } <= {line["what"] for line in lines}
    assert all(line["ours"] > 0 for line in lines if "is behind" not in line["what"])
