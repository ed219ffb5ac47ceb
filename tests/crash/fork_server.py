"""A process that has everything imported and forks a writer in a few milliseconds.

A round of the crash tests kills a writer; starting Python and loading the compiled kernels each time
would take ten times longer than the round itself. The server is a fresh single-threaded process (never
fork pytest: it has threads), reads one job per line from its input, and answers twice: the pid of the
fork, and, once that has ended, its wait status.
"""

import json
import os
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]


class ForkServer:
    """The test's end of the server. Not thread-safe; one writer at a time."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._errors = log.open("w")
        # In front of what there is: the tests of a copy of the sources must not start the original.
        paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            text=True,
        )
        self._answer()  # ready

    def start(self, job: dict[str, Any]) -> int:
        """Start a writer; return its pid. `wait` must follow."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def wait(self) -> int:
        """Wait for the writer's end; return its exit code, negative for the signal that killed it."""
        return os.waitstatus_to_exitcode(int(self._answer()))

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._errors.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"the fork server died:\n{self.log.read_text()}")
        return line


def _serve() -> None:
    from crash import writer

    writer.preload()
    print("ready", flush=True)  # noqa: T201
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _run(writer, job)
        print(pid, flush=True)  # noqa: T201
        _, status = os.waitpid(pid, 0)
        print(status, flush=True)  # noqa: T201


def _run(writer: Any, job: dict[str, Any]) -> None:
    code = 1
    try:
        getattr(writer, job.pop("act", "run"))(**job)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    _serve()
