"""The notebook of `examples` runs from its first cell to its last, and shows what it says."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "the-log-as-a-table.ipynb"
PICTURES = 4
COUNTS = {"5,010 rows, then 0", "Orders, by key: 5,000 different, 10 more than once"}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_notebook_runs_from_top_to_bottom_and_shows_pictures(tmp_path):
    executed = tmp_path / "executed.ipynb"
    home = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    command = [Path(sys.executable).with_name("jupyter-execute"), f"--output={executed}", NOTEBOOK]

    done = subprocess.run(
        command, cwd=tmp_path, env=os.environ | home, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr[-3000:]
    cells = _code(executed)
    assert len([one for cell in cells for one in _pictures(cell)]) == PICTURES
    assert set("\n".join(_printed(cell) for cell in cells).splitlines()) >= COUNTS


def test_the_notebook_that_is_read_without_running_it_has_its_pictures():
    cells = _code(NOTEBOOK)

    assert len([one for cell in cells for one in _pictures(cell)]) == PICTURES
    assert set("\n".join(_printed(cell) for cell in cells).splitlines()) >= COUNTS


def _code(path: Path) -> list[dict[str, Any]]:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _pictures(cell: dict[str, Any]) -> list[str]:
    return [
        one["data"]["image/png"] for one in cell["outputs"] if "image/png" in one.get("data", {})
    ]


def _printed(cell: dict[str, Any]) -> str:
    return "".join("".join(one["text"]) for one in cell["outputs"] if "text" in one)
