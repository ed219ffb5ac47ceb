"""The broker's benchmark still runs and still gets right results; its figures are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_broker.py"


@pytest.mark.slow
def test_the_benchmark_of_the_broker_runs_in_its_smallest_size(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    parts = ["start", "raw", "sync", "batch", "backlog", "pop", "timer", "transactions", "filtered"]
    parts.append("request")
    options = ["--size", "smoke", "--without-java", "--directory", str(tmp_path)]

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options, "--json", str(figures), "--only", *parts],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    lines = json.loads(figures.read_text())
    assert {
        "sends, async, 4 in flight",
        "backlog, raw pulls",
        "pop and ack, messages",
        "timer, late, p99",
        "transactions, sync, 16 in flight",
        "request and reply, 16 in flight, p50",
        "SQL92, times the filter by tag",
    } <= {line["what"] for line in lines}
    assert all(line["ours"] > 0 for line in lines)
