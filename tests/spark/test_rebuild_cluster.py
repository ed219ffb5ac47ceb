"""The same rebuild on a cluster of two workers: whatever happens to its tasks, the same bytes."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from golden_stores import settings, unpack
from spark.rebuild_world import leftovers, made_files
from spark.standalone import StandaloneCluster, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(600)]

STORE = "mixed"
START_SECONDS = 280
DRIVER = Path(__file__).with_name("rebuild_driver.py")
CONF = ("spark.driver.memory=512m", "spark.executor.memory=512m")
SPECULATION = (
    "spark.speculation=true",
    "spark.speculation.interval=100ms",
    "spark.speculation.quantile=0.3",
    "spark.speculation.multiplier=1.1",
    "spark.speculation.minTaskRuntime=100ms",
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[StandaloneCluster]:
    with standalone_cluster(workers=2) as cluster:
        yield cluster


class Driver:
    """A rebuild that runs, or has run."""

    def __init__(self, tmp_path: Path, master: str, mode: str, *conf: str) -> None:
        self.root = unpack(STORE, tmp_path)
        self.expected = made_files(self.root)
        self._calls = tmp_path / "calls"
        self._calls.mkdir()
        told = tmp_path / "settings.json"
        told.write_text(json.dumps(settings(STORE)))
        command = [sys.executable, DRIVER, master, self.root, told, self._calls, mode]
        self._output = tmp_path / "output.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*map(str, command), *CONF, *conf], stdout=output, stderr=subprocess.STDOUT
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def calls(self) -> set[str]:
        return {path.name for path in self._calls.iterdir()}

    def wait_for_call(self, stage: str) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not any(name.startswith(stage) for name in self.calls):
            assert self.process.poll() is None, self._output.read_text()
            assert time.monotonic() < deadline, self._output.read_text()
            time.sleep(0.05)

    def require_rebuilt(self) -> None:
        assert self.process.wait(START_SECONDS) == 0, self._output.read_text()
        assert made_files(self.root) == self.expected
        assert not leftovers(self.root)


@pytest.mark.feature("P5", "P15")
def test_two_workers_give_the_same_bytes(cluster: StandaloneCluster, tmp_path: Path) -> None:
    with Driver(tmp_path, cluster.master, "plain") as driver:
        driver.require_rebuilt()


@pytest.mark.feature("P15")
def test_a_task_that_fails_is_done_again(cluster: StandaloneCluster, tmp_path: Path) -> None:
    with Driver(tmp_path, cluster.master, "fail") as driver:
        driver.require_rebuilt()

        assert {"scan0-0", "scan0-1", "build0-0", "build0-1"} <= driver.calls


@pytest.mark.feature("P15")
def test_of_two_attempts_that_run_at_once_one_counts(
    cluster: StandaloneCluster, tmp_path: Path
) -> None:
    with Driver(tmp_path, cluster.master, "linger", *SPECULATION) as driver:
        driver.require_rebuilt()

        assert {"scan0-0", "scan0-1", "build0-0", "build0-1"} <= driver.calls


@pytest.mark.feature("P15")
@pytest.mark.parametrize("stage", ["scan", "build"])
def test_a_killed_executor_loses_nothing(
    stage: str, cluster: StandaloneCluster, tmp_path: Path
) -> None:
    with Driver(tmp_path, cluster.master, "slow") as driver:
        driver.wait_for_call(stage)

        cluster.kill_executor()

        driver.require_rebuilt()
        assert any(name.startswith(stage) and not name.endswith("-0") for name in driver.calls)
