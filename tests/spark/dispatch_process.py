"""`orbitmq spark dispatch` as a real process that can be killed."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from command import ORBITMQ

READY_SECONDS = 300.0
LINES = 30


class JobProcess:
    """A job of one store; after a kill it can be started again."""

    def __init__(self, root: Path, directory: Path, *options: str) -> None:
        self.root = root
        self._command = [
            *(str(ORBITMQ), "spark", "dispatch", str(root), "--output", "json"),
            *("--master", "local[2]", "--conf", "spark.driver.memory=1g", *options),
        ]
        self._log = directory / "dispatch-job.txt"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it; it works when its first line is there (`wait_line`)."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ},
                start_new_session=True,  # so that its JVM can be ended with it
            )

    def kill(self, *, jvm_too: bool) -> None:
        """Kill the driver with SIGKILL, alone or with its JVM and Python workers."""
        assert self._process is not None
        if jvm_too:
            os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._process.kill()
        self._end()

    def stop(self) -> dict[str, Any]:
        """Ask it to end; return how far it came."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        out, _ = self._process.communicate(timeout=READY_SECONDS)
        code = self._process.returncode
        self._process = None
        assert code == 0, self.tail()
        told: dict[str, Any] = json.loads(out)
        return told

    def close(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    @property
    def lines(self) -> int:
        """How many lines all lives of the job have written."""
        text = self._log.read_text() if self._log.exists() else ""
        return sum(line.startswith("{") for line in text.splitlines())

    def wait_line(self, before: int) -> None:
        """Wait until there are more lines than before."""
        deadline = time.monotonic() + READY_SECONDS
        while self.lines <= before:
            assert self._process is not None
            assert self._process.poll() is None, self.tail()
            assert time.monotonic() < deadline, self.tail()
            time.sleep(0.1)

    def tail(self) -> str:
        return "\n".join(self._log.read_text().splitlines()[-LINES:])


@contextmanager
def job_process(root: Path, directory: Path, *options: str) -> Iterator[JobProcess]:
    """Run a job for the length of the body; ready when the body starts."""
    job = JobProcess(root, directory, *options)
    job.start()
    try:
        job.wait_line(0)
        yield job
    finally:
        job.close()
