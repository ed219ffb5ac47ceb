"""The store's benchmark still runs and still gets right results; its figures are not looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from compat.java_store import why_not

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_store.py"


@pytest.mark.compat
@pytest.mark.timeout(900)
@pytest.mark.slow
def test_the_benchmark_of_the_store_runs_in_its_smallest_size(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--size", "smoke", "--directory", str(tmp_path), "--json", str(figures)]

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},  # quick to start
    )

    assert ended.returncode == 0, ended.stderr
    lines = json.loads(figures.read_text())["lines"]
    assert all(line["ours"] > 0 for line in lines)
    beside = [line["what"] for line in lines if line["java"]]
    assert len(beside) == (0 if why_not() else 10)
    assert not [path for path in tmp_path.iterdir() if path != figures]
