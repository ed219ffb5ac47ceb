"""The command as a whole: help, errors, exit codes."""

import os
import re
import subprocess
import sys

import pytest

from command import ORBITMQ, call, invoke, run
from golden_stores import unpack
from orbitmq import __version__


def test_version():
    assert run("--version").stdout == f"orbitmq {__version__}\n"


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a command loads until it ends."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", str(ORBITMQ), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    return {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}


def test_help_does_not_load_what_only_work_needs():
    """What makes a command slow to start is what it imports."""
    loaded = loaded_by("--help")
    heavy = {"numpy", "numba", "pyarrow", "pyspark", "lark", "uvloop", "structlog", "asyncio"}

    assert "orbitmq.cli" in loaded
    assert not loaded & heavy
    assert len([name for name in loaded if name.startswith("orbitmq")]) < 60


def test_a_command_reads_its_options_without_a_library_of_data_models():
    """As later versions of Typer do (60 ms and 6 MB for each broker, and 60 ms for each other command)."""
    loaded = loaded_by("broker", "run", "--config", "no-such-file", "--port", "0")

    assert "orbitmq.cli.broker_text" in loaded
    assert "pydantic" not in loaded


@pytest.mark.parametrize("command", ["stat", "check", "dump", "get", "query", "rebuild", "repair"])
def test_every_store_command_has_help_with_config_and_output(command):
    result = call("store", command, "--help", TERM="dumb")

    assert result.returncode == 0
    assert "--config" in result.stdout
    assert "--output" in result.stdout


CLUSTER_COMMANDS = [
    *("topic list", "topic stats", "topic check", "topic create", "topic delete"),
    *("group list", "group progress", "group members", "group create", "group delete"),
    *("group reset", "group watch", "message send", "message tail", "message get", "message query"),
    *("message recall", "message trace"),
]


@pytest.mark.parametrize("command", CLUSTER_COMMANDS)
def test_every_command_for_a_cluster_has_help_with_its_address(command):
    result = invoke(*command.split(), "--help")

    assert result.exit_code == 0
    assert "--namesrv" in result.stdout
    assert "127.0.0.1:9876" in result.stdout


def test_every_command_is_looked_at():
    for group in ("topic", "group", "message"):
        shown = invoke(group, "--help").stdout
        names = {name.split()[1] for name in CLUSTER_COMMANDS if name.startswith(f"{group} ")}
        assert set(re.findall(r"^│ ([a-z]+)  ", shown, re.MULTILINE)) == names


@pytest.mark.parametrize("command", ["stat", "check", "dump", "rebuild", "repair"])
def test_a_directory_without_a_log_is_one_clear_line_and_exit_code_4(command, tmp_path):
    result = (run if command == "stat" else call)("store", command, tmp_path)  # one by a process

    assert result.returncode == 4
    assert result.stderr.startswith(f"orbitmq: {tmp_path}: ")
    assert len(result.stderr.splitlines()) == 1


def test_traceback_only_when_asked_for(tmp_path):
    result = run("store", "stat", tmp_path, ORBITMQ_DEBUG="1")

    assert "Traceback" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["store", "nonsense"],
        ["store", "dump"],
        ["store", "dump", ".", "--from", "yesterday"],
        ["store", "dump", ".", "--config", "not there"],
        ["store", "query", "."],
    ],
    ids=" ".join,
)
def test_wrong_use_has_exit_code_2(arguments):
    assert call(*arguments).returncode == 2


def test_settings_that_cannot_work_have_exit_code_2(tmp_path):
    root = unpack("propcrc", tmp_path)
    config = tmp_path / "broker.conf"
    config.write_text("mappedFileSizeConsumeQueue=nonsense\nmaxHashSlotNum=-3\n")

    result = run("store", "stat", root, "--config", config)

    assert result.returncode == 2
    assert "maxHashSlotNum" in result.stderr or "mappedFileSizeConsumeQueue" in result.stderr


def test_a_closed_pipe_is_no_error(tmp_path):
    root = unpack("mixed", tmp_path)

    status = os.system(f"{_command()} store dump {root} 2>{tmp_path}/err | head -1 >{tmp_path}/out")

    assert status == 0
    assert (tmp_path / "err").read_text() == ""


def _command() -> str:
    from command import ORBITMQ

    return str(ORBITMQ)
