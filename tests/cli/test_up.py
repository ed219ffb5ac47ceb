"""`orbitmq up`, as a process: ready quickly, stops cleanly, keeps its messages, says what is wrong."""

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from command import ORBITMQ, call, json_lines, run
from orbitmq.client import Consumer, Message, Producer, PullConsumer
from up_process import up_process

FREE = ["--namesrv-port", "0", "--broker-port", "0"]


def all_bodies(namesrv: str, topic: str) -> list[str]:
    with PullConsumer(namesrv, "TOOLS_CONSUMER", auto_commit=False) as consumer:
        consumer.assign(consumer.topic_queues(topic))
        consumer.seek_to_begin()
        bodies = []
        while found := consumer.poll(timeout=0.5):
            bodies += [message.body.decode() for message in found]
    return sorted(bodies)


def is_calm(errors: str) -> bool:
    """Tell whether the log has no warning, and ends with the stop that was asked for."""
    lines = json_lines(errors)
    events = [line["event"] for line in lines]
    return (
        {line["level"] for line in lines} == {"info"} and "ready" in events and "stopping" in events
    )


def mapped_files(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_where_it_is_and_stops_cleanly(tmp_path, number):
    with up_process(tmp_path) as up:
        assert up.namesrv.startswith("127.0.0.1:")
        assert up.broker.startswith("127.0.0.1:")
        with Producer(up.namesrv, "test") as producer:
            producer.send(Message("Orders", b"hello"))

        up.process.send_signal(number)
        assert up.process.wait(30) == 0

    assert is_calm(up.errors.read_text())
    assert not (tmp_path / "up-store" / "abort").exists(), "the store was not closed cleanly"


def test_the_text_for_people_says_what_to_type_next(tmp_path):
    command = [str(ORBITMQ), "up", "--store", str(tmp_path / "s"), *FREE]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            text = ""
            while "Ctrl-C" not in text:
                text += process.stdout.readline() or pytest.fail(process.stderr.read())
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=30)
        finally:
            process.kill()
    namesrv = re.search(r"name server +(127\.0\.0\.1:\d+)\n", text)[1]

    assert f"store        {tmp_path / 's'}" in text
    assert f"orbitmq message tail Orders --namesrv {namesrv}" in text
    assert "Ctrl-C stops both." in text
    assert process.returncode == 0
    assert is_calm(errors)


def test_a_restart_on_the_same_store_keeps_messages_and_progress(tmp_path):
    bodies = [f"m{number}" for number in range(20)]
    with up_process(tmp_path) as up:
        with Producer(up.namesrv, "test") as producer:
            for body in bodies:
                producer.send(Message("Orders", body.encode()))
        with Consumer(up.namesrv, "readers", "Orders", start_from="first") as consumer:
            for number, _ in enumerate(consumer, start=1):
                if number == len(bodies):
                    break
        assert up.stop() == 0

    with up_process(tmp_path) as up:
        assert all_bodies(up.namesrv, "Orders") == sorted(bodies)
        with Producer(up.namesrv, "test") as producer:
            producer.send(Message("Orders", b"after"))
        with Consumer(up.namesrv, "readers", "Orders", start_from="first") as consumer:
            assert next(iter(consumer)).body == b"after"
        assert up.stop() == 0


def test_it_is_ready_without_a_compiler(tmp_path):
    """Loading numba takes longer than everything else; a broker that is hardly used never does it."""
    started = time.monotonic()
    with up_process(tmp_path) as up:
        ready_seconds = time.monotonic() - started
        with Producer(up.namesrv, "test") as producer:
            producer.send(Message("Orders", b"hello", keys=["k1"]))
        maps = mapped_files(up.process.pid)
        up.stop()

    assert "llvmlite" not in maps
    assert "numba" not in maps
    assert ready_seconds < 30, "a second or two on a machine that is not busy"


def test_it_listens_on_the_loopback_address_only(tmp_path):
    with up_process(tmp_path) as up:
        inodes = {
            link.readlink().name
            for link in Path(f"/proc/{up.process.pid}/fd").iterdir()
            if link.is_symlink()
        }
        listening = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/{up.process.pid}/net/{table}").read_text().splitlines()[1:]
            if line.split()[3] == "0A" and f"socket:[{line.split()[9]}]" in inodes
        ]
        up.stop()

    assert len(listening) == 4, "name server, broker, the broker's second port, that for replicas"
    assert {entry[1].partition(":")[0] for entry in listening} == {"0100007F"}


def test_a_taken_port_is_one_clear_line_and_exit_code_3(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        store = ["--store", str(tmp_path / "s")]

        namesrv = run("up", *store, "--namesrv-port", port, "--broker-port", "0")
        broker = run("up", *store, "--namesrv-port", "0", "--broker-port", port)

    for result, option in ((namesrv, "--namesrv-port"), (broker, "--broker-port")):
        assert result.returncode == 3
        assert result.stdout == ""
        assert len(result.stderr.splitlines()) == 1
        assert result.stderr.startswith(f"orbitmq: 127.0.0.1:{port}: cannot listen")
        assert f"Say {option} 0 for a free port" in result.stderr
    assert not (tmp_path / "s" / "abort").exists()


def test_a_second_one_on_the_same_store_is_refused_and_the_first_goes_on(tmp_path):
    with up_process(tmp_path) as up:
        second = run("up", "--store", tmp_path / "up-store", *FREE)

        assert second.returncode == 4
        assert f"process {up.process.pid} has this store open" in second.stderr
        assert len(second.stderr.splitlines()) == 1
        with Producer(up.namesrv, "test") as producer:
            assert producer.send(Message("Orders", b"still here")).queue_offset == 0
        assert up.stop() == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--set", "flushDiskType"], "write KEY=VALUE"),
        (["--set", "mappedFileSizeCommitLog=x"], "mappedFileSizeCommitLog"),
        (["--broker-port", "70000"], "--broker-port"),
    ],
    ids=["no value", "no number", "no port"],
)
def test_wrong_use_has_exit_code_2(tmp_path, options, text):
    result = run("up", "--store", tmp_path / "s", *FREE, *options)

    assert result.returncode == 2
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_reach_the_broker(tmp_path):
    with up_process(tmp_path, "--set", "defaultTopicQueueNums=3") as up:
        with Producer(up.namesrv, "test", creation_queues=16) as producer:
            producer.send(Message("Orders", b"hello"))
        listed = call("topic", "list", "--output", "json", "--namesrv", up.namesrv)
        up.stop()

    (topic,) = json.loads(listed.stdout)
    assert (topic["topic"], topic["messages"]) == ("Orders", 1)
    assert topic["write_queues"] == 3
