"""The benchmark of the jobs that write runs and gets right results; its figures are not looked at here."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_lake.py"


def test_a_load_is_compared_with_sending_the_same_rows(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--size", "smoke", "--only", "load", "--directory", tmp_path, "--json", figures]

    ended = subprocess.run(
        [sys.executable, SCRIPT, *options], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    (line,) = json.loads(figures.read_text())["lines"]
    assert line["ours"] > 0
    assert line["java"] > 0
    assert f"{line['ratio']:.2f}x" in ended.stdout
    assert [path for path in tmp_path.iterdir() if path != figures] == []
