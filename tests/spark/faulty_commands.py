"""`orbitmq spark ...` as a process of its own, whose tasks meet faults (`executors/faulty_workers.py`)."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from command import ORBITMQ
from spark.drivers import quick_executors

EXECUTORS = Path(__file__).with_name("executors")
SECONDS = 280.0
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    # What a killed executor had shuffled is gone: asking it again and again only takes time.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}
Faults = Mapping[str, Mapping[str, str]]


def _with_executors() -> str:
    return os.pathsep.join(filter(None, (str(EXECUTORS), os.environ.get("PYTHONPATH"))))


def faulty_settings(calls: Path, faults: Faults | None) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of Spark and the environment of a driver whose tasks meet these faults."""
    told = json.dumps({"calls": str(calls), **(faults or {})})
    conf = {
        **SMALL,
        **quick_executors(),
        "spark.python.daemon.module": "faulty_workers",
        "spark.executorEnv.PYTHONPATH": _with_executors(),
        "spark.executorEnv.ORBITMQ_TEST_FAULTS": told,
    }
    return conf, {"PYTHONPATH": _with_executors(), "ORBITMQ_TEST_FAULTS": told}


class FaultyCommand:
    """A command that runs in a directory of its own, or has run."""

    def __init__(
        self,
        directory: Path,
        master: str,
        *arguments: object,
        faults: Faults | None = None,
        conf: Mapping[str, str] | None = None,
    ) -> None:
        self._calls = directory / "calls"
        self._calls.mkdir()
        self._output = directory / "output.txt"
        settings, environment = faulty_settings(self._calls, faults)
        settings |= conf or {}
        options = [word for item in settings.items() for word in ("--conf", "=".join(item))]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [str(ORBITMQ), "spark", *map(str, arguments), "--master", master, *options],
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env={**os.environ, **environment},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()

    @property
    def said(self) -> str:
        """What it wrote to standard error."""
        return self._output.read_text()

    @property
    def calls(self) -> set[str]:
        return {path.name for path in self._calls.iterdir() if "." not in path.name}

    def wait_for_call(self, name: str) -> int:
        """Wait until a task whose name starts so has begun; return the process id of its executor."""
        deadline = time.monotonic() + SECONDS
        while not (begun := sorted(call for call in self.calls if call.startswith(name))):
            assert self.process.poll() is None, self.said
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)
        return int((self._calls / begun[0]).read_text())

    def kill_executor_of(self, name: str) -> None:
        """Kill the executor of a task that holds, at once; its Python workers notice by themselves."""
        os.kill(self.wait_for_call(name), signal.SIGKILL)

    def wait(self, code: int = 0) -> str:
        """Wait for its end; return its standard output."""
        output, _ = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == code, output + self.said
        return output
