"""The codec's benchmark still runs and still gets right results; its figures are not looked at here."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "bench" / "bench_wire.py"


def test_the_benchmark_of_the_codec_runs_in_a_small_size() -> None:
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "--rounds", "20", "--topics", "10"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "decode a send, json header, 16 in one read" in ended.stdout
