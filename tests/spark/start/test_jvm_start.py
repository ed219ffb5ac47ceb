"""A start of Spark that is broken off leaves no JVM."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from pyspark import java_gateway

from command import ORBITMQ
from golden_stores import GOLDEN, unpack
from orbitmq.spark.start import session
from spark.rebuild_world import files_below, leftovers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

END_SECONDS = 30


def test_ctrl_c_while_the_jvm_starts_ends_it_too(tmp_path: Path) -> None:
    root = unpack("timer", tmp_path)
    before = files_below(root)
    mark = tmp_path / "mark"  # in the environment of every process of this command, the JVM's too
    process = subprocess.Popen(
        [ORBITMQ, "spark", "rebuild", root, "--config", GOLDEN / "timer.conf"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ORBITMQ_TEST_MARK": str(mark)},
        process_group=0,
    )
    until(lambda: any(is_gateway(pid) for pid in marked(mark)))

    os.killpg(process.pid, signal.SIGINT)  # as a terminal does

    assert process.communicate(timeout=END_SECONDS)[1] == ""
    assert process.returncode == 130
    until(lambda: not marked(mark))
    assert files_below(root) == before
    assert not leftovers(root)


def test_a_start_that_went_well_leaves_its_jvm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session.SparkContext, "_gateway", object())
    start = java_gateway.Popen
    process = None

    def broken_off() -> None:
        nonlocal process
        with session.no_jvm_left_behind():
            process = java_gateway.Popen(["sleep", "60"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        broken_off()
    try:
        assert process.poll() is None
        assert java_gateway.Popen is start
    finally:
        process.kill()
        process.wait()


def until(holds, seconds: float = END_SECONDS) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "in vain"
        time.sleep(0.02)


def marked(mark: Path) -> list[int]:
    """Return the processes with this mark in their environment."""
    wanted = f"ORBITMQ_TEST_MARK={mark}".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            try:
                environment = (directory / "environ").read_bytes()
            except OSError:
                continue  # it has ended
            if wanted in environment.split(b"\0"):
                found.append(int(directory.name))
    return found


def is_gateway(pid: int) -> bool:
    """Return whether this is Spark's JVM, not a script or the JVM that makes its command line."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return (
        words[0].endswith(b"/java")
        and b"org.apache.spark.deploy.SparkSubmit" in words
        and b"org.apache.spark.launcher.Main" not in words
    )
