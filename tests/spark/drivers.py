"""Drivers as processes of their own: a process can have one Spark context, and the tests' own is local."""

import json
import os
import subprocess
from collections.abc import Mapping
from typing import Any

DRIVER_SECONDS = 500
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings with which a driver and two executors fit the tests' cluster."""


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
