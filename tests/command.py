"""Runs the command `orbitmq` for tests: as a real process, or inside this one."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from typer import testing
from typer.testing import CliRunner, Result

from orbitmq.cli import app
from orbitmq.errors import OrbitError

ORBITMQ = Path(sys.executable).with_name("orbitmq")

# Made anew for each call, the tree of commands takes longer than many a command does; it is always the same.
testing._get_command = cache(testing._get_command)


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command; the exit code is for the test to judge."""
    return subprocess.run(
        [ORBITMQ, *map(str, arguments)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONUTF8": "1", "COLUMNS": "200", **environment},
        check=False,
    )


def invoke(*arguments: object) -> Result:
    """Run the command in this process: faster, and errors of ours come as exceptions."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def call(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in this process, with the result that `run` gives, where a process is not the point.

    That `main` makes one line and an exit code of an error is shown with `run`.
    """
    words = [str(argument) for argument in arguments]
    result = CliRunner(env={"COLUMNS": "200", **environment}).invoke(app, words)
    code, said, error = result.exit_code, result.stderr, result.exception
    if isinstance(error, OrbitError):
        code, said = error.exit_code, f"{said}orbitmq: {error}\n"
    elif error is not None and not isinstance(error, SystemExit):
        raise error
    return subprocess.CompletedProcess(words, code, result.stdout, said)


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]
