"""`orbitmq broker run`, as a process."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orbitmq.files.state_file import read_state

COMMAND = [sys.executable, "-c", "from orbitmq.cli import main; main()", "broker", "run"]
HERE = ["--host", "127.0.0.1", "--port", "0"]


def start(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *HERE, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_stops_cleanly(number: int, tmp_path: Path) -> None:
    with start("--store", str(tmp_path), "--name", "b1", "--output", "json") as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["broker"].startswith("127.0.0.1:")
        assert (ready["name"], ready["store"]) == ("b1", str(tmp_path))

        process.send_signal(number)
        _, errors = process.communicate(timeout=30)

    assert process.returncode == 0
    assert "stopping" in errors
    assert not (tmp_path / "abort").exists()
    assert "b1" in read_state(tmp_path / "config" / "topics.json")["topicConfigTable"]


def test_settings_come_from_a_file_and_flags(tmp_path: Path) -> None:
    config = tmp_path / "broker.conf"
    config.write_text("brokerName=from-file\nbrokerClusterName=C1\nautoCreateTopicEnable=false\n")
    root = tmp_path / "store"
    options = ["--config", str(config), "--store", str(root), "--set", "traceTopicEnable=true"]
    with start(*options) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("broker from-file 127.0.0.1:")
        process.terminate()
        process.communicate(timeout=30)

    topics = read_state(root / "config" / "topics.json")["topicConfigTable"]
    assert {"from-file", "C1", "RMQ_SYS_TRACE_TOPIC"} <= topics.keys()
    assert "TBW102" not in topics


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--set", "listenPort"], 2, "KEY=VALUE"),
        (["--set", "brokerPermission=x"], 2, "brokerPermission"),
        (["--host", "not-an-address"], 2, "brokerIP1"),
    ],
)
def test_wrong_use_is_one_clear_line(
    options: list[str], code: int, text: str, tmp_path: Path
) -> None:
    with start("--store", str(tmp_path), *options) as process:
        _, errors = process.communicate(timeout=30)

    assert process.returncode == code
    assert text in errors
    assert "Traceback" not in errors
