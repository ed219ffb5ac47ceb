"""The benchmark of the three ways of a pull still runs; its figures are not looked at here."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_pull_transfer.py"


@pytest.mark.feature("F114")
@pytest.mark.slow
def test_the_benchmark_of_pulls_runs_in_a_small_size(tmp_path: Path) -> None:
    small = ["--seconds", "0.05", "--rounds", "1", "--megabytes", "1", "--only", "warm"]
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *small, "--directory", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    for what in ("32 x 1 KiB, warm", "1 x 200 kB, warm"):
        for way in ("copy", "slices", "sendfile", "fastest:"):
            assert f"{what:18} {way}" in ended.stdout
