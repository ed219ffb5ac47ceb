"""`orbitmq broker run`, as a process."""

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from live_broker import LiveClient, records_of, run_live
from orbitmq.files.state_file import read_state

COMMAND = [sys.executable, "-c", "from orbitmq.cli import main; main()", "broker", "run"]
HERE = ["--host", "127.0.0.1", "--port", "0"]


@contextmanager
def start(*options: str) -> Iterator[subprocess.Popen[str]]:
    """Run a broker; it does not outlive the test."""
    process = subprocess.Popen(
        [*COMMAND, *HERE, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


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


@pytest.mark.crash
def test_a_killed_broker_comes_back_with_its_topic_messages_and_offset(tmp_path: Path) -> None:
    offsets = tmp_path / "config" / "consumerOffset.json"

    async def before(address: str) -> None:
        client = LiveClient(address)
        await client.heartbeat("G", "Orders")
        for n in range(5):
            assert (await client.send("Orders", b"%d" % n)).code == 0
        await client.commit("G", "Orders", 2)
        async with asyncio.timeout(20):
            while read_state(offsets).get("offsetTable") != {"Orders@G": {"0": 2}}:
                await asyncio.sleep(0.01)
        await client.commit("G", "Orders", 3)
        assert (await client.send("Fresh", b"of a topic that was made this moment")).code == 0
        await client.close()

    async def after(address: str) -> None:
        client = LiveClient(address)
        assert (await client.offset("G", "Orders")).fields in ({"offset": "2"}, {"offset": "3"})
        await client.heartbeat("G", "Orders", "Fresh")
        pulled = await client.pull("G", "Orders", 0)
        assert [record.body for record in records_of(pulled)] == [b"0", b"1", b"2", b"3", b"4"]
        assert len(records_of(await client.pull("G", "Fresh", 0))) == 1
        await client.close()

    options = ("--store", str(tmp_path), "--output", "json")
    options += ("--set", "mappedFileSizeCommitLog=1048576")
    options += ("--set", "flushConsumerOffsetInterval=100")
    with start(*options) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["broker"]
        run_live(lambda: before(address))
        process.kill()
        process.communicate(timeout=30)
    with start(*options) as process:
        assert process.stdout is not None
        address = json.loads(process.stdout.readline())["broker"]
        run_live(lambda: after(address))
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0
