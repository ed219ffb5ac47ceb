"""A rebuild as a process of its own, whose tasks a test can make fail or wait.

    python rebuild_driver.py MASTER ROOT SETTINGS.json CALLS_DIRECTORY MODE [NAME=VALUE ...]

Each attempt of a task leaves a file `<stage><task>-<attempt>` in the calls' directory. Modes:
  plain     nothing else
  fail      the first attempt of each stage's first task fails
  linger    the first attempt of each stage's first task does not end before a second one has begun
  slow      every task takes a second
"""

import json
import sys
import time
from pathlib import Path

from pyspark import TaskContext

from orbitmq.cli.spark_options import open_session
from orbitmq.cli.spark_progress import shown_progress
from orbitmq.spark.jobs.rebuild import rebuild
from orbitmq.spark.jobs.rebuild_build import Hook
from orbitmq.spark.jobs.rebuild_options import RebuildOptions

SPLIT_BYTES = 500_000
LINGER_SECONDS = 60


def wait_for_second(call: Path) -> None:
    deadline = time.monotonic() + LINGER_SECONDS
    while not call.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(2.0)


def make_hook(calls: str, mode: str) -> Hook:
    def hook(stage: str, number: int) -> None:
        context = TaskContext.get()
        assert context is not None
        attempt = context.attemptNumber()
        Path(calls, f"{stage}{number}-{attempt}").touch()
        first = number == 0 and attempt == 0
        if mode == "fail" and first:
            raise RuntimeError("this task fails once")
        if mode == "linger" and first:
            wait_for_second(Path(calls, f"{stage}{number}-1"))
        if mode == "slow":
            time.sleep(1.0)

    return hook


def main(master: str, root: str, settings: str, calls: str, mode: str, *conf: str) -> None:
    told = json.loads(Path(settings).read_text())
    options = RebuildOptions(split_bytes=SPLIT_BYTES, hook=make_hook(calls, mode))
    spark = open_session(master, list(conf))
    try:
        with shown_progress(spark) as progress:
            report = rebuild(spark, Path(root), told, options, progress=progress)
        sys.stdout.write(f"{report.records} records\n")
    finally:
        spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
