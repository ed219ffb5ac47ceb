"""The benchmark of exports still runs and gets right results; its figures are not looked at here."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.spark.start.java import SHORT_LIFE

pytestmark = pytest.mark.spark

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_export.py"


@pytest.mark.slow
def test_the_benchmark_of_exports_runs_in_its_smallest_size(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    options = ["--size", "smoke", "--directory", str(tmp_path), "--json", str(figures)]

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JDK_JAVA_OPTIONS": SHORT_LIFE},  # its figures are not looked at
    )

    assert ended.returncode == 0, ended.stderr
    assert json.loads(figures.read_text()).keys() == {"spark", "parquet", "delta", "iceberg"}
