"""Drivers as processes of their own: a process can have one Spark context, and the tests' own is local."""

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

from orbitmq.spark.start.class_archive import DRIVER_OPTIONS, with_archive
from orbitmq.spark.start.java import find_java

DRIVER_SECONDS = 500
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings with which a driver and two executors fit the tests' cluster."""
ONE_EXECUTOR = {"spark.cores.max": "1"}
"""For a job that shows nothing more with two: each is a JVM, and a Python that loads the kernels."""
SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that starts fast is worth more than one that runs fast where it does not live long."""


@cache
def quick_java() -> str:
    """Return the options of a short life, with Spark's classes from the archive that drivers use."""
    return with_archive({DRIVER_OPTIONS: SHORT_LIFE}, find_java())[DRIVER_OPTIONS]


def quick_executors() -> dict[str, str]:
    """Return the setting with which executors start as fast as drivers do."""
    return {"spark.executor.extraJavaOptions": quick_java()}


def run_command(command: list[str], environment: Mapping[str, str]) -> Any:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=DRIVER_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])
