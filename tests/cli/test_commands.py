"""The tree of commands: each is imported when it is asked for, and all are there for who asks for help."""

import subprocess
import sys

import pytest

import command
from orbitmq.cli.commands import NAMES

ASKED = """
import sys
from typer.testing import CliRunner
from orbitmq.cli import app
assert CliRunner().invoke(app, ["broker", "--help"]).exit_code == 0
print(*sorted(name for name in sys.modules if name.startswith("orbitmq.cli.")))
"""


def test_a_command_does_not_import_the_others() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)

    found = {name.split(".")[2] for name in done.stdout.split()}
    assert "broker" in found
    assert not found & ({*NAMES} - {"broker"})


def test_help_lists_all_commands_in_their_order() -> None:
    text = command.invoke("--help").stdout

    listed = [
        line.split()[1] for line in text.partition("Commands")[2].splitlines() if "│ " in line
    ]
    assert [name for name in listed if name in NAMES] == list(NAMES)


@pytest.mark.parametrize(("wrong", "meant"), [("brokr", "broker"), ("doktor", "doctor")])
def test_a_wrong_name_is_told_which_one_may_be_meant(wrong: str, meant: str) -> None:
    result = command.invoke(wrong)

    assert result.exit_code == 2
    assert f"Did you mean '{meant}'?" in result.output


@pytest.mark.parametrize("name", NAMES)
def test_each_command_has_help_of_its_own(name: str) -> None:
    result = command.invoke(name, "--help")

    assert result.exit_code == 0
    assert f"orbitmq {name}" in " ".join(result.output.split())
