"""The files in examples/ work: their commands are run, with a place of the test's own."""

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from command import ORBITMQ
from server_process import server_process

EXAMPLES = Path(__file__).parents[2] / "examples"
UNITS = ["orbitmq-namesrv.service", "orbitmq-broker.service"]


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string((EXAMPLES / name).read_text())
    return parser["Service"]


def here(text: str, folder: Path) -> str:
    """Return a command or path with the test's own folders."""
    text = text.replace("/opt/orbitmq/bin/orbitmq", str(ORBITMQ))
    return re.sub(r"/var/(lib|cache)/orbitmq", str(folder / r"\1"), text)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_is_ready_and_stops_as_it_says(name: str, tmp_path: Path) -> None:
    service = unit(name)
    assert (service["Type"], service["Restart"]) == ("notify", "on-failure")
    variable, _, value = here(service["Environment"], tmp_path).partition("=")
    command = [*shlex.split(here(service["ExecStart"], tmp_path)), "--port", "0"]
    command += ["--set", "mappedFileSizeCommitLog=1048576"] if "broker" in name else []
    watchdog = str(int(float(service["WatchdogSec"]) * 1_000_000))

    with server_process(tmp_path, command, WATCHDOG_USEC=watchdog, **{variable: value}) as process:
        process.manager.wait_for("WATCHDOG")
        assert process.stop() == 0

    address = process.ready["broker" if "broker" in name else "namesrv"]
    assert address.startswith("127.0.0.1:"), "an example serves this machine only"
    assert address in process.started["STATUS"]


@pytest.mark.parametrize("name", UNITS)
def test_systemd_understands_every_line(name: str, tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("systemd-analyze is not installed")
    file = tmp_path / name
    file.write_text(here((EXAMPLES / name).read_text(), tmp_path))

    result = subprocess.run(
        [tool, "verify", "--man=no", "--recursive-errors=no", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")


def test_a_container_runs_its_command_until_it_is_stopped(tmp_path: Path) -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    entry, arguments = (
        json.loads(re.findall(rf"^{word} (\[.*\])$", text, re.MULTILINE)[0])
        for word in ("ENTRYPOINT", "CMD")
    )
    assert entry == ["orbitmq"]
    assert "STOPSIGNAL SIGTERM" in text
    command = [ORBITMQ, *(here(argument, tmp_path) for argument in arguments)]
    command += ["--host", "127.0.0.1", "--port", "0", "--set", "mappedFileSizeCommitLog=1048576"]

    with server_process(tmp_path, command) as process:
        assert process.stop() == 0

    assert process.ready["store"] == str(tmp_path / "lib" / "store")


def test_a_container_is_built_from_files_that_are_there() -> None:
    text = (EXAMPLES / "Containerfile").read_text()

    copied = [
        name for line in re.findall(r"^COPY (.*) \S+$", text, re.MULTILINE) for name in line.split()
    ]

    assert copied
    assert [name for name in copied if not (EXAMPLES.parent / name).exists()] == []
