"""The kernels' benchmark still runs and still gets right results; its figures are not looked at here."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_kernels.py"


def test_the_benchmark_of_the_kernels_runs_in_a_small_size() -> None:
    options = ["--records", "500", "--plain-records", "50"]

    ended = subprocess.run(
        [sys.executable, str(SCRIPT), *options], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert "scan with CRC, 2 threads" in ended.stdout
