"""Progress of a job: what tasks count arrives, and is shown as fits where it goes."""

import json
import os
import pickle
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from orbitmq.cli.spark.progress import ProgressBar, ProgressLines, json_line, note_text
from orbitmq.spark.progress import JobProgress, StageProgress

pytestmark = pytest.mark.spark

MIB = 1 << 20
HALF = StageProgress("scan", 2 * MIB, 4 * MIB, 1_000, 4.0, finished=False)
LONG_JOB = Path(__file__).with_name("long_job.py")
WAIT_SECONDS = 140.0
ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.mark.feature("P16")
def test_what_tasks_count_is_shown_stage_by_stage(spark: SparkSession):
    seen: list[StageProgress] = []

    with JobProgress(spark, show=seen.append) as progress:
        scan = progress.stage("scan", 800)
        spark.sparkContext.parallelize(range(8), 4).foreach(lambda number: scan.add(100, number))
        write = progress.stage("write")
        spark.sparkContext.parallelize(range(4), 2).foreach(lambda _: write.add(5, 1))

    assert [shown.stage for shown in seen] == sorted(shown.stage for shown in seen)
    assert [(s.stage, s.bytes, s.total_bytes, s.records) for s in seen if s.finished] == [
        ("scan", 800, 800, 28),
        ("write", 20, 0, 4),
    ]
    assert seen[0] == ("scan", 0, 800, 0, seen[0].seconds, False)


def test_a_failed_job_is_not_shown_as_finished(spark: SparkSession):
    seen: list[StageProgress] = []

    def fail() -> None:
        with JobProgress(spark, show=seen.append) as progress:
            progress.stage("scan", 800)
            raise ValueError("no luck")

    with pytest.raises(ValueError, match="no luck"):
        fail()

    assert [shown.finished for shown in seen] == [False]


def test_what_is_counted_twice_does_not_pass_the_total(spark: SparkSession):
    seen: list[StageProgress] = []

    with JobProgress(spark, show=seen.append) as progress:
        counter = progress.stage("scan", 100)
        counter.add(150, 1)

    assert seen[-1].bytes == 100


def test_a_counter_can_be_pickled(spark: SparkSession):
    with JobProgress(spark) as progress:
        counter = progress.stage("scan", 100)
        counter.add(60, 2)

        copy = pickle.loads(pickle.dumps(counter))

    assert (copy.name, copy.total_bytes) == ("scan", 100)
    assert (counter.bytes, counter.records) == (60, 2)


def test_time_left_follows_from_the_rate():
    assert HALF.bytes_per_second == MIB / 2
    assert HALF.seconds_left == 4.0
    assert HALF._replace(bytes=0).seconds_left is None
    assert HALF._replace(total_bytes=0).seconds_left is None
    assert HALF._replace(finished=True).seconds_left == 0.0


@pytest.mark.feature("P16")
def test_lines_are_json_and_few(capsys: pytest.CaptureFixture[str]):
    form = ProgressLines()

    for done in range(5):
        form.show(HALF._replace(bytes=done))
    form.show(HALF._replace(bytes=4 * MIB, finished=True))
    form.show(HALF._replace(stage="write"))

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["stage"], line["bytes"], line["finished"]) for line in lines] == [
        ("scan", 0, False),
        ("scan", 4 * MIB, True),
        ("write", 2 * MIB, False),
    ]
    assert lines[2]["seconds_left"] == 4.0
    assert json.loads(json_line(HALF))["records_per_second"] == 250


def test_a_bar_says_bytes_records_and_rate():
    assert note_text(HALF) == "2.0 MiB of 4.0 MiB, 1,000 records, 512.0 KiB/s"


def test_a_bar_without_a_total_ends_full():
    bar = ProgressBar()
    try:
        bar.show(HALF._replace(total_bytes=0))
        bar.show(HALF._replace(total_bytes=0, finished=True))

        assert bar._bars is not None
        assert bar._bars.finished
    finally:
        bar.close()


@pytest.mark.feature("P16")
def test_ctrl_c_on_a_terminal_cancels_the_job_and_goes_on(tmp_path: Path):
    report = tmp_path / "report"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", _TERMINAL, str(LONG_JOB), str(report)],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "160"},
    )
    os.close(theirs)
    try:
        shown = _read_until(ours, rb"MiB of 9\.8 GiB, \d+ records, [\d.]+ .iB/s \d:\d\d:\d\d")
        os.write(ours, b"\x03")
        shown += _read_until(ours, rb"KeyboardInterrupt\r\n")
        exit_code = process.wait(WAIT_SECONDS)
    finally:
        os.close(ours)
        if process.poll() is None:
            process.kill()
            process.wait()

    assert exit_code != 0, shown.decode()
    assert report.read_text() == "cancelled", shown.decode()
    assert b"\tat org.apache" not in shown


# The program must own the terminal, or Ctrl-C reaches nobody.
_TERMINAL = """
import fcntl, runpy, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _read_until(terminal: int, pattern: bytes) -> bytes:
    seen, deadline = b"", time.monotonic() + WAIT_SECONDS
    while not re.search(pattern, seen):
        readable, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, f"not shown in time: {seen.decode(errors='replace')}"
        try:
            seen = ANSI.sub(b"", seen + os.read(terminal, 65536))
        except OSError as error:  # the other end is closed
            raise AssertionError(f"ended: {seen.decode(errors='replace')}") from error
    return seen
