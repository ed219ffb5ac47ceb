"""Who may import whom: the contracts of .importlinter, and what must not be imported early."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.feature("F62")
def test_every_import_keeps_to_the_borders_between_layers_and_inside_the_store():
    command = [Path(sys.executable).with_name("lint-imports"), "--no-cache"]

    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("module", ["orbitmq", "orbitmq.cli", "orbitmq.errors", "orbitmq.message"])
def test_light_modules_leave_the_heavy_ones_alone(module):
    code = (
        f"import {module}, sys; print([n for n in ('numba', 'numpy', 'rich') if n in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_a_broker_imports_what_few_of_them_need_when_it_is_needed():
    rare = (
        "numba",
        "lark",
        "rich",
        "structlog",
        "orbitmq.log_read.splits",
        "orbitmq.store.memory.memory_store",
        "orbitmq.store.spark_dispatch.opening",
    )
    code = (
        "import orbitmq.broker.broker, orbitmq.logs.server_log, sys; "
        f"print([n for n in {rare} if n in sys.modules])"
    )

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"
